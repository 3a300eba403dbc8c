"""How seats spent a run's time, and why idle seats were idle. Pure.

Invariant: every second of seats x wall has exactly one cause. Time of a process that was starting, restarting or gone
is `not running`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from actors.replay.messages import Phase
from actors.replay.rules.admission import Lineages
from runtime.messaging.message import Version

Line = dict[str, Any]
Span = tuple[float, float]
BUSY = ("leasing", "setup", "observing", "generating", "acting", "verifying")  # reservation granted to verified
REPORTING, RESTING, LEDGER, ABSENT = "reporting", "at rest (quarantine)", "ledger does not answer", "not running"
CLONING, PULSE, EVALUATION, DEMOS = "cloning runs", "pulse runs", "end of an evaluation", "last demonstrations"
BEGINNING = "start of the run"  # with nothing to play: demonstrations taken in, or none at all
STEP, WEIGHTS, GROUPS = "staleness: learner's step", "staleness: weights under way", "staleness: groups under way"


class SeatTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seat seconds of a run from the first seat ready to the end of work."""

    seats: int
    wall_s: float
    busy_s: float
    stages_s: dict[str, float]  # busy seconds by stage; `generating` are the waits for the model
    idle_s: dict[str, float]  # the other seconds by cause
    busy_by_phase: dict[str, float]  # share of seats x wall within each phase

    @property
    def busy(self) -> float:
        """Share of seats x wall between a granted reservation and its verification."""
        return self.busy_s / (self.seats * self.wall_s) if self.wall_s else 0.0


class Timeline:
    """Which of its values held when. `changes` are (time, value); before the first it was `first`."""

    def __init__(self, first: str, changes: Iterable[tuple[float, str]]) -> None:
        self._times: list[float] = [float("-inf")]
        self._values: list[str] = [first]
        for moment, value in sorted(changes, key=lambda change: change[0]):
            if value != self._values[-1]:
                self._times.append(moment)
                self._values.append(value)

    def at(self, moment: float) -> str:
        """The value at a moment."""
        return self._values[bisect_right(self._times, moment) - 1]

    def split(self, span: Span) -> dict[str, float]:
        """The seconds of `span` by value."""
        start, end = span
        found: dict[str, float] = {}
        index = bisect_right(self._times, start) - 1
        while start < end:
            until = self._times[index + 1] if index + 1 < len(self._times) else end
            value, upto = self._values[index], min(until, end)
            found[value] = found.get(value, 0.0) + upto - start
            start, index = upto, index + 1
        return found


def phases(lines: Iterable[Line]) -> Timeline:
    """The run's phases."""
    return Timeline(Phase.DEMO, [(line["t"], line["phase"]) for line in lines if line["event"] == "phase_changed"])


def causes(lines: Sequence[Line]) -> Timeline:
    """Why the ledger had no work at every moment, had a seat asked for some."""
    changes: list[tuple[float, str, Any]] = [*_evaluations(lines)]
    for line in lines:
        event = line["event"]
        if event == "phase_changed":
            changes.append((line["t"], "phase", line["phase"]))
        elif event == "learner_step" and line["phase"] == Phase.RL:
            changes += [(line["t0"], "step", True), (line["t1"], "step", False), (line["t1"], "weights", True)]
        elif event == "weights_loaded":
            changes.append((line["t"], "weights", False))
    state: dict[str, Any] = {"phase": _first(lines), "step": False, "weights": False, "eval": False}
    first, found = _cause(state), []
    for moment, key, value in sorted(changes, key=lambda change: change[0]):
        state[key] = value
        found.append((moment, _cause(state)))
    return Timeline(first, found)


