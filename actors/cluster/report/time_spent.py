"""How a run spent its time: its seats, the machines' processors, and the desktops that were up. Pure.

Every second of seats x wall has exactly one cause; time of a process that was starting, restarting or gone is `not
running`. Shares of a processor are of all cores of the entry point's machine over the observed time. A guest is counted
when its desktop goes, so desktops that are still up at the end are missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from actors.desktop.providers.sandbox.owners import owner_of
from actors.replay.messages import Phase
from actors.replay.rules.admission import Lineages
from runtime.messaging.message import Version

Line = dict[str, Any]
Span = tuple[float, float]
BUSY = ("leasing", "setup", "observing", "generating", "acting", "verifying")  # reservation granted to verified
REPORTING, RESTING, LEDGER, ABSENT = "reporting", "at rest (quarantine)", "ledger does not answer", "not running"
CLONING, PULSE, EVALUATION, DEMOS = "cloning runs", "pulse runs", "end of an evaluation", "last demonstrations"
ALONE = "evaluation"  # the phase of a run that only plays a round
BEGINNING = "start of the run"  # with nothing to play: demonstrations taken in, or none at all
STEP, WEIGHTS, GROUPS = "staleness: learner's step", "staleness: weights under way", "staleness: groups under way"
GUESTS, OTHERS = "desktops' guests", "other programs"
UNKNOWN = "desktops' guests (not separable here) and other programs"
EVENTS = frozenset(
    (
        "cpu_used", "desktop_gone", "episode_ended", "eval_round_closed", "eval_round_opened",
        "host_started", "learner_step", "lineage_started", "phase_changed", "seat_time",
        "weights_loaded",
    )
)  # fmt: skip


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
        return self._values[bisect_right(self._times, moment) - 1]

    def split(self, span: Span) -> dict[str, float]:
        """The seconds of `span` by value."""
        start, end = span
        parts = defaultdict[str, float](float)
        index = bisect_right(self._times, start) - 1
        while start < end:
            until = min(self._times[index + 1], end) if index + 1 < len(self._times) else end
            parts[self._values[index]] += until - start
            start, index = until, index + 1
        return dict(parts)


def phases(lines: Sequence[Line]) -> Timeline:
    """The run's phases."""
    changes = [(line["t"], line["phase"]) for line in lines if line["event"] == "phase_changed"]
    return Timeline(_first(lines) or Phase.DEMO, changes)


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
    first, later = _cause(state), []
    for moment, key, value in sorted(changes, key=lambda change: change[0]):
        state[key] = value
        later.append((moment, _cause(state)))
    return Timeline(first, later)


def _evaluations(lines: Iterable[Line]) -> Iterator[tuple[float, str, bool]]:
    """When rounds were being played. The ledger logs nothing of a round that a resume abandons with its weights."""
    going: set[tuple[str, Version]] = set()
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
        else:
            continue
        yield line["t"], "eval", bool(going)


def _first(lines: Sequence[Line]) -> str:
    """The phase that the first change leaves: "" where no demonstration was played in it, or that of a round alone."""
    change = next((line for line in lines if line["event"] == "phase_changed"), None)
    if change is None:
        return ALONE if any(line["event"] == "eval_round_opened" for line in lines) else Phase.DEMO
    return "" if change["evidence"].get("attempts") == 0 else change["before"]


def _cause(state: dict[str, Any]) -> str:
    if state["eval"]:
        return EVALUATION
    if state["phase"] != Phase.RL:
        why = {"": BEGINNING, ALONE: EVALUATION, Phase.DEMO: DEMOS, Phase.BC: CLONING, Phase.PULSE: PULSE}
        return why.get(state["phase"], ABSENT)
    if state["step"]:
        return STEP
    return WEIGHTS if state["weights"] else GROUPS


def seat_time(lines: Sequence[Line], seats: int = 0) -> SeatTime | None:
    """The seats' time by what they did and why they did not; None for a run without any.

    `seats` is how many there should have been, where it is known to be more than those that were ever heard of.
    """
    reports = [line for line in lines if line["event"] == "seat_time"]
    if not reports:
        return None
    over = [line["t"] for line in lines if line["event"] == "phase_changed" and line["phase"] == Phase.DONE]
    start = min(line["t0"] for line in reports)
    end = over[-1] if over else max(line["t1"] for line in reports)
    why, phase = causes(lines), phases(lines)
    stages: Any = Counter(dict.fromkeys(BUSY, 0.0))
    by_phase, idle = Counter[str](), defaultdict[str, float](float)
    for line in reports:
        spent = dict(line["seconds"])
        waited = (line["t0"], min(line["t0"] + spent.pop("idle", 0.0), end))
        split = {LEDGER: waited[1] - waited[0]} if line["waited_for"] == "ledger" else why.split(waited)
        if line["t1"] <= end:
            split[RESTING], split[REPORTING] = spent.pop("resting", 0.0), spent.pop("reporting", 0.0)
            stages.update(spent)
            done = line["t1"] - split[REPORTING]
            by_phase.update(phase.split((done - sum(spent.values()), done)))
        for cause, seconds in split.items():
            idle[cause] += max(0.0, seconds)
    count, wall = max(seats, len({line["actor"] for line in reports})), max(0.0, end - start)
    busy_s = sum(stages.values())
    idle[ABSENT] += max(0.0, count * wall - busy_s - sum(idle.values()))
    lasted = phase.split((start, end))
    return SeatTime(
        seats=count,
        wall_s=wall,
        busy_s=busy_s,
        stages_s=dict(stages),
        idle_s={cause: seconds for cause, seconds in _most_first(idle).items() if seconds > 0},
        busy_by_phase={name: by_phase[name] / (count * seconds) for name, seconds in lasted.items() if seconds},
    )


