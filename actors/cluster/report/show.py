"""What `report` prints and writes, and which runs its arguments name.

Invariant: a name means runs or files of figures that are there, or is refused with what is there instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config.suggest import hint
from actors.cluster.report import figures_file, pagerounds
from actors.cluster.report.gather import RunData, deploy_of, gather, grouped, key_of, record_of
from actors.cluster.report.machine import MachineTime, by_phase
from actors.cluster.report.page import page
from actors.cluster.report.pictures import pictures
from actors.cluster.report.read import RunFigures, read_run
from actors.cluster.report.seats import SeatTime
from actors.cluster.report.seeds import Brief, apart, show_apart, together
from actors.cluster.report.seeds import show as show_seeds
from actors.cluster.runs import criterion, run_folder
from actors.cluster.runs.evaluation_rounds import SCORES, EvaluationRound
from actors.cluster.runs.run_folder import LAST, find
from actors.cluster.words import plain, plainly
from actors.replay.database import queries
from runtime.errors import ConfigError

BESIDE = 8  # rounds of a table by family


def paths_of(name: str, runs: Path) -> list[Path]:
    """The runs' folders and files of figures that `name` means, at least one. Raises ConfigError."""
    if name.endswith(figures_file.SUFFIX):
        return [figures_file.locate(name)]
    path = Path(name)
    if not run_folder.is_run(path) and (files := sorted(path.glob(f"*{figures_file.SUFFIX}"))):
        return files  # of a folder that keeps figures
    if found := run_folder.of_experiment(runs, name):
        return found
    if name != LAST and not run_folder.is_run(runs / name) and not run_folder.is_run(path):
        _refuse_other_place(path)
    return [find(runs, name)]


def _refuse_other_place(path: Path) -> None:
    """Raise ConfigError where a file or folder is at `path`, or where it is called as a file of figures nearly is."""
    if os.path.isfile(path):
        raise ConfigError(f"{path}: the file exists, but a file of a run's figures ends in {figures_file.SUFFIX}")
    if os.path.isdir(path):
        raise ConfigError(f"{path}: the folder exists, but is no run and holds no file of a run's figures")
    if path.suffix != ".gz":  # a run's name
        return
    near = [str(path.with_name(file.name)) for file in sorted(path.parent.glob(f"*{figures_file.SUFFIX}"))]
    raise ConfigError(
        f"{path}: no such file, and a file of a run's figures ends in {figures_file.SUFFIX}; {hint(str(path), near)}"
    )


def called(paths: Sequence[Path]) -> str:
    """What the report of these runs' folders or files is called; reports of other runs are called otherwise."""
    first = paths[0].name.removesuffix(figures_file.SUFFIX)
    return first if len(paths) == 1 else f"{first}-and-{len(paths) - 1}-more"


def show(paths: Sequence[Path], out: Path | None, *, as_json: bool) -> int:
    """Print the reports of the runs at `paths`, folders or files of figures, and write page and pictures into `out`.

    Returns 1 when one of them that was to be evaluated played no round. Raises ConfigError where a run has no ledger.
    """
    if out is not None:
        places.refuse_unwritable(out, "--out")
    paths = _once(paths)
    if out is None:
        brief, written = [_brief(path) for path in paths], []
        names = [run.name for run in brief]
    else:
        found = [_gathered(path) for path in paths]
        names, runs = [run.name for run in found], _told_apart(found, paths)
        brief, written = [Brief.of(run) for run in runs], write(runs, paths, out)
    figures, seeds, differences = [run.figures for run in brief], together(brief), apart(brief)
    if as_json:
        told = (
            {"figures": figures[0]}
            if len(figures) == 1
            else {"runs": figures, "seeds": seeds, "differences": differences}
        )
        output.document({**told, "files": [str(file) for file in written]})
    else:
        for number, (run, name, path) in enumerate(zip(brief, names, paths, strict=True)):
            where = f" ({path})" if names.count(name) > 1 else ""
            output.line("\n" * bool(number) + output.clean(f"{run.name}{where}   {run.state}") + "\n")
            _print(run.figures)
        for several in seeds:
            show_seeds(several)
        show_apart(differences)
        for file in written:
            output.line(f"wrote     {file}")
    missing = [path for path, one in zip(paths, figures, strict=True) if not one.rounds and _to_be_evaluated(path)]
    return int(bool(missing))


