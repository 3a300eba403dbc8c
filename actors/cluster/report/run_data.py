"""What a report knows of a run: read from its ledger and logs while it runs or after, or from a file of its figures.

Invariant: the ledger is opened read-only. A file of figures holds no episode; a damaged or unknown one is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from actors.cluster import paths as places
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.report.time_spent import EVENTS, MachineTime, SeatTime, machine_time, seat_time
from actors.cluster.runs import evaluation_rounds, ledgers, run_folder
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound
from actors.replay.database import queries
from actors.replay.messages import Phase
from runtime import disk
from runtime.errors import ConfigError
from runtime.logs.reader import in_a_row, read_logs
from runtime.logs.writer import log_folder
from runtime.messaging.message import Version

SUFFIX = ".figures.gz"
FORMAT = 2  # format 1 had a part of the figures below `figures`, and an empty list as `episodes`
DIGITS = 6  # of a step's figures: they are drawn, not computed with
MOST_BYTES = 64 << 20  # unpacked

# What changes nothing of what a run learns: what it is asked to reach, how long it may take, where its seed's
# demonstrations come from, and how soon a round is over.
_ASIDE = (
    ("run", ("seed", "require", "limit_s", "log_level")),
    ("demos", ("source",)),
    ("evaluation", ("rollout_share",)),
)


class Stretch(NamedTuple):
    """A phase segment, in optimizer steps."""

    phase: str
    start: int
    end: int


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One phase segment and why it began."""

    phase: str
    start: int  # optimizer step
    cause: str
    evidence: dict[str, float]


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step that no resume has undone."""

    step: int
    phase: str
    figures: dict[str, float]  # names as in `learner_step` and `rl_evidence`; `success` of training episodes
    staleness: dict[int, int] = {}  # optimizer steps -> trajectories of the batch


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    state: str  # "running", "killed" or its verdict
    reason: str
    file: str
    experiment: str = msgspec.field(name="arm")  # the name that runs of several seeds share; "" for a run of its own
    seed: int | None
    started: str
    key: str  # shared by the seeds of one deploy file
    switches: list[Switch]
    trials: list[Switch] = []  # of pulses: their beginnings and verdicts, those of undone trials too
    rounds: list[EvaluationRound]
    gains: list[Compared]  # from the first to the last round of each decoding
    steps: list[StepFigures]
    endings: dict[str, int]  # how groups ended
    episodes: dict[str, int]  # by lane
    seats: SeatTime | None = None  # None for a run whose seats reported nothing
    machine: MachineTime | None = None
    observations: queries.Observations = queries.FIRST_OBSERVATION  # versions that its desktops showed, smallest first

    def stretches(self) -> list[Stretch]:
        """Its segments as stretches of optimizer steps, those of no length left out."""
        if not self.switches:  # killed before its first segment began
            return []
        last = max((step.step for step in self.steps), default=0)
        ends = [*(switch.start for switch in self.switches[1:]), last]
        return [Stretch(s.phase, s.start, end) for s, end in zip(self.switches, ends, strict=True) if end > s.start]

    def by_rl_steps(self) -> Self:
        """The same with steps of RL alone, counted from 1: what runs share that cloned or pulsed differently."""
        change, rl = msgspec.structs.replace, [step for step in self.steps if step.phase == Phase.RL]
        made = [step.step for step in rl]
        return change(
            self,
            switches=[change(switch, start=bisect_right(made, switch.start)) for switch in self.switches],
            rounds=[change(played, step=bisect_right(made, played.step)) for played in self.rounds],
            steps=[change(step, step=number) for number, step in enumerate(rl, 1)],
        )


def series(steps: Iterable[StepFigures], name: str, phase: str | None = None) -> dict[int, float]:
    """The curve of a figure, within one phase or over all."""
    mine = (step for step in steps if name in step.figures and phase in (None, step.phase))
    return {step.step: step.figures[name] for step in mine}


def read_run(path: Path) -> RunFigures:
    """The run in the folder `path`. Raises ConfigError where there is no ledger that can be read."""
    with ledgers.opened(path) as db:
        switches, trials = ([_switch(row) for row in rows] for rows in (queries.phases(db), queries.trials(db)))
        rounds = evaluation_rounds.rounds_of(db)
        steps = queries.steps(db)
        endings, episodes = queries.group_endings(db), queries.episodes_by_lane(db)
        observations = queries.observations_of_episodes(db)
    lines = logged(path)
    seats = seat_time(lines)
    # A folder without a record may hold a ledger all the same.
    record = run_folder.read_record(path) if run_folder.is_run(path) else None
    deploy = deploy_of(path)
    return RunFigures(
        name=path.name,
        state=run_folder.state(path, record) if record else "unknown",
        reason=(record.reason if record else None) or "",
        file=record.file if record else "",
        experiment=record.experiment if record else "",
        seed=record.seed if record else None,
        started=record.started if record else "",
        key=key_of(deploy) if deploy else path.name,
        switches=switches,
        trials=trials,
        rounds=rounds,
        gains=evaluation_rounds.gains(rounds),
        steps=[_step(row) for row in steps],
        endings=endings,
        episodes=episodes,
        seats=seats,
        machine=machine_time(lines),
        observations=observations,
    )


def logged(path: Path) -> list[dict[str, Any]]:
    """The log lines that figures are made of, without the time in which the run was stopped."""
    if not log_folder(path).is_dir():
        return []
    return [line for line in in_a_row(read_logs(path)) if line["event"] in EVENTS]


def deploy_of(path: Path) -> dict[str, Any]:
    """The deploy file of the run at `path`, plain and with every default written out; empty where there is none."""
    return deploy_files.stored_plain(path) if (path / deploy_files.STORED).is_file() else {}


def key_of(deploy: Mapping[str, Any]) -> str:
    """What runs of one deploy file share whatever their seed: a digest of what in it differs from the defaults.

    A key that a later build adds, at its default, leaves the digest of older runs as it was.
    """
    plain, usual = (msgspec.json.decode(msgspec.json.encode(part)) for part in (deploy, Deploy()))
    for part, names in _ASIDE:
        for name in names:
            plain.get(part, {}).pop(name, None)
    changed = _changed(plain, usual)
    return hashlib.blake2b(msgspec.json.encode(changed, order="sorted"), digest_size=8).hexdigest()


def _changed(values: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, value in values.items():
        usual = default.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            if inner := _changed(value, usual):
                changed[name] = inner
        elif name not in default or value != usual:
            changed[name] = value
    return changed


def _switch(row: queries.Row) -> Switch:
    evidence = msgspec.json.decode(row["evidence"])
    return Switch(phase=row["phase"], start=Version.parse(row["start"]).step, cause=row["cause"], evidence=evidence)


def _step(row: queries.Row) -> StepFigures:
    staleness = msgspec.json.decode(row["body"] or "{}").get("staleness", {})
    return StepFigures(
        step=Version.parse(row["made"]).step,
        phase=row["phase"],
        figures={name: float(f"{n:.{DIGITS}g}") for name, n in queries.figures_of(row).items()},
        staleness={int(age): n for age, n in staleness.items()},
    )


def packed(run: RunFigures) -> bytes:
    """The content of the run's file of figures; the same for the same run."""
    return gzip.compress(msgspec.json.encode({"form": FORMAT, "run": run}), mtime=0)


class _File(msgspec.Struct, frozen=True):
    form: int
    run: dict[str, msgspec.Raw]


def read_file(path: Path) -> RunFigures:
    """The run whose figures the file `path` holds. Raises ConfigError."""
    try:
        with disk.opened(path) as opened, gzip.open(opened) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{path}: more than {MOST_BYTES >> 20} MiB unpacked, which no run's figures are")
        stored = msgspec.json.decode(content, type=_File)
        if stored.form not in (1, FORMAT):
            read = f"this build reads 1 and {FORMAT}: write them again"
            raise ConfigError(f"{path}: figures of format {stored.form}, {read}")
        plain = stored.run
        if stored.form == 1:
            plain |= msgspec.json.decode(plain.get("figures", b"{}"), type=dict[str, msgspec.Raw])
        run = msgspec.json.decode(msgspec.json.encode(plain), type=RunFigures)
        places.refuse_bad_name(run.name, f"{path} of a run named")
        return run
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: no file of a run's figures: {error}") from None


def files_near(path: Path) -> list[str]:
    """The files of figures in the folder of `path`."""
    return [str(path.with_name(file.name)) for file in sorted(path.parent.glob(f"*{SUFFIX}"))]