class MachineTime(msgspec.Struct, frozen=True, kw_only=True):
    """Processor seconds by part and desktops over time."""

    cores: int
    span_s: float  # over which processor time was looked at
    cpu_s: dict[str, float]  # by part, with OTHERS or UNKNOWN for what is not known to be of this run
    elsewhere_s: dict[str, float] = {}  # by part, on other machines
    desktops: int  # used up
    by_phase_s: dict[str, float] = {}  # processor seconds of this run alone, by the phase they fell into

    @property
    def own_s(self) -> float:
        """Processor seconds of this run alone."""
        here = sum(seconds for part, seconds in self.cpu_s.items() if part not in (OTHERS, UNKNOWN))
        return here + sum(self.elsewhere_s.values())

    def share(self, part: str) -> float:
        """Of all cores over the span."""
        return self.cpu_s.get(part, 0.0) / (self.cores * self.span_s) if self.span_s else 0.0


def machine_time(lines: Sequence[Line]) -> MachineTime | None:
    """Sum up; None for a run that logged no processor time."""
    looks = [line for line in lines if line["event"] == "cpu_used"]
    if not looks:
        return None
    span = sum(line["span_s"] for line in looks)
    cpu, away = (_summed(line.get(name, {}) for line in looks) for name in ("seconds", "elsewhere"))  # by part
    gone = {line["desktop"]: line for line in lines if line["event"] == "desktop_gone"}
    guests_s, far_s = _guests_s(lines, gone)
    uncounted = bool(gone) and not guests_s and not far_s  # no control groups that count what they use
    if not uncounted:
        cpu[GUESTS] = guests_s
        away |= {GUESTS: far_s} if far_s else {}
    cpu[UNKNOWN if uncounted else OTHERS] = max(0.0, sum(line["machine_s"] for line in looks) - sum(cpu.values()))
    return MachineTime(
        cores=looks[-1]["cores"],
        span_s=span,
        cpu_s=_most_first(cpu),
        elsewhere_s=_most_first(away),
        desktops=len(gone),
        by_phase_s=_by_phase(lines, looks, gone.values()),
    )


def _guests_s(lines: Sequence[Line], gone: Mapping[str, Line]) -> tuple[float, float]:
    """Processor seconds of guests of the entry point's machine, and of those whose process was on another one.

    A number of a process tells nothing by itself: another machine counts its own, and a run has several lives.
    """
    here = {line["namespace"] for line in lines if line["event"] == "cpu_used" and "namespace" in line}
    elsewhere = {
        line["pid"]
        for line in lines
        if line["event"] == "host_started" and line.get("elsewhere") and line["name"].startswith("desktops/")
    }
    here_s = far_s = 0.0
    for name, line in gone.items():
        owner = owner_of(name)
        if owner is not None and owner.pid in elsewhere and owner.namespace not in here:
            far_s += line["cpu_s"]
        else:
            here_s += line["cpu_s"]
    return here_s, far_s


def _summed(spans: Iterable[Mapping[str, float]]) -> dict[str, float]:
    summed: Any = Counter()
    for span in spans:
        summed.update(span)
    return dict(summed)


def _most_first(seconds: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda pair: -pair[1]))


def _by_phase(lines: Sequence[Line], looks: Sequence[Line], gone: Iterable[Line]) -> dict[str, float]:
    """A look's seconds are shared out by the time of each phase in it; a desktop's fall where it was used up."""
    when, parts = phases(lines), defaultdict[str, float](float)
    for line in looks:
        used, span_s = sum(line["seconds"].values()) + sum(line.get("elsewhere", {}).values()), line["span_s"]
        for phase, seconds in when.split((line["t"] - span_s, line["t"])).items():
            parts[phase] += used * seconds / span_s
    for line in gone:
        parts[when.at(line["t"])] += line["cpu_s"]
    return dict(parts)
