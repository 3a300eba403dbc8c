"""What a round of trials says of a function: accepted, or what the model is to mend. Pure.

Invariant: a case counts only where it fails on a body that does nothing, so that an accepted case can fail; and a
function only where its cases notice most of its mutants.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

NOTICED_LEAST = 0.5  # of the mutants, the empty body among them; some change nothing that shows
SLOW_MS = 500.0  # at the 95th percentile
ROUNDS_MOST = 3
PAIRS_LEAST = 3  # of turns, for an interval


class Trial(msgspec.Struct, frozen=True):
    """One round: problems of the source, then of each right case; which cases hold for nothing; mutants missed."""

    wrong: list[str] = []  # what a look at the source says
    problems: list[str] = []  # of each right case, "" where it passed
    holds_for_nothing: list[int] = []  # numbers of cases, from 1, that pass with a body that does nothing
    mutants: int = 0
    missed: list[str] = []
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    windows: int = 0  # that a call left behind

    @property
    def noticed(self) -> int:
        """How many mutants some case failed on."""
        return self.mutants - len(self.missed)


class Complaint(msgspec.Struct, frozen=True):
    """What is to be mended, and whether by the code, the cases, or one of the two as the model finds."""

    about: str  # code, cases, either
    text: str


def finding(trial: Trial) -> Complaint | None:
    """The first thing that is wrong; None where the function is accepted."""
    if trial.wrong:
        return Complaint("code", "The code is not taken: " + "; ".join(trial.wrong))
    failed = [f"case {number}: {text}" for number, text in enumerate(trial.problems, 1) if text]
    if failed:
        return Complaint("either", "\n".join(failed[:3]))
    if trial.holds_for_nothing:
        numbers = ", ".join(map(str, trial.holds_for_nothing))
        return Complaint("cases", f"case {numbers} passes although the function does nothing: it can't fail")
    if trial.mutants and trial.noticed < NOTICED_LEAST * trial.mutants:
        return Complaint("cases", "no case notices that the function " + "; ".join(trial.missed))
    if trial.p95_ms > SLOW_MS:
        return Complaint("code", f"a call takes {trial.p95_ms:.0f} ms, {SLOW_MS:.0f} is the most")
    if trial.windows:
        return Complaint("code", "a call leaves a window open")
    return None


class Weighed(msgspec.Struct, frozen=True):
    """The paired trial of a function: the same held-out tasks without it and with it; intervals are of 95 %."""

    tasks: int = 0
    solved: tuple[int, int] = (0, 0)  # without, with
    gain: tuple[float, float] = (-1.0, 1.0)  # interval of the difference in success
    turns: float = 0.0  # more turns with it, a mean over tasks that were solved both ways
    turns_within: tuple[float, float] | None = None  # None where fewer than `PAIRS_LEAST` were
    why: str = ""  # where nothing was played

    @property
    def verdict(self) -> str:
        """Whether it earns its place, costs more than it brings, or nothing shows."""
        low, high = self.turns_within or (-1.0, 1.0)
        before, after = self.solved
        if not self.tasks:
            return "not tried"
        if self.gain[0] > 0 or (after >= before and high < 0):
            return "earns its place"
        return "costs more" if self.gain[1] < 0 or (after <= before and low > 0) else "no difference shown"


class Built(msgspec.Struct, frozen=True):
    """What became of one interface."""

    name: str
    accepted: bool
    why: str  # of a dropped one
    rounds: int
    trial: Trial = Trial()
    serves: Sequence[int] = ()
    weighed: Weighed | None = None  # None without held-out tasks