def _to_be_evaluated(path: Path) -> bool:
    """Whether rounds belong to the plan of the run at `path`; yes where its plan is not there."""
    return not path.is_dir() or bool(deploy_of(path).get("evaluation", {}).get("enabled", True))


def _once(paths: Sequence[Path]) -> list[Path]:
    """The same without files of one content, which would count as several runs."""
    seen: dict[bytes, Path] = {}
    found = []
    for path in paths:
        first = seen.setdefault(path.read_bytes(), path) if path.is_file() else path
        if first is path:
            found.append(path)
        else:
            output.line(output.clean(f"left out {path}: the same run as {first}"), to=sys.stderr)
    return found


def _brief(path: Path) -> Brief:
    if path.is_file():
        return Brief.of(figures_file.read(path))
    record, state = record_of(path)
    key = key_of(path, deploy_of(path))
    return Brief(
        path.name,
        record.experiment if record else "",
        record.file if record else "",
        key,
        record.seed if record else None,
        f"{state}: {record.reason}" if record and record.reason else state,
        read_run(path),
    )


def _gathered(path: Path) -> RunData:
    output.line(f"reading {path.name} ...", to=sys.stderr)
    return figures_file.read(path) if path.is_file() else gather(path)


def _told_apart(runs: Sequence[RunData], paths: Sequence[Path]) -> list[RunData]:
    """The same with no name twice, since files are called by it: of runs of one name the second gets `-2`."""
    found: dict[str, RunData] = {}
    for run, path in zip(runs, paths, strict=True):
        names = (f"{run.name}-{number}" if number > 1 else run.name for number in count(1))
        name = next(name for name in names if name not in found)
        figures = msgspec.structs.replace(run.figures, run=name)
        found[name] = msgspec.structs.replace(run, name=name, figures=figures)
        if name != run.name:
            output.line(output.clean(f"{path} is called {name}: another run here is {run.name}"), to=sys.stderr)
    return list(found.values())


def write(runs: Sequence[RunData], paths: Sequence[Path], out: Path) -> list[Path]:
    """Write report.html, the curve of success as a PNG and every run's figures; returns what was written."""
    given = {path.resolve() for path in paths}
    for run, path in zip(runs, paths, strict=True):
        target = (out / f"{run.name}{figures_file.SUFFIX}").resolve()
        if target in given and target != path.resolve():
            raise ConfigError(f"{target.name} of another run would be written over: name another --out than {out}")
    out.mkdir(parents=True, exist_ok=True)
    groups = grouped(runs)
    drawn = list(pictures(groups))
    files = {"report.html": page(groups, drawn).encode()}
    files |= {f"{one.name}.png": one.content.png for one in drawn if one.content.png}
    files |= {f"{run.name}{figures_file.SUFFIX}": figures_file.packed(run) for run in runs}
    for name, content in files.items():
        (out / name).write_bytes(content)
    return [out / name for name in files]


