"""From the arguments of `run` to its exit status.

Invariant: nothing is started before the file, the machine and the run folder have been found good, and whatever then
happens is recorded in `run.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from actors.cluster import (
    cloned,
    compose,
    demosource,
    deployfile,
    doctor,
    experiment,
    ledgers,
    places,
    resumed,
    runfolder,
    say,
    weights,
)
from actors.cluster.config import Deploy
from runtime.errors import ConfigError
from runtime.origin import check_origin

if TYPE_CHECKING:
    from actors.cluster import execute

STATUS = {"ok": 0, "failed": 1, "crashed": 1, "stopped": 130}
_VERSIONS = ("computerrl", "torch", "megatron-core", "msgspec", "asyncssh", "transformers", "uvloop")


def dry_run(args: argparse.Namespace) -> int:
    """Print the plan of the run that `start` would start, or refuse what it would refuse."""
    folder, deploy = asked(args, time.time())
    if args.resume:
        runfolder.refuse_held(folder)
    places.refuse_unwritable(folder.parent, "--runs")
    plan = compose.plan(deploy, run_dir=folder, incarnation="dry-run")
    if args.json:
        say.document({"file": args.file, "run": folder.name, **rows_of(plan)})
        return 0
    if args.resume and (record := runfolder.read_record(folder)).has_ended and not args.overrides:
        say.line(f"{args.file}: good; run {folder.name} has ended ({record.verdict}): nothing would be started\n")
    else:
        say.line(f"{args.file}: good; run {folder.name} would {'go on' if args.resume else 'begin'}\n")
    show_plan(plan)
    return 0


def rows_of(plan: compose.Plan) -> dict[str, object]:
    """Hosts, actors and summary, for --json."""
    return {"hosts": plan.host_rows(), "actors": plan.actor_rows(), "summary": plan.summary()}


def lines_of(plan: compose.Plan) -> list[tuple[str, str]]:
    """Label and value of all that a plan shows, hosts and actors in a line each."""
    actors = ", ".join(f"{count} {kind}" for kind, count, _ in plan.actor_rows())
    hosts = ", ".join(name for name, _ in plan.host_rows())
    return [*plan.summary(), ("actors", actors), ("hosts", hosts)]


def show_plan(plan: compose.Plan) -> None:
    """Print hosts, actors and summary."""
    say.table(("HOST", "ACTORS"), plan.host_rows())
    say.line()
    say.table(("ACTOR", "COUNT", "WHAT"), plan.actor_rows())
    say.line()
    for label, value in plan.summary():
        say.line(f"{label:<14}{value}")


def start(args: argparse.Namespace) -> int:
    """Run, or continue a run; the exit status."""
    begun = time.time()
    args.overrides = demosource.pinned(args.overrides, Path(args.runs))
    folder, deploy = asked(args, begun)
    folder = folder.resolve()

    def planned() -> compose.Plan:
        return compose.plan(deploy, run_dir=folder, incarnation=uuid.uuid4().hex)

    settings = experiment.settings_of(args.file, "")
    asked_for = runfolder.Asked(overrides=args.overrides, cloned=cloned_by(args))
    labels = Labels(args.file, args.runs, begun, cloned=cloned_by(args), settings=settings, asked=asked_for)
    return carry_out(deploy, folder, planned, labels, resume=args.resume, changed=bool(args.overrides))


def cloned_by(args: argparse.Namespace) -> str:
    """The name of the run that --cloned means, "" without it."""
    found = weights.run_of(args.cloned, Path(args.runs)) if args.cloned else None
    return found.name if found is not None else ""


def asked(args: argparse.Namespace, begun: float) -> tuple[Path, Deploy]:
    """The folder and the settings of the run that the arguments of `run` mean. Raises ConfigError for a bad, taken or
    unknown name."""
    runs, path = Path(args.runs), deployfile.locate(args.file)
    if args.resume:
        refuse_given(args, ["cloned"], "a run goes on with what it has")
        folder = _to_resume(runs, args.name, path, args.file)
        was = runfolder.read_record(folder).settings
        if was and was != experiment.settings_of(args.file, ""):
            goes_on = f"run {folder.name} goes on as it was begun (--set changes it)"
            say.line(f"{args.file} has changed since: {goes_on}", to=sys.stderr)
        return folder, resumed.settings(folder, args.overrides)
    folder = runs / name_of(args, path, begun)
    runfolder.refuse_taken(folder)
    deploy = deployfile.load(args.file, args.overrides)[0]
    if args.cloned:
        found = cloned.of_seed(args.cloned, runs, deploy)
        deploy = cloned.begin(deploy, found.folder, found.path)
    return folder, deploy


def name_of(args: argparse.Namespace, file: Path, begun: float) -> str:
    """The name of a new run or experiment: --name, or the file's and the time. Raises ConfigError for a bad one."""
    name = args.name or places.unnamed(file.stem, begun)
    places.refuse_bad_name(name)
    return name


