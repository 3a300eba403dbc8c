"""How old a token's weights are, over lineages that fork at every resume.

Invariant: a version never names two different weights. A step past the checkpoint that a lineage started from is
abandoned. It has no staleness, and no later lineage descends from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runtime.messaging.message import Version


class Lineages:
    """The tree of lineages: each but the first names the checkpoint it started from."""

    def __init__(self, parents: Mapping[int, Version | None]) -> None:
        self._parents = dict(parents)

    def staleness(self, trained: Version, version: Version) -> int | None:
        """Optimizer steps from `version` to `trained`; None when `version` is not among its ancestors.

        A version above `trained` in the same lineage is no ancestor either.
        """
        lineage, newest = trained.lineage, trained.step
        while lineage != version.lineage:
            parent = self._parents.get(lineage)
            if parent is None:
                return None
            lineage, newest = parent.lineage, min(newest, parent.step)
        return trained.step - version.step if version.step <= newest else None

    def abandoned(self, trained: Version, version: Version) -> bool:
        """Whether no path leads from `version` to `trained`."""
        return self.staleness(trained, version) is None

    def oldest_staleness(self, trained: Version, versions: Iterable[Version]) -> int | None:
        """The largest staleness over `versions`, 0 of none; None when any is abandoned."""
        worst = 0
        for version in versions:
            behind = self.staleness(trained, version)
            if behind is None:
                return None
            worst = max(worst, behind)
        return worst


def too_stale(staleness: int, max_staleness: int) -> bool:
    """Whether a batch taken now may no longer hold it."""
    return staleness > max_staleness
