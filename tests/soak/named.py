"""Whether the log names a fault that was injected. Pure.

Invariant: a fault of one desktop is named only by a line about that very desktop or its holder. Lines of another seat
at the same time count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tests.soak.kinds import DIED, OUTCOME, UNBORN, Kind, Line


class LoggedState(StrEnum):
    """What the log says of a fault."""

    PENDING = "pending"
    NAMED = "named"
    MOOT = "moot"  # the desktop's episode was over when the fault came: nothing was broken
    UNNAMED = "unnamed"  # the deadline passed, or it was called something else


class Judged(msgspec.Struct, frozen=True):
    """The state, and the line that decided it."""

    state: LoggedState
    sign: str = ""
    after_s: float = 0.0


def judged(kind: Kind, at: float, lines: Sequence[Line], *, desktop: str = "", ready: bool = True) -> Judged:
    """What `lines` say of a fault of `kind` injected at `at` (monotonic seconds).

    `desktop` is the one that was hit, "" for other parts; `ready` is False for one that was still booting.
    """
    later = [line for line in lines if line["t"] >= at]
    if not desktop:
        found = next((line for line in later if any(sign.matches(line) for sign in kind.signs)), None)
        return Judged(LoggedState.PENDING) if found is None else _named(kind, found, at)
    for line in later:
        if DIED.matches(line) and line["desktop"] == desktop:
            return _named(kind, line, at)
        if UNBORN.matches(line) and not ready:
            return _named(kind, line, at)
    holder = next(
        (line["holder"] for line in later if line["event"] == "desktop_gone" and line["desktop"] == desktop), ""
    )
    end = next(
        (
            line
            for line in later
            if holder and line["actor"] == holder and line["event"] in ("episode_ended", "episode_faulted")
        ),
        None,
    )
    if end is None:
        return Judged(LoggedState.PENDING)
    if any(sign.matches(end) for sign in kind.signs):
        return _named(kind, end, at)
    if end["event"] == "episode_ended" and kind.signs != OUTCOME:
        return Judged(LoggedState.MOOT, f"episode_ended reason={end['reason']}", end["t"] - at)
    return Judged(LoggedState.UNNAMED, f"{end['event']} cause={end.get('cause', '')}", end["t"] - at)


def _named(kind: Kind, line: Line, at: float) -> Judged:
    sign = next((str(sign) for sign in kind.signs if sign.matches(line)), str(line["event"]))
    return Judged(LoggedState.NAMED, sign, line["t"] - at)
