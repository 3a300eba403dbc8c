"""What the log of a soaked run says, and whether it names a fault that was injected.

A fault of one desktop is named only by a line about that very desktop or its holder. Counts are of all lines.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from actors.replay.messages import Phase
from runtime.logs.reader import LogWatch
from tests.soak.faults import DIED, OUTCOME, UNBORN, Kind, Line


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


def judged(kind: Kind, at: float, lines: Sequence[Line], *, desktop: str, ready: bool) -> Judged:
    """What `lines` say of a fault of `kind` injected at `at` (monotonic seconds).

    `desktop` is the one that was hit, "" for other parts; `ready` is False for one that was still booting.
    """
    later = [line for line in lines if line["t"] >= at]
    if not desktop:
        sign = next((line for line in later if any(sign.matches(line) for sign in kind.signs)), None)
        return Judged(LoggedState.PENDING) if sign is None else _named(kind, sign, at)
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


TICK_S = 0.5
LINES_KEPT_S = 300.0  # behind the oldest fault that is waited for


class RunLog:
    """The lines of a run, as they come."""

    def __init__(self, run: Path) -> None:
        self._watch = LogWatch(run)
        self._lines: list[dict[str, Any]] = []  # the newest; pruned by time
        self.booted: set[str] = set()  # desktops that have answered, less those that are gone
        self.counts: Counter[str] = Counter()  # of episodes, by reason or cause
        self.warnings: Counter[str] = Counter()  # and errors, by event
        self.rl_steps = 0
        self.in_rl = False

    def read(self) -> None:
        """Take in what is new."""
        new = self._watch.new()
        for line in new:
            self._count(line)
        self._lines += new
        oldest = time.monotonic() - LINES_KEPT_S
        if self._lines and self._lines[0]["t"] < oldest - 60.0:
            self._lines = [line for line in self._lines if line["t"] >= oldest]

    def close(self) -> None:
        """Read the rest and close the log."""
        self.read()
        self._watch.close()

    async def named(self, kind: Kind, at: float, desktop: str, *, ready: bool) -> Judged:
        """How the log names a fault of `at`, or that it does not within the kind's deadline."""
        while True:
            self.read()
            verdict = judged(kind, at, self._lines, desktop=desktop, ready=ready)
            if verdict.state is not LoggedState.PENDING:
                return verdict
            if time.monotonic() > at + kind.deadline_s:
                return Judged(LoggedState.UNNAMED, "", kind.deadline_s)
            await asyncio.sleep(TICK_S)

    def _count(self, line: dict[str, Any]) -> None:
        match event := line["event"]:
            case "desktop_booted":
                self.booted.add(line["desktop"])
            case "desktop_gone":
                self.booted.discard(line["desktop"])
            case "episode_ended":
                self.counts[f"ended: {line['reason']}"] += 1
            case "episode_faulted":
                self.counts[f"faulted: {line['cause']}"] += 1
            case "learner_step" if line["phase"] == Phase.RL:
                self.rl_steps += 1
            case "phase_changed" if line["phase"] == Phase.RL:
                self.in_rl = True
        if line["level"] in ("warning", "error"):
            self.warnings[event] += 1
