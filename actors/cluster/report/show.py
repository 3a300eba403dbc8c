"""What `report` prints and writes, and which runs its arguments name."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output, tables
from actors.cluster import paths as places
from actors.cluster.config.suggest import hint
from actors.cluster.output import plain, plainly
from actors.cluster.report import page, pooled, run_data
from actors.cluster.report.drawing import CURVE, pictures
from actors.cluster.report.episodes import BeforeAndAfter, choose, learned
from actors.cluster.report.pooled import Group
from actors.cluster.report.run_data import SUFFIX, RunFigures
from actors.cluster.runs import evaluation_rounds, run_folder
from actors.cluster.runs.run_folder import LAST, find
from actors.replay.database import queries
from runtime.errors import ConfigError

ROUNDS_ACROSS = 8  # of a table by family


def command(args: argparse.Namespace) -> int:
    """`report`: the exit status."""
    if args.text and args.out is not None:
        raise ConfigError("--text prints only: leave --out out, or --text")
    by_place: dict[Path, Path] = {}
    for path in (path for name in args.run for path in paths_of(name, Path(args.runs))):
        by_place.setdefault(path.resolve(), path)
    paths = list(by_place.values())
    out = None if args.out is None else Path(args.out)
    if out is None and not args.text and not args.json:
        out = Path("report", called(paths))
        try:
            places.refuse_unwritable(out, "the folder")
        except ConfigError as error:
            raise ConfigError(f"{error}; --out names another for the page, --text prints only") from None
    return show(paths, out, as_json=args.json)


def paths_of(name: str, runs: Path) -> list[Path]:
    """The runs' folders and files of figures that `name` means, at least one. Raises ConfigError."""
    if name.endswith(SUFFIX):
        if not os.path.isfile(name):
            wrong = "a folder, or a link to nothing" if os.path.lexists(name) else ""
            why = wrong or hint(name, run_data.files_near(Path(name)))
            raise ConfigError(f"{name}: no such file of a run's figures; {why}")
        return [Path(name)]
    path = Path(name)
    if not run_folder.is_run(path) and (files := sorted(path.glob(f"*{SUFFIX}"))):
        return files  # of a folder that keeps figures
    if several := run_folder.of_experiment(runs, name):
        return several
    if name != LAST and not run_folder.is_run(runs / name) and not run_folder.is_run(path):
        if os.path.isfile(path):
            raise ConfigError(f"{path}: the file exists, but a file of a run's figures ends in {SUFFIX}")
        if os.path.isdir(path):
            raise ConfigError(f"{path}: the folder exists, but is no run and holds no file of a run's figures")
        if path.suffix == ".gz":  # else it is a run's name
            near = hint(str(path), run_data.files_near(path))
            raise ConfigError(f"{path}: no such file, and a file of a run's figures ends in {SUFFIX}; {near}")
    return [find(runs, name)]


def called(paths: Sequence[Path]) -> str:
    """What the report of these runs' folders or files is called; reports of other runs are called otherwise."""
    first = paths[0].name.removesuffix(SUFFIX)
    return first if len(paths) == 1 else f"{first}-and-{len(paths) - 1}-more"


def show(paths: Sequence[Path], out: Path | None, *, as_json: bool) -> int:
    """Print the reports of the runs at `paths`, folders or files of figures, and write page and pictures into `out`.

    Returns 1 when one of them that was to be evaluated played no round. Raises ConfigError where a run has no ledger.
    """
    if out is not None:
        places.refuse_unwritable(out, "--out")
    read = _read(paths, aloud=out is not None)
    paths, runs = [path for path, _ in read], [run for _, run in read]
    names = [run.name for run in runs]
    written: list[Path] = []
    if out is not None:
        runs = _renamed(runs, paths)
        written = write(runs, paths, out)
    groups = pooled.grouped(runs)
    if as_json:
        output.document({**_document(groups, runs), "files": [str(file) for file in written]})
    else:
        for number, (run, name, path) in enumerate(zip(runs, names, paths, strict=True)):
            where = f" ({path})" if names.count(name) > 1 else ""
            reason = f": {run.reason}" if run.reason else ""
            output.line("\n" * bool(number) + output.clean(f"{name}{where}   {run.state}{reason}"))
            _print(run)
            if path.is_dir():
                _print_learned(learned(path, most=1))
        for group in (group for group in groups if len(group.runs) > 1):
            names = [run.name for run in group.runs]
            output.line(f"\n{group.label}: {len(names)} runs ({', '.join(names)})")
            rounds = pooled.pooled_rounds(group.runs)
            tables.show(page.rounds_together(group, rounds))
            if not rounds:
                output.line("no evaluation round that all of them have played")
            tables.show(page.gains_of([(group, pooled.pooled_gains(group.runs))]))
        tables.show(page.differences_of(pooled.differences(groups)))
        for file in written:
            output.line(f"wrote     {file}")
    for path, run in zip(paths, runs, strict=True):
        # One whose deploy file is not there was to be evaluated.
        deploy = run_data.deploy_of(path) if path.is_dir() else {}
        if not run.rounds and deploy.get("evaluation", {}).get("enabled", True):
            return 1
    return 0


