"""State machine of a GPU that the learner and one engine use in turns. Pure.

Order: the sampler drains requests, pauses the engine and releases its memory; the learner computes; the engine resumes
its memory, continues, loads the newest weights, and requests reach it again.

The learner computes only while the engine holds no memory of the card. An engine starts, loads and draws in its own
turn alone. Where the learner is lost, the card stays as it is until its successor says whose it is.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Held(StrEnum):
    """What the engine holds of the GPU's memory."""

    NONE = "none"  # there is no process
    STARTING = "starting"
    AWAKE = "awake"
    PAUSED = "paused"  # all of its memory, and it computes nothing
    ASLEEP = "asleep"  # its weights lie in the host's memory


# What the engine becomes next, by whose turn it is (True is the learner's) and what it has.
_NEXT = {
    (False, Held.NONE): Held.STARTING,
    (True, Held.AWAKE): Held.PAUSED,
    (True, Held.PAUSED): Held.ASLEEP,
    (False, Held.ASLEEP): Held.PAUSED,
    (False, Held.PAUSED): Held.AWAKE,
}


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """Whose turn it is, as one sampler knows it."""

    learner: bool = True  # whether the card is to be the learner's
    turn: str = ""  # the learner's last; what names another one is late
    engine: Held = Held.NONE

    @property
    def due(self) -> Held | None:
        return _NEXT.get((self.learner, self.engine))

    @property
    def free(self) -> bool:
        """Whether the learner may compute."""
        return self.learner and self.engine in (Held.NONE, Held.ASLEEP)

    def asked_to_sleep(self, turn: str) -> Turns:
        """Begins the learner's turn `turn`. A request for a turn that has ended changes nothing."""
        over = not self.learner and self.turn == turn
        return self if over else msgspec.structs.replace(self, learner=True, turn=turn)

    def asked_to_wake(self, turn: str) -> Turns:
        """Ends the learner's turn `turn`. A sampler that knows no turn yet, after its start, accepts any name."""
        return msgspec.structs.replace(self, learner=False, turn=turn) if self.turn in ("", turn) else self

    def became(self, after: Held, before: Held) -> Turns:
        """Moves the engine from `before` to `after`; changes nothing if the engine was lost meanwhile."""
        return msgspec.structs.replace(self, engine=after) if self.engine is before else self

    def lost(self) -> Turns:
        """The engine's process has ended, and its memory is free."""
        return msgspec.structs.replace(self, engine=Held.NONE)