def _print(figures: RunFigures) -> None:
    if figures.rounds:
        heading, weights = pagerounds.round_weights(figures.rounds)
        rows = [_round(found, made) for found, made in zip(figures.rounds, weights, strict=True)]
        titles = (
            "DECODING",
            "SUCCESS",
            "95 %",
            "FEASIBLE",
            "NO FAULT",
            "FAMILIES TRAINED",
            "NEVER TRAINED",
            "TASKS",
        )
        output.table(("ROUND", heading.upper(), *titles), rows)
    else:
        output.prose("no evaluation round was opened")
    _print_families(figures.rounds)
    if figures.rounds and (sides := figures.rounds[-1].score_rows):
        output.table([title.upper() for title in SCORES], sides)
        output.line()
    for compared in figures.gains:
        output.prose(f"gain      {criterion.told(compared)}")
    phases = [f"{segment.phase} from step {segment.start} ({plain(segment.cause)})" for segment in figures.segments]
    output.line()
    if figures.points:
        output.prose(f"phases    {', '.join(phases)}")
    output.prose(f"desktops  showed observation version {queries.versions_text(figures.observations)}")
    output.prose(f"groups    {_counts(plainly(figures.endings))}")
    output.prose(f"episodes  {_counts(figures.episodes)}")
    found = figures.overlap
    if found.learner_s:
        output.prose(
            f"overlap   desktops played training episodes during {found.share:.0%} of the learner's"
            f" {found.learner_s:.1f} s in RL steps, {found.episodes_at_once:.1f} at once; RL and pulses took"
            f" {output.duration(found.rl_s)}"
        )
    if figures.seats is not None:
        _print_seats(figures.seats)
    if figures.machine is not None:
        _print_machine(figures.machine)


def _print_families(found: Sequence[EvaluationRound]) -> None:
    """What was solved of every family, some rounds beside one another."""
    named = list(zip(pagerounds.round_names(found), found, strict=True))
    for several in (named[at : at + BESIDE] for at in range(0, len(named), BESIDE)):
        by_round = [one.summary.families for _, one in several]
        rows = [
            (family, *(f"{of[family].all.successes}/{of[family].all.n}" if family in of else "-" for of in by_round))
            for family in sorted({family for of in by_round for family in of})
        ]
        if rows:
            output.line()
            output.table(("FAMILY", *(name for name, _ in several)), rows)
    output.line()


def _print_seats(seats: SeatTime) -> None:
    whole = seats.seats * seats.wall_s or 1.0
    output.prose(
        f"\nseats     busy {seats.busy:.1%} of {seats.seats} seats x {output.duration(seats.wall_s)}"
        " (reservation granted to verified, waits for the model included)"
    )
    phases = ", ".join(f"{phase} {share:.1%}" for phase, share in seats.busy_by_phase.items())
    output.prose(f"          busy within each phase: {phases}")
    rows = [(f"busy: {stage}", f"{s:.1f}", f"{s / whole:.1%}") for stage, s in seats.stages_s.items()]
    rows += [(cause, f"{s:.1f}", f"{s / whole:.1%}") for cause, s in seats.idle_s.items()]
    output.table(("SEAT TIME", "SECONDS", "SHARE"), rows)


def _print_machine(machine: MachineTime) -> None:
    used = ", ".join(f"{part} {machine.share(part):.1%}" for part in machine.cpu_s)
    output.prose(f"\nprocessor {used} of {machine.cores} cores x {output.duration(machine.span_s)}")
    if machine.elsewhere_s:
        far = ", ".join(f"{part} {seconds:,.1f}" for part, seconds in machine.elsewhere_s.items())
        output.prose(f"          on other machines, CPU-seconds: {far}")
    output.prose(f"          {by_phase(machine)}")
    up = f"{machine.desktops_up:.1f} up at once, {machine.spares:.1f} of them spares"
    output.prose(f"desktops  {machine.desktops} used up, {up}")


def _round(found: EvaluationRound, made: str) -> tuple[str, ...]:
    whole = found.summary.whole
    low, high = whole.all.interval
    parts = (found.summary.trained, found.summary.untrained)
    apart = [pagerounds.share(part.all) if part.all.n else "-" for part in parts]
    shares = (
        pagerounds.share(whole.all),
        f"{low:.3f}-{high:.3f}",
        pagerounds.share(whole.feasible),
        pagerounds.share(whole.without_faults),
        *apart,
    )
    name = found.name if found.closed else f"{found.name} (open)"
    return name, made, found.decoding, *shares, found.task_set[:12]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
