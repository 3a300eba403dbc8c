"""A programme: arms over seeds, by stages, played one run at a time at the lowest priority until the time is up.

What is played next is a function of the file, of the results that are there and of the runs' records. A run has its
keys from the file alone. Results are written when a run has ended, and are never written over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import psutil

from actors.cluster import output
from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.suggest import hint
from actors.cluster.runs import run_folder
from runtime.errors import ConfigError

CRASHES = 3  # of a run, before it is left out
GRACE_S = 180.0  # for a run that was asked to end
LOWEST = 19  # nice
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Steps = Annotated[int, msgspec.Meta(ge=1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a programme's file."""


class Arm(_Part, frozen=True, kw_only=True):
    """What differs from the other arms."""

    note: str = ""
    set: list[str] = []
    trunk: str | None = "cloned"  # that it goes on from; null begins from the model
    seed_shift: int = 0  # added to the seed that it draws with
    steps_share: Share = 1.0  # of the stage's RL steps and of those between two rounds


class ArmStage(_Part, frozen=True, kw_only=True):
    """Arms and seeds that are compared with each other. Runs of a stage before it go on."""

    name: str
    seeds: list[Count]
    arms: list[str]
    steps: Steps  # of RL
    every: Steps  # RL steps between two rounds; the learning rate has fallen before each
    rounds: Steps  # last ones, whose mean is what an arm is judged by
    best: Count = 0  # arms of the stage before that come as well
    never: list[str] = []  # arms that are none of the best


class Programme(_Part, frozen=True, kw_only=True):
    """The whole file."""

    file: str
    most_cpu_hours: Annotated[float, msgspec.Meta(gt=0)]
    base: str  # the arm that the others are compared with
    set: list[str] = []
    trunks: dict[str, list[str]] = {}
    arms: dict[str, Arm]
    stages: list[ArmStage]


class ProgrammeRun(NamedTuple):
    """One run: a trunk's, or a stage's arm with a seed."""

    stage: str  # "trunk" of a trunk
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """Of its run and of its file of figures."""
        return f"{self.stage}-{self.arm}-{self.seed}"


TRUNK = "trunk"


def load(path: Path) -> Programme:
    """The programme in file `path`. Raises ConfigError naming the key."""
    found = typed_yaml.build(typed_yaml.plain(path, str(path)), Programme, source=str(path))
    known = [*found.arms]
    named = [("base", found.base), *((f"stages.{one.name}.arms", arm) for one in found.stages for arm in one.arms)]
    named += [(f"stages.{one.name}.never", arm) for one in found.stages for arm in one.never]
    for key, wanted in named:
        if wanted not in found.arms:
            raise ConfigError(f"{path}: {key}: {wanted}: no such arm; {hint(wanted, known)}")
    for name, one in found.arms.items():
        if one.trunk is not None and one.trunk not in found.trunks:
            raise ConfigError(f"{path}: arms.{name}.trunk: {one.trunk}: no such trunk; {hint(one.trunk, found.trunks)}")
    for stage in found.stages:
        for arm in stage.arms:  # what a run would refuse is refused before the first one
            deploy_files.load(found.file, overrides(found, ProgrammeRun(stage.name, arm, 0)))
    return found


def overrides(programme: Programme, cell: ProgrammeRun) -> list[str]:
    """The keys of a run, later ones over earlier ones."""
    if cell.stage == TRUNK:
        return [*programme.set, *programme.trunks[cell.arm], f"run.seed={cell.seed}"]
    arm, stage = programme.arms[cell.arm], next(one for one in programme.stages if one.name == cell.stage)
    steps, every = round(stage.steps * arm.steps_share), round(stage.every * arm.steps_share)
    return [
        *programme.set,
        f"entropulse.total_rl_steps={steps}",
        f"evaluation.interval={every}",
        f"learner.rl.lr_cycle_steps={every}",
        *arm.set,
        f"run.seed={cell.seed + arm.seed_shift}",
    ]


def origin(programme: Programme, cell: ProgrammeRun, runs: Path) -> ProgrammeRun | None:
    """The run that a run goes on from: its own of a stage before, else its arm's trunk; None: from none."""
    arm = programme.arms.get(cell.arm)
    if cell.stage == TRUNK or arm is None or arm.trunk is None:
        return None
    for stage in programme.stages:
        before = ProgrammeRun(stage.name, cell.arm, cell.seed)
        if stage.name == cell.stage:
            break
        if run_folder.is_run(runs / before.name) and run_folder.read_record(runs / before.name).has_ended:
            return before
    return ProgrammeRun(TRUNK, arm.trunk, cell.seed)


def cells(programme: Programme, stage: ArmStage, best: Sequence[str], runs: Path) -> Iterator[ProgrammeRun]:
    """The runs of a stage in the order of play, each after what it goes on from."""
    for seed in stage.seeds:
        for arm in dict.fromkeys([*stage.arms, *best]):
            cell = ProgrammeRun(stage.name, arm, seed)
            before = origin(programme, cell, runs)
            if before is not None and before.stage == TRUNK:
                yield before
            yield cell


def words(programme: Programme, cell: ProgrammeRun, runs: Path) -> list[str]:
    """The command that begins a run, or goes on with it."""
    if run_folder.is_run(runs / cell.name):
        return ["run", programme.file, "--resume", "--name", cell.name, "--runs", str(runs)]
    before = origin(programme, cell, runs)
    sets = [word for one in overrides(programme, cell) for word in ("--set", one)]
    since = [] if before is None else ["--from", before.name]
    return ["run", programme.file, "--name", cell.name, "--runs", str(runs), *since, *sets]


def left_out(run: Path) -> str:
    """Why the run at `run` is not tried again now; "" where it is."""
    if not run_folder.is_run(run):
        return ""
    if run_folder.owner(run) is not None:
        return "another process plays it"
    record = run_folder.read_record(run)
    if record.verdict == "crashed" and record.crashes + 1 >= CRASHES:
        return f"it crashed {CRASHES} times: {record.reason}"
    return ""


def in_background() -> None:
    """Let all else on the machine go first, also of what is started from here, and end by a signal as by Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell has its background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    os.nice(LOWEST - os.nice(0))
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def play(command: Sequence[str], until: float) -> bool:
    """Run `command` of this program to its end, or ask it to end at monotonic moment `until`; whether it ended by
    itself. An interruption of this process ends it likewise, and is raised."""
    line = [sys.executable, "-P", "-m", "actors.cluster.cli", *command]
    # In a session of its own: an interruption of the terminal reaches it once, from here.
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True) as child:
        try:
            child.wait(timeout=max(0.0, until - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            output.news("the time is up: the run is asked to end")
            return False
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
