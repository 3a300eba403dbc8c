"""From the arguments of `run`, or a request of another command, to an exit status.

Invariant: nothing is started before the file, the plans, the machine and the run folder have been found good. Whatever
then happens is recorded in `run.json`, and a run that has ended by itself is started again only with other settings.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import resource
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files
from actors.cluster.runs import compose, doctor, execute, ledgers, loop, refusals, run_folder
from actors.cluster.runs.requests import RunRequest, make_fork, resolve
from actors.cluster.runs.run_folder import RunFolder, RunRecord
from actors.desktop.config import SshConfig
from actors.replay.database.ledger_file import LEDGER
from runtime import system
from runtime.errors import ConfigError
from runtime.program import check_origin, program

STATUS = {"ok": 0, "failed": 1, "crashed": 1, "stopped": 130}
REPORT = "report"
MOST_FILES = 65_536  # open ones, where the administrator has set no limit
_VERSIONS = ("computerrl", "torch", "megatron-core", "msgspec", "asyncssh", "transformers", "uvloop")


def dry_run(args: argparse.Namespace) -> int:
    """Print every run and the plan of the first; 0 where `start` would begin.

    Raises ConfigError like `start`. What this machine lacks is printed after the plan, which may be for another
    machine.
    """
    runs = _resolved(args)
    for request in runs:
        if request.resume:
            run_folder.refuse_held(request.folder)
            _refuse_lost(request)
    first = runs[0]
    named = refusals.look_up(first.deploy, run_dir=first.folder, trains=True, dry=True)
    plan = compose.plan(named, run_dir=first.folder, incarnation=uuid.uuid4().hex)
    if caution := plan.caution():
        output.line(caution, to=sys.stderr)
    goes_on = [one for one in runs if one.resume and one.ended() is None]
    loads = {one.folder.name: ledgers.checkpoint(one.folder) for one in goes_on}
    unfit = _unfit(first)
    if args.json:
        shown = {"file": args.file, "run": first.folder.name, "runs": [one.folder.name for one in runs]}
        rows = {"hosts": plan.host_rows(), "summary": plan.summary()}
        output.document({**shown, "unfit": unfit, "checkpoints": loads, **rows})
    else:
        for request in runs:
            run = f"run {request.folder.name}"
            origin = "" if request.fork is None else f" from {request.fork}"
            comes = f"good; {run} would {'go on' if request.resume else 'begin'}{origin}"
            if unfit:
                comes = f"its keys are right, but {unfit.partition(': ')[0]}; the plan:"
            if (record := request.ended()) is not None:
                comes = f"good; {run} has ended ({record.verdict}): nothing would be started"
            output.line(f"{request.file}: {comes}")
        output.line()
        output.table(("HOST", "ACTORS", "WHERE"), plan.host_rows())
        output.line()
        output.table((), plan.summary())
        for name, what in loads.items():
            output.line(f"checkpoint    {what} ({name})")
    if unfit:
        raise ConfigError(unfit)
    return 0


def _resolved(args: argparse.Namespace) -> list[RunRequest]:
    """The requested runs; prints warnings about them."""
    runs = resolve(args)
    for warning in filter(None, (request.warning for request in runs)):
        output.line(warning, to=sys.stderr)
    return runs


def _refuse_lost(request: RunRequest) -> None:
    """Raise ConfigError where a run would go on, and what it goes on from is gone or damaged."""
    if request.resume and request.ended() is None and (wrong := ledgers.damage(request.folder)):
        raise ConfigError(f"run {request.folder.name} can't go on: {wrong}")


def start(args: argparse.Namespace) -> int:
    """Carry out what the arguments of `run` ask for, or go on with it; the worst exit status of its runs."""
    runs = _resolved(args)
    from actors.cluster.web.serve import live_page

    with live_page(Path(args.runs), runs[0].folder.name if len(runs) == 1 else "", args.web):
        worst = 0
        for request in runs:
            if request.news:
                output.news(request.news)
            worst = max(worst, status := carry_out(request, loop.training()))
            if status == STATUS["stopped"]:
                return status
        if runs[0].experiment:
            _report([one.folder for one in runs], runs[0].folder.parent / f"{runs[0].experiment}-{REPORT}")
        return worst


def _report(runs: Sequence[Path], out: Path) -> None:
    """Write the report of those of `runs` that have played."""
    if not (played := [path for path in runs if (path / LEDGER).is_file()]):
        return
    from actors.cluster.report import show  # what draws is loaded last

    try:
        show.show(played, out, as_json=False)
    except ConfigError as error:  # what was played is there without a picture
        output.news(f"no report: {error}")


def carry_out(request: RunRequest, job: execute.Job) -> int:
    """Claim the folder of `request`, run its plan for `job` and record how it ended; the exit status.

    What has ended is not started again, unless its settings have changed.
    """
    folder = request.folder.resolve()
    if (ended := request.ended()) is not None:
        why = f" - {ended.reason}" if ended.reason else ""
        if request.experiment:
            output.news(f"run {folder.name}: {ended.verdict} already{why}")
        else:
            output.news(f"run {folder.name} has ended: {ended.verdict}{why}")
            if ended.verb == run_folder.RUN:
                look = f"{program()} report {run_folder.words_for(folder)}"
                output.news(f"nothing was started; see  {look}  or go on with  --set PATH=VALUE")
        return STATUS[str(ended.verdict)]
    places.refuse_unwritable(folder.parent, "--runs")
    _refuse_lost(request)
    if unfit := _unfit(request):
        raise ConfigError(unfit)
    if isinstance(request.deploy.desktops.provider, SshConfig):
        for check in system.run(doctor.offices(request.deploy)):
            output.line(f"{check.name}: {check.found}; {check.mend}", to=sys.stderr)
    raise_file_limit()
    plan = job.planned(request.deploy, run_dir=folder, incarnation=uuid.uuid4().hex)
    if caution := plan.caution():
        output.line(caution, to=sys.stderr)
    if request.fork is not None:
        make_fork(request.fork, folder)
    run = claim(request)
    named = run_folder.words_for(folder)
    verdict: str = "crashed"
    reason: str | None = "ended unexpectedly"
    try:
        output.news(f"run {folder.name}{' resumed' if request.resume else ''}   ({program()} logs {named} -f)")
        verdict, reason = system.run(execute.execute(plan, run.record, job))
    except KeyboardInterrupt:
        verdict, reason = "stopped", "interrupted"
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        run.end(verdict, reason)
    output.news(f"run {folder.name}: {verdict}{f' - {reason}' if reason else ''}")
    if verdict in ("ok", "failed") and run.record.verb == run_folder.RUN:
        output.news(f"look at it with  {program()} report {named}  or  {program()} web {named}")
    if verdict == "crashed":
        output.news(f"see  {program()} logs {named} --level warning")
    if verdict in ("crashed", "stopped") and (wrong := ledgers.damage(folder)):
        output.news(f"it can't go on: {wrong}")
    elif verdict in ("crashed", "stopped"):
        output.news(f"continue with  {run_folder.to_continue(run.record, folder)}")
    return STATUS[verdict]


def claim(request: RunRequest) -> RunFolder:
    """The folder of a run that begins, or goes on, now. Raises ConfigError."""
    folder, begun = request.folder.resolve(), time.time()
    record = RunRecord(
        name=folder.name,
        file=request.file,
        path=deploy_files.lasting(request.file),
        seed=request.deploy.run.seed,
        build=check_origin().build,
        versions={name: _version(name) for name in _VERSIONS},
        started=run_folder.iso(begun),
        started_s=begun,
        experiment=request.experiment,
        settings=request.settings,
        asked=request.asked,
    )
    run = run_folder.claim(folder, record, resume=request.resume)
    run_folder.write(run.path, deploy_files.STORED, deploy_files.dump(request.deploy).encode())
    return run


def _unfit(request: RunRequest) -> str:
    """The first thing that this machine lacks, what mends it, and the names of the others; "" where the run can begin.

    A run that has ended needs nothing.
    """
    if request.ended() is not None:
        return ""
    bad = [check for check in doctor.examine(request.deploy, place=request.folder.resolve().parent) if check.fatal]
    if not bad:
        return ""
    said = f"this machine can't run it: {bad[0].name}: {bad[0].found}; mend it with: {bad[0].mend}"
    if others := ", ".join(check.name for check in bad[1:]):
        said += f"; and {others}"
        if request.asked is not None:  # by a deploy file
            sets = [word for one in request.asked.overrides for word in ("--set", one)]
            said += f": {program()} doctor {shlex.join([request.file, *sets])}"
    return said


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def raise_file_limit() -> None:
    """Let this process and its children have as many files open as the machine's administrator allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
