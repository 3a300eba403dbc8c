"""Collects what the page says of each run, and which runs are seeds of one deploy file.

Invariant: a run that goes on, was killed or did only part of its job gives what it has. What it has not is empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import msgspec

from actors.cluster.config import deploy_files
from actors.cluster.report import bands, episodes, history
from actors.cluster.report.curves import Stretch
from actors.cluster.report.episodes import EpisodeView
from actors.cluster.report.history import StepFigures
from actors.cluster.report.read import RunFigures, logged, read_run
from actors.cluster.runs import evaluation_rounds, ledgers, run_folder
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound
from actors.replay.database import queries
from actors.replay.messages import Phase
from runtime.messaging.message import Version

KEPT_DETAILS = 4000  # verdicts of the newest episodes; older ones are not shown whole


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One phase segment and why it began."""

    phase: str
    start: int  # optimizer step
    cause: str
    evidence: dict[str, float]


class RunData(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    state: str  # "running", "killed" or its verdict
    reason: str
    file: str
    arm: str
    seed: int | None
    started: str
    key: str  # shared by the seeds of one deploy file
    switches: list[Switch]
    rounds: list[EvaluationRound]
    gains: list[Compared]
    steps: list[StepFigures]
    figures: RunFigures
    episodes: list[EpisodeView]
    details: dict[int, str]  # token -> what the verifier saw

    def stretches(self) -> list[Stretch]:
        """Its segments as stretches of optimizer steps, those of no length left out."""
        if not self.switches:  # killed before its first segment began
            return []
        last = max((one.step for one in self.steps), default=0)
        ends = [*(switch.start for switch in self.switches[1:]), last]
        return [Stretch(s.phase, s.start, end) for s, end in zip(self.switches, ends, strict=True) if end > s.start]

    def closed(self) -> list[EvaluationRound]:
        """The rounds that were played to their end."""
        return [found for found in self.rounds if found.closed]

    def by_rl_steps(self) -> Self:
        """The same with steps of RL alone, counted from 1: what runs share that cloned or pulsed differently."""
        made = [one.step for one in self.steps if one.phase == Phase.RL]
        return msgspec.structs.replace(
            self,
            switches=[msgspec.structs.replace(one, start=bisect_right(made, one.start)) for one in self.switches],
            rounds=[msgspec.structs.replace(one, step=bisect_right(made, one.step)) for one in self.rounds],
            steps=[
                msgspec.structs.replace(one, step=bisect_right(made, one.step))
                for one in self.steps
                if one.phase == Phase.RL
            ],
        )


class Kin(Protocol):
    """What a run is called and shares with others."""

    @property
    def name(self) -> str:
        """Its own."""

    @property
    def arm(self) -> str:
        """Of an experiment, else empty."""

    @property
    def file(self) -> str:
        """The deploy file as it was named."""

    @property
    def seed(self) -> int | None:
        """What it drew its numbers from, where that is known."""

    @property
    def key(self) -> str:
        """The same for all seeds of one deploy file."""


T = TypeVar("T", bound=Kin)


class Group(msgspec.Struct, frozen=True):
    """Runs that differ in nothing but their seed."""

    label: str
    runs: list[RunData]

    @property
    def called(self) -> str:
        """`seeds`, or `runs` where a seed repeats."""
        return called([run.seed for run in self.runs])


def gather(path: Path) -> RunData:
    """Everything about the run at `path`. Raises ConfigError where there is no ledger."""
    figures = read_run(path)
    lines = logged(path, {"episode_ended"})
    record, state = record_of(path)
    rounds = evaluation_rounds.read_rounds(path)
    deploy = deploy_of(path)
    details = {line["token"]: line.get("detail", "") for line in lines}
    return RunData(
        name=path.name,
        state=state,
        reason=(record.reason if record else None) or "",
        file=record.file if record else "",
        arm=record.experiment if record else "",
        seed=record.seed if record else None,
        started=record.started if record else "",
        key=key_of(path, deploy),
        switches=_switches(path),
        rounds=rounds,
        gains=evaluation_rounds.gains(rounds),
        steps=history.read_steps(path),
        figures=figures,
        episodes=episodes.choose(path),
        details=dict(list(details.items())[-KEPT_DETAILS:]),
    )


def grouped(runs: Sequence[RunData]) -> list[Group]:
    """The runs by what they share, in the order of their first ones; labels differ."""
    return [Group(label, same) for label, same in labelled(runs).items()]


def labelled(runs: Sequence[T]) -> dict[str, list[T]]:
    """Label -> the runs that differ in nothing but their seed, in the order of the first ones."""
    by_key: dict[str, list[T]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    labels: dict[str, list[T]] = {}
    for same in by_key.values():
        first = same[0]
        label = first.arm or (Path(first.file).stem if first.file and len(same) > 1 else first.name)
        while label in labels:
            label += "'"
        labels[label] = same
    return labels


def called(seeds: Sequence[int | None]) -> str:
    """What to call several runs of these seeds: `seeds` only where each has its own."""
    return "seeds" if None not in seeds and len(set(seeds)) == len(seeds) else "runs"


def record_of(path: Path) -> tuple[run_folder.RunRecord | None, str]:
    """The record and the state of the run at `path`; a folder without a record may hold a ledger all the same."""
    if not (path / "run.json").is_file():
        return None, "unknown"
    record = run_folder.read_record(path)
    return record, run_folder.state(path, record)


def key_of(path: Path, deploy: dict[str, Any]) -> str:
    """What the run at `path` shares with the other seeds of its deploy file; its name where there is no such file."""
    return bands.key(deploy) if deploy else path.name


def deploy_of(path: Path) -> dict[str, Any]:
    """The deploy file of the run at `path`, plain and with every default written out; empty where there is none."""
    return deploy_files.stored_plain(path) if (path / deploy_files.STORED).is_file() else {}


def _switches(path: Path) -> list[Switch]:
    with ledgers.opened(path) as db:
        rows = queries.phases(db)
    return [
        Switch(
            phase=row["phase"],
            start=Version.parse(row["start"]).step,
            cause=row["cause"],
            evidence=msgspec.json.decode(row["evidence"]),
        )
        for row in rows
    ]
