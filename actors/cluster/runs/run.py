"""From the requests of a command to an exit status.

Invariant: nothing is started before the file, the plans, the machine and the run folder have been found good. Whatever
then happens is recorded in `run.json`, and a run that has ended by itself is started again only with other settings.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.commands import flag_of, refuse_given
from actors.cluster.config import deploy_files
from actors.cluster.runs import doctor, execute, ledgers, loop, run_folder
from actors.cluster.runs.compose import Plan
from actors.cluster.runs.requests import RunRequest, WantedRuns, make_fork, pinned, resolve
from actors.cluster.runs.run_folder import Asked, RunFolder, RunRecord
from actors.cluster.runs.versions import Check
from actors.entropulse.actor import PinnedFolders
from actors.replay.database.ledger_file import LEDGER
from runtime import system
from runtime.errors import ConfigError, StoreError
from runtime.messaging.message import Version
from runtime.program import check_origin, program

STATUS = {"ok": 0, "failed": 1, "crashed": 1, "stopped": 130}
REPORT = "report"
MOST_FILES = 65_536  # open ones, where the administrator has set no limit
_VERSIONS = ("computerrl", "torch", "megatron-core", "msgspec", "asyncssh", "transformers", "uvloop")


def wanted(args: argparse.Namespace) -> WantedRuns:
    """What the words of `run` ask for. Raises ConfigError where `last` names no recording or no weights."""
    if args.resume:
        refuse_given(args, ["fork"], "a run that goes on has its own checkpoint")
    runs = Path(args.runs)
    seeds, overrides = list(dict.fromkeys(args.seed)), pinned(args.overrides, runs)
    asked = Asked(seeds=seeds, overrides=overrides, fork=args.fork or "")
    return WantedRuns(file=args.file, runs=runs, name=args.name, resume=args.resume, dry=args.dry_run, asked=asked)


def command(args: argparse.Namespace) -> int:
    """`run`: carry out what the arguments ask for, or show it; the exit status."""
    if args.json and not args.dry_run:
        args.parser.error(f"--json goes with --dry-run; a run's figures are in  {program()} report RUN --json")
    if args.web is not None and (args.print or args.dry_run):
        args.parser.error("--web goes with a run that is started: leave it out")
    if args.print:
        given = [name for name in ("seed", "resume", "dry_run", "json", "fork") if getattr(args, name)]
        if given:
            args.parser.error(f"--print is of the whole file: leave {flag_of(given[0])} out")
        output.write(deploy_files.dump(deploy_files.load(args.file, args.overrides)[0]), sys.stdout)
        return 0
    runs = resolve(wanted(args))
    for request in runs:
        if request.warning:
            output.line(request.warning, to=sys.stderr)
    return dry_run(runs, as_json=args.json) if args.dry_run else start(runs, web=args.web)


def dry_run(runs: Sequence[RunRequest], *, as_json: bool) -> int:
    """Print every run and the plan of the first; 0 where `start` would begin.

    Raises ConfigError like `start`. What this machine lacks is printed after the plan, which may be for another
    machine.
    """
    for request in runs:
        if request.resume:
            run_folder.refuse_held(request.folder)
    first = runs[0]
    plan = loop.training().plan(first.named, run_dir=first.folder, incarnation=uuid.uuid4().hex)
    if plan.caution:
        output.line(plan.caution, to=sys.stderr)
    goes_on = [one for one in runs if one.resume and one.ended is None]
    loads = {one.folder.name: ledgers.checkpoint(one.folder) for one in goes_on}
    lacks = "" if first.ended else _lacks(doctor.examine(_needs(plan)), first)
    if as_json:
        shown = {"file": first.file, "run": first.folder.name, "runs": [one.folder.name for one in runs]}
        rows = {"hosts": plan.host_rows(), "summary": plan.summary()}
        output.document({**shown, "unfit": lacks, "checkpoints": loads, **rows})
    else:
        for request in runs:
            run = f"run {request.folder.name}"
            origin = "" if request.fork is None else f" from {request.fork}"
            comes = f"good; {run} would {'go on' if request.resume else 'begin'}{origin}"
            if lacks:
                comes = f"its keys are right, but {lacks.partition(': ')[0]}; the plan:"
            if (record := request.ended) is not None:
                comes = f"good; {run} has ended ({record.verdict}): nothing would be started"
            output.line(f"{request.file}: {comes}")
        output.line()
        output.table(("HOST", "ACTORS", "WHERE"), plan.host_rows())
        output.line()
        output.table((), plan.summary())
        for name, what in loads.items():
            output.line(f"checkpoint    {what} ({name})")
    if lacks:
        raise ConfigError(lacks)
    return 0


def start(runs: Sequence[RunRequest], *, web: int | None = None) -> int:
    """Carry out the runs of one command in turn, with a live page at port `web`; the worst exit status."""
    from actors.cluster.web.serve import live_page

    with live_page(runs[0].folder.parent, runs[0].folder.name if len(runs) == 1 else "", web):
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
    if request.ended is not None:
        return _passed_by(folder, request.ended)
    places.refuse_unwritable(folder.parent, "--runs")
    plan = job.plan(request.named, run_dir=folder, incarnation=uuid.uuid4().hex)
    needs = _needs(plan)
    if lacks := _lacks(doctor.examine(needs), request):
        raise ConfigError(lacks)
    offices = (f"{check.name}: {check.found}; {check.mend}" for check in doctor.check_offices(needs))
    for warning in filter(None, (plan.caution, *offices)):
        output.line(warning, to=sys.stderr)
    raise_file_limit()
    if request.fork is not None:
        make_fork(request.fork, folder)
    run = claim(request)
    named = run_folder.words_for(folder)
    verdict: str = "crashed"
    reason: str | None = "ended unexpectedly"
    try:
        if request.weights is not None and request.weights.run:  # a run that goes on deletes its older exports
            PinnedFolders(folder).pin(Version.parse(request.weights.version), Path(request.weights.folder))
        output.news(f"run {folder.name}{' resumed' if request.resume else ''}   ({program()} logs {named} -f)")
        verdict, reason = system.run(execute.execute(plan, run.record, job))
    except KeyboardInterrupt:
        verdict, reason = "stopped", "interrupted"
    except StoreError as error:
        verdict, reason = "crashed", str(error)
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
    if verdict in ("crashed", "stopped"):
        output.news(ledgers.onward(run.record, folder))
    return STATUS[verdict]


def _passed_by(folder: Path, ended: RunRecord) -> int:
    why = f" - {ended.reason}" if ended.reason else ""
    if ended.experiment:
        output.news(f"run {folder.name}: {ended.verdict} already{why}")
    else:
        output.news(f"run {folder.name} has ended: {ended.verdict}{why}")
        if ended.verb == run_folder.RUN:
            look = f"{program()} report {run_folder.words_for(folder)}"
            output.news(f"nothing was started; see  {look}  or go on with  --set PATH=VALUE")
    return STATUS[str(ended.verdict)]


def claim(request: RunRequest) -> RunFolder:
    """The folder of a run that begins, or goes on, now. Raises ConfigError."""
    folder, begun = request.folder.resolve(), time.time()
    record = RunRecord(
        name=folder.name,
        file=request.file,
        path=deploy_files.lasting(request.file),
        seed=request.deploy.run.seed,
        build=check_origin().build,
        versions={name: doctor.installed(name) or "missing" for name in _VERSIONS},
        started=run_folder.iso(begun),
        started_s=begun,
        experiment=request.experiment,
        settings=request.settings,
        asked=request.asked,
        weights=request.weights,
    )
    run = run_folder.claim(folder, record, resume=request.resume)
    run_folder.write(run.path, deploy_files.STORED, deploy_files.dump(request.deploy).encode())
    return run


def _needs(plan: Plan) -> doctor.RunNeeds:
    place = plan.run_dir.resolve().parent
    return doctor.RunNeeds(deploy=plan.deploy, apps=doctor.apps_of(plan.lanes), place=place)


def _lacks(checks: Sequence[Check], request: RunRequest) -> str:
    """The first thing that this machine lacks, what mends it, and the names of the others; "" for none."""
    bad = [check for check in checks if check.fatal]
    if not bad:
        return ""
    said = f"this machine can't run it: {bad[0].name}: {bad[0].found}; mend it with: {bad[0].mend}"
    if others := ", ".join(check.name for check in bad[1:]):
        said += f"; and {others}"
        if request.asked is not None:  # by a deploy file
            sets = [word for one in request.asked.overrides for word in ("--set", one)]
            said += f": {program()} doctor {shlex.join([request.file, *sets])}"
    return said


def raise_file_limit() -> None:
    """Let this process and its children have as many files open as the machine's administrator allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
