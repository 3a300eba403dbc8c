"""Plays a plan: arms over seeds, one run at a time at the lowest priority until the time is up.

`make programme HOURS=2.5` plays what is missing of deploy/entropulse.yaml. What is played next is a function of the
file, of the results that are there and of the runs' records. Figures of a run that has ended go to `results/NAME`
next to a file NAME.yaml, and one table with intervals into `results/NAME.md`. Results are never written over.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from actors.cluster import output
from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.suggest import hint
from actors.cluster.report import run_data
from actors.cluster.report.run_data import SUFFIX, RunFigures
from actors.cluster.runs import run_folder
from runtime.errors import ConfigError
from tests.bench.programme_results import (
    TRUNK,
    ArmStage,
    Programme,
    ProgrammeRun,
    probe_tables,
    results,
    slim,
    spent_hours,
    table,
    write_page,
)

CRASHES = 3  # of a run, before it is left out
GRACE_S = 180.0  # for a run that was asked to end
LOWEST = 19  # nice


def load(path: Path) -> Programme:
    """The programme in file `path`. Raises ConfigError naming the key."""
    plan = typed_yaml.build(typed_yaml.plain(path, str(path)), Programme, source=str(path))
    arms = [plan.base, *(arm for stage in plan.stages for arm in (*stage.arms, *stage.once))]
    trunks = [arm.trunk for arm in plan.arms.values()]
    for name, known in (*((arm, plan.arms) for arm in arms), *((trunk, plan.trunks) for trunk in trunks)):
        if name not in known:
            raise ConfigError(f"{path}: {name}: no such arm or trunk; {hint(name, known)}")
    for stage in plan.stages:
        for arm in (*stage.arms, *stage.once):  # what a run would refuse is refused before the first one
            deploy_files.load(plan.file, overrides(plan, ProgrammeRun(stage.name, arm, 0)))
    return plan


def overrides(programme: Programme, cell: ProgrammeRun) -> list[str]:
    """The keys of a run, later ones over earlier ones."""
    if cell.stage == TRUNK:
        return [*programme.set, *programme.trunks[cell.arm], f"run.seed={cell.seed}"]
    arm, stage = programme.arms[cell.arm], next(one for one in programme.stages if one.name == cell.stage)
    return [
        *programme.set,
        f"entropulse.total_rl_steps={stage.steps}",
        f"evaluation.interval={stage.every}",
        f"learner.rl.lr_cycle_steps={stage.every}",
        *arm.set,
        f"run.seed={cell.seed + arm.seed_shift}",
    ]


def origin(programme: Programme, cell: ProgrammeRun) -> ProgrammeRun | None:
    """The trunk that a run goes on from; None of a trunk."""
    return None if cell.stage == TRUNK else ProgrammeRun(TRUNK, programme.arms[cell.arm].trunk, cell.seed)


def cells(stage: ArmStage) -> list[ProgrammeRun]:
    """The runs of a stage in the order of play."""
    arms = {seed: [*stage.arms, *(stage.once if seed == stage.seeds[0] else [])] for seed in stage.seeds}
    return [ProgrammeRun(stage.name, arm, seed) for seed in arms for arm in arms[seed]]


def words(programme: Programme, cell: ProgrammeRun, runs: Path) -> list[str]:
    """The command that begins a run, or goes on with it."""
    if run_folder.is_run(runs / cell.name):
        return ["run", programme.file, "--resume", "--name", cell.name, "--runs", str(runs)]
    before = origin(programme, cell)
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


def carry_out(file: Path, runs: Path, hours: float) -> int:
    """Play what is missing of the programme in `file` for `hours`; 0 where nothing is left, 1 where the time is up.

    Figures go to the folder `results/NAME` next to a `file` NAME.yaml, and the table into `results/NAME.md`. Raises
    ConfigError while another process plays a run of `runs`.
    """
    plan, into = load(file), file.parent / "results" / file.stem
    for run, _ in run_folder.all_runs(runs):  # what a programme that was killed began may play on
        run_folder.refuse_held(run)
    into.mkdir(parents=True, exist_ok=True)
    in_background()
    until = time.monotonic() + 3600 * hours
    while time.monotonic() < until:
        found = results(into)
        # Before the first run, so that a page without its line is refused now; later for what a kill left untold.
        write_page(into.with_suffix(".md"), page(plan, found, runs))
        if spent_hours(found) >= plan.most_cpu_hours:
            output.news(f"{plan.most_cpu_hours:g} CPU-hours are spent: the programme has ended")
            return 0
        if (cell := next_cell(plan, found, runs)) is None:
            output.news("nothing is left to play")
            return 0
        if not _ended(runs / cell.name):
            output.news(f"programme: {cell.name}")
            before = _record(runs / cell.name)
            if not play(words(plan, cell, runs), until):
                return 1
            if _record(runs / cell.name) == before:
                raise ConfigError(f"{cell.name} was refused, as said above: mend that, and start the programme again")
        if _ended(runs / cell.name):
            kept = into / f"{cell.name}{SUFFIX}"
            if not kept.exists():
                kept.with_suffix(".part").write_bytes(slim(run_data.read_run(runs / cell.name)))
                kept.with_suffix(".part").replace(kept)
            write_page(into.with_suffix(".md"), page(plan, results(into), runs))
    return 1


def next_cell(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> ProgrammeRun | None:
    """The first run without a result."""
    for cell, why in _missing(plan, found, runs):
        if not why:
            return cell
        output.news(f"programme: {cell.name} is passed by: {why}")
    return None


def _missing(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> Iterator[tuple[ProgrammeRun, str]]:
    """The runs without a result in the order of play, each with why it is left out; "" where it is not.

    A trunk that a run goes on from comes before it, also one with a result whose folder is gone.
    """
    for stage in plan.stages:
        for cell in cells(stage):
            if cell.name in found:
                continue
            before = origin(plan, cell)
            if before is not None and not _ended(runs / before.name):
                yield before, left_out(runs / before.name)
            yield cell, left_out(runs / cell.name)


def page(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> str:
    """The table, and below it the runs that are left out."""
    lines = [
        f"- {cell.name} is left out: {' '.join(why.split())[:200]}" for cell, why in _missing(plan, found, runs) if why
    ]
    return "\n".join([table(plan, found), *lines, *([""] if lines else [])]) + probe_tables(plan, found)


def _ended(run: Path) -> bool:
    return (record := _record(run)) is not None and record.has_ended


def _record(run: Path) -> run_folder.RunRecord | None:
    return run_folder.read_record(run) if run_folder.is_run(run) else None


def main() -> int:
    """Play what is missing; 0 where nothing is left or its CPU-hours are spent, 1 where the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=Path("deploy/entropulse.yaml"))
    parser.add_argument("--hours", type=float, default=2.5, help="wall time at most")
    parser.add_argument("--runs", type=Path, help="where its runs are; else runs/NAME for a file NAME.yaml")
    args = parser.parse_args()
    try:
        return carry_out(args.file, args.runs or Path("runs") / args.file.stem, args.hours)
    except ConfigError as error:
        output.line(str(error), to=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
