"""Carries an experiment out: its recordings of demonstrations, its runs one after the other, then one report.

Arms that differ only in what comes after cloning begin, for each seed, from the same weights, cloned once.

Invariant: every run was found good before the first is started; a run that has ended on its own account is never
started again; what is begun later has the settings that the first runs were begun with.
"""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.cluster import (
    cloned,
    comparable,
    compose,
    demosource,
    deployfile,
    experiment,
    places,
    runcommand,
    runfolder,
    say,
    typed,
    weights,
)
from actors.cluster.config import Deploy
from actors.cluster.experiment import OneRun
from actors.cluster.nearest import hint
from actors.cluster.runcommand import STATUS, Labels
from actors.cluster.runfolder import CLONING, RECORDING, Asked, RunRecord
from runtime.errors import ConfigError

REPORT = "report"
LAST = "last"
ENDED = ("ok", "failed")


class _Begun(NamedTuple):
    """What runs of one experiment are labelled with, the same for all however long they take."""

    args: argparse.Namespace
    name: str  # the experiment's
    settings: dict[str, str]  # arm -> what the deploy file said to it when the command was given

    def labels(self, arm: str) -> Labels:
        """Of a run of `arm`."""
        return Labels(
            self.args.file, self.args.runs, time.time(), experiment=self.name, arm=arm,
            cloned=runcommand.cloned_by(self.args), settings=self.settings[arm], asked=_said_by(self.args),
        )  # fmt: skip


def is_one(args: argparse.Namespace) -> bool:
    """Whether the arguments of `run` ask for an experiment. Raises ConfigError."""
    return bool(args.arm or args.seed) or experiment.is_one(args.file) or (args.resume and _goes_on(args))


def _goes_on(args: argparse.Namespace) -> bool:
    """Whether what --resume continues is an experiment: the one called --name, or what is newest of FILE."""
    known = _of_file(Path(args.runs), args.file)
    if args.name:
        one = runfolder.is_run(Path(args.runs) / args.name)
        return not one and any(record.asked and record.experiment == args.name for record in known)
    return bool(known) and bool(known[-1].experiment)


def dry_run(args: argparse.Namespace) -> int:
    """Print every run, what the plans of arms differ in and the plan of the first; or refuse as `start` would."""
    args = _as_begun(args)
    stem, runs, plans = _asked(args, time.time())
    by = [plan.demonstrators() for plan in plans]
    if args.json:
        rows = [
            {"name": one.name(stem), **_row(one), "demonstrators": b, **runcommand.rows_of(plan)}
            for one, b, plan in zip(runs, by, plans, strict=True)
        ]
        say.document({"file": args.file, "runs": rows, "not_comparable": _not_comparable(runs)})
        return 0
    say.table(
        ("RUN", "SEED", "ARM", "DEMONSTRATED BY"),
        [(one.name(stem), one.seed, _said(one), ", ".join(b)) for one, b in zip(runs, by, strict=True)],
    )
    differing = _differing(runs, plans)
    say.line(f"\ndemonstrations are {_demos_said(runs)}{_cloning_said(args)}")
    if differing:
        say.line()
        say.table(("ARM", "", "WHAT DIFFERS"), differing)
    for line in _not_comparable(runs):
        say.line(f"\nnot comparable: {line}")
    but = ", but for what differs" if differing else ""
    say.line(f"\neach run looks like {runs[0].name(stem)}{but}:\n")
    runcommand.show_plan(plans[0])
    return 0


def start(args: argparse.Namespace) -> int:
    """Carry it out, or go on with it; the worst exit status of its runs."""
    begun = time.time()
    folder, args = Path(args.runs), _as_begun(args)
    name, runs, _ = _asked(args, begun)
    for line in _not_comparable(runs):
        say.line(f"not comparable: {line}", to=sys.stderr)
    sources: dict[str, str] = {}  # by recording
    whole = experiment.expand(args.file, args.overrides)  # all arms, whichever are chosen
    arms = (RECORDING, CLONING, *(one.arm for one in runs))
    told = _Begun(args, name, {arm: experiment.settings_of(args.file, arm) for arm in arms})
    footings, shared = experiment.footings(whole), experiment.share_cloning(whole)
    for one in runs if not args.cloned else []:
        footing = footings[one.arm]
        if footing not in sources:
            source = _recorded(folder / _recording_of(name, footing), one.deploy, told)
            if isinstance(source, int):
                return source
            sources[footing] = source
    worst, begin = 0, dict[int, tuple[str, str]]()  # by seed: cloned weights, and the run that cloned them
    for number, one in enumerate(runs, 1):
        deploy = one.deploy if args.cloned else _with_source(one.deploy, sources[footings[one.arm]])
        if shared and not args.cloned and one.seed not in begin:
            path = folder / runfolder.cloning_of(name, one.seed)
            say.news(f"\ncloning for all arms of seed {one.seed}")
            if status := _carry_out(path, experiment.cloning_alone(deploy), CLONING, told):
                return status
            begin[one.seed] = weights.locate(str(path), folder).folder, str(path.resolve())
        if one.seed in begin:
            deploy = cloned.begin(deploy, *begin[one.seed])
        say.news(f"\n{number} of {len(runs)}: {_said(one) or 'no arm'}, seed {one.seed}")
        status = _carry_out(folder / one.name(name), deploy, one.arm, told)
        worst = max(worst, status)
        if status == STATUS["stopped"]:
            return status
    played = [path for one in runs if ((path := folder / one.name(name)) / "ledger.sqlite").is_file()]
    if played:
        from actors.cluster.report import show

        try:
            show.show(played, folder / f"{name}-{REPORT}", as_json=False)
        except ConfigError as error:  # nothing to draw with, most likely: what was played stands
            say.news(f"no report: {error}")
    return worst


