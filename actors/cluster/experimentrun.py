"""Carries an experiment out: its recordings of demonstrations, its runs one after the other, then one report.

Arms that differ only in what comes after cloning begin, for each seed, from the same weights, cloned once.

Invariant: every run was found good before the first is started; a run that has ended on its own account is never
started again, so an experiment is resumed by saying it again.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.cluster import compose, deployfile, experiment, places, runcommand, runfolder, say, typed, weights
from actors.cluster.config import Deploy
from actors.cluster.experiment import OneRun
from actors.cluster.nearest import hint
from actors.cluster.runcommand import STATUS, Labels
from actors.cluster.runfolder import CLONING, RECORDING
from runtime.errors import ConfigError

REPORT = "report"
ENDED = ("ok", "failed")


def is_one(args: argparse.Namespace) -> bool:
    """Whether the arguments of `run` ask for an experiment. Raises ConfigError."""
    return bool(args.arm or args.seed) or experiment.is_one(args.file)


def dry_run(args: argparse.Namespace) -> int:
    """Print every run and the plan of the first, or refuse what `start` would refuse."""
    stem, runs, plans = _asked(args, time.time())
    by = [plan.demonstrators() for plan in plans]
    if args.json:
        rows = [{"name": one.name(stem), **_row(one), "demonstrators": b} for one, b in zip(runs, by, strict=True)]
        say.document({"file": args.file, "runs": rows})
        return 0
    say.table(
        ("RUN", "SEED", "ARM", "DEMONSTRATED BY"),
        [(one.name(stem), one.seed, _said(one), ", ".join(b)) for one, b in zip(runs, by, strict=True)],
    )
    say.line(f"\ndemonstrations are {_demos_said(runs)}{_cloning_said(args)}; each run looks like the first:\n")
    runcommand.show_plan(plans[0])
    return 0


def start(args: argparse.Namespace) -> int:
    """Carry it out, or go on with it; the worst exit status of its runs."""
    begun = time.time()
    folder = Path(args.runs)
    name, runs, _ = _asked(args, begun)
    sources: dict[str, str] = {}  # by recording
    whole = experiment.expand(args.file, args.overrides)  # all arms, whichever are chosen
    footings, shared = experiment.footings(whole), experiment.share_cloning(whole)
    for one in runs:
        footing = footings[one.arm]
        if footing not in sources:
            source = _recorded(folder, "-".join(part for part in (name, footing) if part), one.deploy, args, name)
            if isinstance(source, int):
                return source
            sources[footing] = source
    worst, cloned = 0, dict[int, str]()  # weights by seed
    for number, one in enumerate(runs, 1):
        deploy = _with_source(one.deploy, sources[footings[one.arm]])
        if shared and one.seed not in cloned:
            path = folder / runfolder.cloning_of(name, one.seed)
            say.line(f"\ncloning for all arms of seed {one.seed}")
            if status := _carry_out(path, experiment.cloning_alone(deploy), CLONING, name, args):
                return status
            cloned[one.seed] = weights.locate(str(path), folder).folder
        if shared:
            deploy = experiment.after_cloning(deploy, cloned[one.seed])
        say.line(f"\n{number} of {len(runs)}: {_said(one) or 'no arm'}, seed {one.seed}")
        status = _carry_out(folder / one.name(name), deploy, one.arm, name, args)
        worst = max(worst, status)
        if status == STATUS["stopped"]:
            return status
    played = [path for one in runs if ((path := folder / one.name(name)) / "ledger.sqlite").is_file()]
    if played:
        from actors.cluster.report import show

        show.show(played, folder / f"{name}-{REPORT}", as_json=False)
    return worst


def _asked(args: argparse.Namespace, begun: float) -> tuple[str, list[OneRun], list[compose.Plan]]:
    """The experiment's name and runs with their plans. Raises ConfigError for a bad, taken or unknown name."""
    folder = Path(args.runs)
    runs = experiment.expand(args.file, args.overrides, arms=args.arm, seeds=args.seed)
    if args.resume:
        name = _to_resume(folder, args.name, args.file)
    else:
        name = runcommand.name_of(args, deployfile.locate(args.file), begun)
    places.refuse_unwritable(folder, "--runs")
    for one in runs:
        if not args.resume and (folder / one.name(name)).exists():
            raise ConfigError(f"run {one.name(name)} exists already: continue with --resume, or give another --name")
    return name, runs, [_planned(one.deploy, folder.resolve() / one.name(name)) for one in runs]