def _evaluations(lines: Iterable[Line]) -> Iterator[tuple[float, str, bool]]:
    """When rounds were being played: open, and with weights that an engine keeps for them.

    The ledger says nothing of a round that a resume abandons with its weights. Engines that hold one version let a
    round's go while it stands back for RL; with them it is not what seats wait for.
    """
    going: set[tuple[str, Version]] = set()
    let_go: set[Version] = set()
    parents: dict[int, Version | None] = {0: None}
    for line in lines:
        if line["event"] == "eval_round_opened":
            going.add((line["round"], Version.parse(line["version"])))
        elif line["event"] == "eval_round_closed":
            going.discard((line["round"], Version.parse(line["version"])))
        elif line["event"] == "lineage_started":
            trained = Version.parse(line["version"])
            parents[trained.lineage] = Version.parse(line["parent"])
            tree = Lineages(parents)
            going = {(name, version) for name, version in going if not tree.abandoned(trained, version)}
        elif line["event"] == "weights_unpinned":
            let_go.add(Version.parse(line["version"]))
        elif line["event"] == "weights_pinned":
            let_go.discard(Version.parse(line["version"]))
        else:
            continue
        yield line["t"], "eval", any(version not in let_go for _, version in going)


def _first(lines: Iterable[Line]) -> str:
    """The phase before the first change: none of a run that plays no demonstration in it."""
    change = next((line for line in lines if line["event"] == "phase_changed"), None)
    return "" if change is not None and change["evidence"].get("attempts") == 0 else Phase.DEMO


def _cause(state: dict[str, Any]) -> str:
    if state["eval"]:
        return EVALUATION
    if state["phase"] != Phase.RL:
        return {"": BEGINNING, Phase.DEMO: DEMOS, Phase.BC: CLONING, Phase.PULSE: PULSE}.get(state["phase"], ABSENT)
    if state["step"]:
        return STEP
    return WEIGHTS if state["weights"] else GROUPS


def seat_time(lines: Sequence[Line], seats: int = 0) -> SeatTime | None:
    """The seats' time by what they did and why they did not; None for a run without any.

    `seats` is how many there should have been, where it is known to be more than those that were ever heard of.
    """
    told = [line for line in lines if line["event"] == "seat_time"]
    if not told:
        return None
    over = [line["t"] for line in lines if line["event"] == "phase_changed" and line["phase"] == Phase.DONE]
    start, end = min(line["t0"] for line in told), over[-1] if over else max(line["t1"] for line in told)
    why, phase = causes(lines), phases(lines)
    stages = dict.fromkeys(BUSY, 0.0)
    idle: dict[str, float] = {}
    by_phase: dict[str, float] = {}
    for line in told:
        spent = dict(line["seconds"])
        waited = (line["t0"], min(line["t0"] + spent.pop("idle", 0.0), end))
        split = {LEDGER: waited[1] - waited[0]} if line["waited_for"] == "ledger" else why.split(waited)
        if line["t1"] <= end:
            split[RESTING], split[REPORTING] = spent.pop("resting", 0.0), spent.pop("reporting", 0.0)
            for stage, seconds in spent.items():
                stages[stage] = stages.get(stage, 0.0) + seconds
            busy = sum(spent.values())
            for name, seconds in phase.split(
                (line["t1"] - split[REPORTING] - busy, line["t1"] - split[REPORTING])
            ).items():
                by_phase[name] = by_phase.get(name, 0.0) + seconds
        for cause, seconds in split.items():
            idle[cause] = idle.get(cause, 0.0) + max(0.0, seconds)
    count = max(seats, len({line["actor"] for line in told}))
    wall = max(0.0, end - start)
    lasted = phase.split((start, end))
    missing = count * wall - sum(stages.values()) - sum(idle.values())
    idle[ABSENT] = idle.get(ABSENT, 0.0) + max(0.0, missing)
    return SeatTime(
        seats=count,
        wall_s=wall,
        busy_s=sum(stages.values()),
        stages_s=stages,
        idle_s={cause: idle[cause] for cause in sorted(idle, key=lambda cause: -idle[cause]) if idle[cause] > 0},
        busy_by_phase={
            name: by_phase.get(name, 0.0) / (count * seconds) for name, seconds in lasted.items() if seconds
        },
    )