def _not_comparable(runs: Sequence[OneRun]) -> list[str]:
    """What arms differ in beside what they compare."""
    return comparable.problems({one.arm: one.deploy for one in runs})


def _as_begun(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a resume with its experiment's name, and what they leave unsaid as it was begun.

    Of a new one, `last` becomes the name of what it means now: its own runs will be newer.
    """
    if not args.resume:
        pinned = demosource.pinned(args.overrides, Path(args.runs))
        return argparse.Namespace(**{**vars(args), "cloned": _newest(args), "overrides": pinned})
    name, begun = _to_resume(Path(args.runs), args.name, args.file)
    asked = experiment.resumed(args.file, name, begun, _said_by(args))
    filled = {"name": name, "arm": asked.arms, "seed": asked.seeds, "overrides": asked.overrides}
    filled |= {"cloned": asked.cloned}
    return argparse.Namespace(**{**vars(args), **filled})


def _newest(args: argparse.Namespace) -> str | None:
    return runcommand.cloned_by(args) if args.cloned == LAST else args.cloned


def _said_by(args: argparse.Namespace) -> Asked:
    return Asked(arms=args.arm, seeds=args.seed, overrides=args.overrides, cloned=args.cloned or "")


def _asked(args: argparse.Namespace, begun: float) -> tuple[str, list[OneRun], list[compose.Plan]]:
    """The experiment's name and runs with their plans. Raises ConfigError for a bad or taken name."""
    folder = Path(args.runs)
    runs = experiment.expand(args.file, args.overrides, arms=args.arm, seeds=args.seed)
    name = args.name if args.resume else runcommand.name_of(args, deployfile.locate(args.file), begun)
    places.refuse_unwritable(folder, "--runs")
    if not args.resume:
        _refuse_others(folder, name, args)
        if not args.cloned:
            _refuse_strangers(folder, name, runs, experiment.expand(args.file, args.overrides))
    for one in runs:
        if not args.resume and (folder / one.name(name)).exists():
            raise ConfigError(f"run {one.name(name)} exists already: continue with --resume, or give another --name")
    if args.cloned:
        runs = [_begun_at(one, args.cloned, folder) for one in runs]
    return name, runs, [_planned(one.deploy, folder.resolve() / one.name(name)) for one in runs]


def _begun_at(one: OneRun, name: str, folder: Path) -> OneRun:
    """`one` from the weights on that run `name` has cloned. Raises ConfigError where those are of another seed."""
    found = cloned.of_seed(name, folder, one.deploy)
    return msgspec.structs.replace(one, deploy=cloned.begin(one.deploy, found.folder, found.path))


def _carry_out(path: Path, deploy: Deploy, arm: str, begun: _Begun) -> int:
    path = path.resolve()
    known = (path / "run.json").is_file()
    if known:
        record = runfolder.read_record(path)
        if record.verdict in ENDED and runfolder.owner(path) is None:
            say.news(f"run {path.name}: {record.verdict} already")
            return STATUS[record.verdict]
        deploy = typed.read(path / "deploy.yaml", Deploy)
    return runcommand.carry_out(deploy, path, lambda: _planned(deploy, path), begun.labels(arm), resume=known)


def _recording_of(name: str, footing: str) -> str:
    """What the run of experiment `name` is called that records for the arms of `footing`."""
    return "-".join(part for part in (name, footing, RECORDING) if part)


def _recorded(path: Path, deploy: Deploy, begun: _Begun) -> str | int:
    """The recording at `path` that runs like `deploy` begin from, "" for none; the exit status of one that failed."""
    if deploy.demos.source or not deploy.demos.count:
        return deploy.demos.source
    path = path.resolve()
    known = (path / "run.json").is_file()
    if known and runfolder.owner(path) is None:
        record_before = runfolder.read_record(path)
        if record_before.verdict == "ok":
            return str(path)
        if record_before.verdict == "failed":
            say.news(f"run {path.name}: failed already - {record_before.reason}")
            say.news(f"  take it as it is with  --set demos.source={path} --set demos.count=N  and another --name,")
            say.news("  or begin anew under another --name with fewer demos.count or more demos.attempts_per_demo")
            return STATUS["failed"]
    from actors.cluster.demos import record

    alone = record.for_recording(deploy)
    alone = msgspec.structs.replace(alone, run=msgspec.structs.replace(alone.run, limit_s=None))
    if known:  # other seeds may come first by now
        alone = typed.read(path / "deploy.yaml", Deploy)
    say.news(f"recording {alone.demos.count} demonstrations into {path.name}, which runs begin from")
    status = record.record_into(path, alone, begun.labels(RECORDING), resume=known)
    return str(path) if status == 0 else status


def _with_source(deploy: Deploy, source: str) -> Deploy:
    return msgspec.structs.replace(deploy, demos=msgspec.structs.replace(deploy.demos, source=source))


def _planned(deploy: Deploy, path: Path) -> compose.Plan:
    return compose.plan(deploy, run_dir=path, incarnation=uuid.uuid4().hex)


def _to_resume(folder: Path, name: str | None, file: str) -> tuple[str, Asked | None]:
    """The experiment of `file` called `name`, or the newest one, and what it was begun with.

    Raises ConfigError where there is none, and where the file says something else by now.
    """
    mine = [record for record in _of_file(folder, file) if record.experiment]
    names = [record.experiment for record in mine]
    if name is None:
        if not mine:
            raise ConfigError(f"nothing to resume: no experiment of {file} in {folder}")
        name = names[-1]
    if name not in names:
        raise ConfigError(f"--name {name}: no such experiment of {file} in {folder}; {hint(name, set(names))}")
    _refuse_changed(file, [record for record in mine if record.experiment == name])
    begun = [record.asked for record in mine if record.experiment == name and record.asked]
    return name, functools.reduce(Asked.joined, begun) if begun else None


def _refuse_others(folder: Path, name: str, args: argparse.Namespace) -> None:
    """Raise ConfigError where runs of an experiment called `name` were begun otherwise than what `args` begin now.

    They would begin from its recording and from what it has cloned.
    """
    known = [record for _, record in runfolder.all_runs(folder) if record.experiment == name]
    for record in known:
        if not deployfile.same(record.found, args.file):
            raise ConfigError(f"--name {name}: experiment {name} is of {record.file}; give another --name")
        if record.asked is not None and record.asked.overrides != args.overrides:
            was = shlex.join(Asked(overrides=record.asked.overrides).words()) or "no --set"
            raise ConfigError(f"--name {name}: experiment {name} was begun with {was}; give another --name")
        if record.asked is not None and bool(record.asked.cloned) is not bool(args.cloned):
            was = f"--cloned {record.asked.cloned}" if record.asked.cloned else "cloning of its own"
            raise ConfigError(f"--name {name}: experiment {name} was begun with {was}; give another --name")
    _refuse_changed(args.file, known)


def _refuse_strangers(folder: Path, name: str, runs: Sequence[OneRun], whole: Sequence[OneRun]) -> None:
    """Raise ConfigError where what experiment `name` would record or clone stands under a name that is taken.

    `runs` are those asked for of its `whole`.
    """
    footings, shared = experiment.footings(whole), experiment.share_cloning(whole)
    recording = [one for one in runs if one.deploy.demos.count and not one.deploy.demos.source]
    made = {_recording_of(name, footings[one.arm]) for one in recording} | {
        runfolder.cloning_of(name, one.seed) for one in runs if shared
    }
    for stem in sorted(made):
        if runfolder.is_run(folder / stem) and runfolder.read_record(folder / stem).experiment != name:
            raise ConfigError(
                f"--name {name}: there is a run {stem} that is none of experiment {name}'s; give another --name"
            )


def _refuse_changed(file: str, known: Sequence[RunRecord]) -> None:
    """Raise ConfigError where the file says something else by now to one of the runs."""
    for record in known:
        if record.settings and record.settings != experiment.settings_of(file, record.arm):
            raise ConfigError(
                f"{file}: it has changed since {record.name} was begun with it, and what is begun now would differ;"
                " undo the change, or begin another experiment with another --name"
            )


def _of_file(folder: Path, file: str) -> list[RunRecord]:
    """The runs below `folder` of deploy file `file`, newest last."""
    return [record for _, record in runfolder.all_runs(folder) if deployfile.same(record.found, file)]


def _differing(runs: Sequence[OneRun], plans: Sequence[compose.Plan]) -> list[tuple[str, str, str]]:
    """Arm, label and value of what the plans of arms do not share; nothing where they look alike."""
    first: dict[str, compose.Plan] = {}  # of each arm, for seeds change nothing that a plan shows
    for one, plan in zip(runs, plans, strict=True):
        first.setdefault(one.arm, plan)
    told = {arm: dict(runcommand.lines_of(plan)) for arm, plan in first.items()}
    labels = dict.fromkeys(label for lines in told.values() for label in lines)
    apart = [label for label in labels if len({lines.get(label) for lines in told.values()}) > 1]
    return [(arm, label, lines.get(label, "none")) for arm, lines in told.items() for label in apart]


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
    if args.cloned:
        return f", cloned by {args.cloned}"
    shared = experiment.share_cloning(experiment.expand(args.file, args.overrides))
    return ", cloned once per seed for all arms" if shared else ""