def _read(paths: Sequence[Path], *, aloud: bool) -> list[tuple[Path, RunFigures]]:
    """The runs at `paths`, each once: else a copy of a run would count as another seed."""
    runs: list[tuple[Path, RunFigures]] = []
    known: dict[tuple[object, ...], Path] = {}
    for path in paths:
        if aloud:
            output.line(f"reading {path.name} ...", to=sys.stderr)
        run = run_data.read_file(path) if path.is_file() else run_data.read_run(path)
        first = known.setdefault((run.name, run.started, run.seed, run.key), path)
        if first != path and run.started:  # a run without a record has no time of its start
            output.line(output.clean(f"{path} is left out: it is the run of {first}"), to=sys.stderr)
        else:
            runs.append((path, run))
    return runs


def _renamed(runs: Sequence[RunFigures], paths: Sequence[Path]) -> list[RunFigures]:
    """The same with no name twice, since files are called by it: of runs of one name the second gets `-2`."""
    renamed: dict[str, RunFigures] = {}
    for run, path in zip(runs, paths, strict=True):
        names = (f"{run.name}-{number}" if number > 1 else run.name for number in count(1))
        name = next(name for name in names if name not in renamed)
        renamed[name] = msgspec.structs.replace(run, name=name)
        if name != run.name:
            output.line(output.clean(f"{path} is called {name}: another run here is {run.name}"), to=sys.stderr)
    return list(renamed.values())


def write(runs: Sequence[RunFigures], paths: Sequence[Path], out: Path) -> list[Path]:
    """Write report.html, the curve of success as a PNG and the figures of runs' folders; returns what was written."""
    out.mkdir(parents=True, exist_ok=True)
    groups = pooled.grouped(runs)
    drawn = pictures(groups)
    folders = {run.name: path for run, path in zip(runs, paths, strict=True) if path.is_dir()}
    episodes = {run.name: choose(folders[run.name]) if run.name in folders else [] for run in runs}
    pairs = {name: learned(path) for name, path in folders.items()}
    files = {"report.html": page.page(groups, drawn, episodes, pairs).encode()}
    files |= {f"{picture.name}.png": picture.png for picture in drawn if picture.name == CURVE}
    files |= {f"{run.name}{SUFFIX}": run_data.packed(run) for run in runs if run.name in folders}
    for name, content in files.items():
        (out / name).write_bytes(content)
    return [out / name for name in files]


def _document(groups: Sequence[Group], runs: Sequence[RunFigures]) -> dict[str, Any]:
    if len(runs) == 1:
        return {"figures": runs[0]}
    seeds = [
        {"label": group.label, "runs": [run.name for run in group.runs], "seeds": [run.seed for run in group.runs],
         "rounds": pooled.pooled_rounds(group.runs), "gains": pooled.pooled_gains(group.runs)}
        for group in groups if len(group.runs) > 1
    ]  # fmt: skip
    return {"runs": runs, "seeds": seeds, "differences": pooled.differences(groups)}


def _print_learned(pairs: Sequence[BeforeAndAfter]) -> None:
    for pair in pairs:
        output.line()
        output.line(output.clean(f"{pair.after.task} before and after: {pair.after.task_line}"))
        for episode in pair:
            output.line(output.clean(f"{episode.where}: {episode.verdict}"))
            output.quoted("\n".join(step.response for step in episode.steps))


def _print(run: RunFigures) -> None:
    if not run.rounds:
        output.prose("\nno evaluation round was opened")
    else:
        output.line()
    tables.show(page.rounds_of(run.rounds))
    for at in range(0, len(run.rounds), ROUNDS_ACROSS):
        tables.show(page.families_of(run.rounds[at : at + ROUNDS_ACROSS]))
    tables.show(page.scores_of(run))
    output.line()
    for compared in run.gains:
        output.prose(f"gain      {evaluation_rounds.gain_line(compared)}")
    if run.steps:
        phases = (f"{plain(switch.phase)} from step {switch.start} ({plain(switch.cause)})" for switch in run.switches)
        output.prose(f"phases    {', '.join(phases)}")
    if run.trials:
        tables.show(page.trials_of(run))
    output.prose(f"desktops  showed observation version {queries.versions_text(run.observations)}")
    output.prose(f"groups    {page.counted(plainly(run.endings)) or 'none'}")
    output.prose(f"episodes  {page.counted(run.episodes) or 'none'}")
    for table in page.times_of(run):
        tables.show(table)
