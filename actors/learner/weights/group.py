"""Which engines are in the group that one version is broadcast to. Pure.

Invariant: an engine that is ready waits at most `join_s` for the others. It waits for no sampler that has declined.
Ranks are handed out from 1, without gap or overlap.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from runtime.messaging.message import Version


class CollectiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The group of `version` while it is open."""

    version: Version
    awaited: frozenset[str]  # the version was announced to them, and they have neither joined nor declined
    joined: dict[str, int] = {}  # ranks of each sampler's engine, in the order of joining
    began: float | None = None  # when the first member joined

    def with_member(self, sampler: str, ranks: int, now: float) -> CollectiveGroup:
        """An engine of `ranks` ranks is ready; a repeat keeps its place."""
        began = now if self.began is None else self.began
        joined = {**self.joined, sampler: ranks}
        return msgspec.structs.replace(self, joined=joined, awaited=self.awaited - {sampler}, began=began)

    def without(self, samplers: Iterable[str]) -> CollectiveGroup:
        """Remove samplers that will not join."""
        gone = frozenset(samplers)
        joined = {name: ranks for name, ranks in self.joined.items() if name not in gone}
        began = self.began if joined else None
        return msgspec.structs.replace(self, joined=joined, awaited=self.awaited - gone, began=began)

    def waits_s(self, now: float, join_s: float) -> float | None:
        """Seconds until the group closes if no sampler joins or declines: 0 where it is complete, None where it is
        empty.
        """
        if self.began is None:
            return None
        return max(0.0, self.began + join_s - now) if self.awaited else 0.0

    def places(self) -> dict[str, int]:
        """The first rank of each sampler's engine."""
        places, following = {}, 1
        for sampler, ranks in self.joined.items():
            places[sampler] = following
            following += ranks
        return places

    @property
    def ranks(self) -> int:
        """Ranks of all engines together."""
        return sum(self.joined.values())
