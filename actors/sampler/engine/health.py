"""Whether an engine may be asked, and for which weights. Pure.

DEAD: nothing is known to answer. STALE: the engine answers, with weights not yet known to be the right ones. HEALTHY:
the engine answered, said afterwards that it holds the weights, and computed with them what the learner does.

Invariant: a request goes only to an engine whose weights were read back in its present life, and were not found wrong.
A streak of failures ends only when the engine has answered a request.

A transition is missing on purpose: nothing leads from DEAD to HEALTHY. An engine that comes back may hold any
weights, such as those that it was started with. Samples drawn from unknown weights are worse than none. HEALTHY stays
HEALTHY while newer weights are on their way: the old ones are known, and staleness is bounded elsewhere.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from runtime.messaging.message import Version


class EngineState(StrEnum):
    """What is known of the engine."""

    DEAD = "dead"
    STALE = "stale"
    HEALTHY = "healthy"


class Answered(msgspec.Struct, frozen=True):
    """The engine generated something."""


class ReadBack(msgspec.Struct, frozen=True):
    """The engine said which weights it holds; None for a name that is no version.

    `sound` is false when the canary prompt's log-probabilities are not the learner's. `asked` is what it was to load,
    which newer weights may have overtaken as the target.
    """

    version: Version | None
    sound: bool = True
    asked: Version | None = None


class Targeted(msgspec.Struct, frozen=True):
    """The engine is to hold `version` from now on; an older one than before only when it is `exact`."""

    version: Version
    exact: bool = False


class LoadRefused(msgspec.Struct, frozen=True):
    """`version` can't be loaded: the target falls back to what is served."""

    version: Version


class EngineLost(msgspec.Struct, frozen=True):
    """The process ended or the connection broke."""


class Succeeded(msgspec.Struct, frozen=True):
    """The engine answered a request of an episode: more than a probe after its start shows."""


Event = Answered | ReadBack | Targeted | LoadRefused | EngineLost | Succeeded


class EngineHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. `served` is set exactly while HEALTHY."""

    state: EngineState = EngineState.DEAD
    target: Version
    served: Version | None = None
    losses: int = 0  # lives that ended, since the beginning
    streak: int = 0  # failures since it last answered a request

    def after(self, event: Event) -> EngineHealth:
        """The state after `event`."""
        match event:
            case Answered():
                return (
                    msgspec.structs.replace(self, state=EngineState.STALE) if self.state is EngineState.DEAD else self
                )
            case ReadBack(version, sound):
                return self._read_back(version, sound, event.asked)
            case Targeted(version, exact):
                return msgspec.structs.replace(self, target=version if exact else max(self.target, version))
            case LoadRefused(version):
                if self.served is None or version != self.target:
                    return self
                return msgspec.structs.replace(self, target=self.served)
            case EngineLost():
                losses = self.losses + (self.state is not EngineState.DEAD)
                return EngineHealth(target=self.target, losses=losses, streak=self.streak + 1)
            case Succeeded():
                return msgspec.structs.replace(self, streak=0) if self.state is EngineState.HEALTHY else self

    def _read_back(self, version: Version | None, sound: bool, asked: Version | None) -> EngineHealth:
        if self.state is EngineState.DEAD:
            return self
        if not sound:
            return msgspec.structs.replace(self, state=EngineState.STALE, served=None)
        if version is not None and version in (self.target, asked):
            return msgspec.structs.replace(self, state=EngineState.HEALTHY, served=version)
        if self.state is EngineState.HEALTHY and version == self.served:
            return self  # the new weights have not arrived yet
        return msgspec.structs.replace(self, state=EngineState.STALE, served=None)