def _carry_out(path: Path, deploy: Deploy, arm: str, name: str, args: argparse.Namespace) -> int:
    path = path.resolve()
    known = (path / "run.json").is_file()
    if known:
        record = runfolder.read_record(path)
        if record.verdict in ENDED and runfolder.owner(path) is None:
            say.line(f"run {path.name}: {record.verdict} already")
            return STATUS[record.verdict]
        deploy = typed.read(path / "deploy.yaml", Deploy)
    labels = Labels(args.file, args.runs, time.time(), experiment=name, arm=arm)
    return runcommand.carry_out(deploy, path, lambda: _planned(deploy, path), labels, resume=known)


def _recorded(folder: Path, stem: str, deploy: Deploy, args: argparse.Namespace, name: str) -> str | int:
    """The recording STEM-demos that runs like `deploy` begin from, "" for none; the exit status of one that failed."""
    if deploy.demos.source or not deploy.demos.count:
        return deploy.demos.source
    path = (folder / f"{stem}-{RECORDING}").resolve()
    known = (path / "run.json").is_file()
    if known and runfolder.owner(path) is None:
        record_before = runfolder.read_record(path)
        if record_before.verdict == "ok":
            return str(path)
        if record_before.verdict == "failed":
            say.line(f"run {path.name}: failed already - {record_before.reason}")
            return STATUS["failed"]
    from actors.cluster.demos import record

    say.line(f"recording {deploy.demos.count} demonstrations into {path.name}, which runs begin from")
    alone = record.for_recording(deploy)
    alone = msgspec.structs.replace(alone, run=msgspec.structs.replace(alone.run, limit_s=None))
    status = record.record_into(path, alone, Labels(args.file, args.runs, time.time(), name, RECORDING), resume=known)
    return str(path) if status == 0 else status


def _with_source(deploy: Deploy, source: str) -> Deploy:
    return msgspec.structs.replace(deploy, demos=msgspec.structs.replace(deploy.demos, source=source))


def _planned(deploy: Deploy, path: Path) -> compose.Plan:
    return compose.plan(deploy, run_dir=path, incarnation=uuid.uuid4().hex)


def _to_resume(folder: Path, name: str | None, file: str) -> str:
    known = [found for _, found in runfolder.all_runs(folder) if found.experiment]
    mine = [found.experiment for found in known if deployfile.same(found.file, file)]
    if name is None:
        if not mine:
            raise ConfigError(f"nothing to resume: no experiment of {file} in {folder}")
        return mine[-1]
    if name not in mine:
        raise ConfigError(f"--name {name}: no such experiment of {file} in {folder}; {hint(name, set(mine))}")
    return name


def _row(one: OneRun) -> dict[str, object]:
    return {"arm": one.arm, "seed": one.seed, "changes": one.changes}


def _said(one: OneRun) -> str:
    changes = ", ".join(f"{path}: {value}" for path, value in one.changes.items())
    return f"{one.arm} ({changes})" if one.arm and changes else one.arm


def _demos_said(runs: Sequence[OneRun]) -> str:
    deploy = runs[0].deploy
    apart = dict.fromkeys(experiment.footings(runs).values())
    if len(apart) > 1:
        return f"each arm's own, recorded once for its seeds ({', '.join(apart)})"
    if deploy.demos.source:
        return f"those of {deploy.demos.source}"
    return f"{deploy.demos.count}, recorded once for all" if deploy.demos.count else "none"


def _cloning_said(args: argparse.Namespace) -> str:
    shared = experiment.share_cloning(experiment.expand(args.file, args.overrides))
    return ", cloned once per seed for all arms" if shared else ""
