"""What the log of a soaked run has said.

Invariant: counts are of all lines, each once. Lines are kept for as long as a fault may wait for its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.replay.messages import Phase
from runtime.logs.reader import LogWatch
from tests.soak import named
from tests.soak.kinds import Kind, Sign

TICK_S = 0.5
LINES_KEPT_S = 300.0  # behind the oldest fault that is waited for


class Heard:
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

    async def named(self, kind: Kind, at: float, desktop: str, *, ready: bool) -> named.Judged:
        """How the log names a fault of `at`, or that it does not within the kind's deadline."""
        while True:
            self.read()
            found = named.judged(kind, at, self._lines, desktop=desktop, ready=ready)
            if found.state is not named.LoggedState.PENDING:
                return found
            if time.monotonic() > at + kind.deadline_s:
                return named.Judged(named.LoggedState.UNNAMED, "", kind.deadline_s)
            await asyncio.sleep(TICK_S)

    async def followed(self, follows: Sequence[tuple[Sign, float]], at: float) -> tuple[list[float], str]:
        """Seconds from `at` to each line that has to follow, and what has not come in time, "" where all have.

        A line counts behind the one before it and about the same part, such as the process that was lost.
        """
        times: list[float] = []
        after, name = at, ""
        for sign, within_s in follows:
            line = await self._next(sign, after, name, at + within_s)
            if line is None:
                return times, f"{sign} within {within_s:g} s"
            after, name = float(line["t"]), str(line.get("name", ""))
            times.append(after - at)
        return times, ""

    async def _next(self, sign: Sign, after: float, name: str, deadline: float) -> dict[str, Any] | None:
        while True:
            self.read()
            for line in self._lines:
                if line["t"] >= after and sign.matches(line) and name in ("", line.get("name", "")):
                    return line
            if time.monotonic() > deadline:
                return None
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