class Labels(NamedTuple):
    """What a run is called in `run.json` and in the commands that it suggests."""

    file: str  # a deploy file, or the command that the run was started by
    runs: str  # --runs as given
    begun: float  # wall seconds
    experiment: str = ""  # what this run is one of
    arm: str = ""
    cloned: str = ""  # the run whose cloned weights it begins from
    settings: str = ""  # names what the file says to it
    asked: runfolder.Asked | None = None  # of the experiment, or of the one run


def carry_out(
    deploy: Deploy,
    folder: Path,
    planned: Callable[[], compose.Plan],
    labels: Labels,
    *,
    resume: bool,
    changed: bool = False,
    job: execute.Job | None = None,
) -> int:
    """Claim `folder`, run the plan for `job` (default: training) and record how it ended; the exit status.

    A resume of a run that has ended starts nothing, unless its settings were `changed`.
    """
    if resume and not changed and (ended := _ended(folder)) is not None:
        return ended
    places.refuse_unwritable(folder.parent, "--runs")
    if resume and (wrong := ledgers.damage(folder)):
        raise ConfigError(f"run {folder.name} can't go on: {wrong}")
    _refuse_unless_fit(deploy, folder.parent)
    _raise_file_limit()
    plan = planned()
    record = runfolder.RunRecord(
        name=folder.name,
        file=labels.file,
        path=deployfile.lasting(labels.file),
        seed=deploy.run.seed,
        build=check_origin().build,
        versions=_versions(),
        started=runfolder.iso(labels.begun),
        started_s=labels.begun,
        experiment=labels.experiment,
        arm=labels.arm,
        cloned=labels.cloned,
        settings=labels.settings,
        asked=labels.asked,
    )
    run = runfolder.claim(folder, record, resume=resume)
    run.write("deploy.yaml", deployfile.dump(deploy).encode())
    named = f"{folder.name}{runfolder.runs_flag(folder.parent)}"
    verdict: str = "crashed"
    reason: str | None = "ended unexpectedly"
    try:
        from actors.cluster import execute
        from runtime.system import run as run_loop

        say.news(f"run {folder.name}{' resumed' if resume else ''}   (computerrl logs {named} -f)")
        verdict, reason = run_loop(execute.execute(plan, run.record, job))
    except KeyboardInterrupt:
        verdict, reason = "stopped", "interrupted"
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        run.end(verdict, reason)
    say.news(f"run {folder.name}: {verdict}{f' - {reason}' if reason else ''}")
    if verdict == "crashed":
        say.news(f"see  computerrl logs {named} --level warning")
    if verdict in ("crashed", "stopped") and (wrong := ledgers.damage(folder)):
        say.news(f"it can't go on: {wrong}")
    elif verdict in ("crashed", "stopped"):
        say.news(f"continue with  {runfolder.to_continue(record, folder)}")
    return STATUS[verdict]


def _ended(folder: Path) -> int | None:
    """The exit status of the run at `folder` if it has ended, after saying so; None while something is left to do."""
    record = runfolder.read_record(folder)
    if not record.has_ended or runfolder.owner(folder) is not None:
        return None
    say.news(f"run {folder.name} has ended: {record.verdict}{f' - {record.reason}' if record.reason else ''}")
    if record.verb == runfolder.RUN:
        flag = runfolder.runs_flag(folder.parent)
        say.news(f"nothing was started; see  computerrl report {folder.name}{flag}  or go on with  --set PATH=VALUE")
    return STATUS[str(record.verdict)]


def _to_resume(runs: Path, name: str | None, path: Path, file: str) -> Path:
    if name is None:
        return runfolder.newest_of(runs, path.stem, file)
    folder = runfolder.named(runs, name, [found.name for found, _ in runfolder.all_runs(runs)], "run")
    record = runfolder.read_record(folder)
    line = runfolder.to_continue(record, folder)
    if record.experiment:
        raise ConfigError(f"--name {name}: it is a run of experiment {record.experiment}: continue that with  {line}")
    if record.verb != runfolder.RUN:
        raise ConfigError(f"--name {name}: it was made by {record.verb}: continue it with  {line}")
    if not runfolder.is_of(record, path.stem, file):
        raise ConfigError(f"FILE {file}: run {name} was begun with {record.file}: continue it with  {line}")
    return folder


def flag_of(name: str) -> str:
    """The flag whose value the arguments hold as `name`."""
    return "--set" if name == "overrides" else f"--{name.replace('_', '-')}"


def refuse_given(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise ConfigError for the first of `names` that was given and would be passed over."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise ConfigError(f"{flag_of(name)}: {why}: leave it out")


def _refuse_unless_fit(deploy: Deploy, runs: Path) -> None:
    """Raise ConfigError with everything that is missing and what mends it."""
    bad = [check for check in doctor.examine(deploy, place=runs.absolute()) if check.fatal]
    if bad:
        first = f"this machine can't run it: {bad[0].name}: {bad[0].found}; mend it with: {bad[0].mend}"
        more = f"; and {len(bad) - 1} more (computerrl doctor)" if len(bad) > 1 else ""
        raise ConfigError(first + more)


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
