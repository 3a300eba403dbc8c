"""From the arguments of `run`, or a request of another command, to an exit status.

Invariant: nothing is started before the file, the plans, the machine and the run folder have been found good. Whatever
then happens is recorded in `run.json`, and a run that has ended by itself is started again only with other settings.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import comparable, compose, doctor, execute, ledgers, open_files, resume, run_folder
from actors.cluster.runs.requests import RunRequest, resolve
from actors.cluster.runs.run_folder import CLONING, RECORDING, RunFolder, RunRecord
from actors.replay.database.ledger_file import LEDGER
from runtime import system
from runtime.errors import ConfigError
from runtime.program import check_origin, program

STATUS = {"ok": 0, "failed": 1, "crashed": 1, "stopped": 130}
REPORT = "report"
_VERSIONS = ("computerrl", "torch", "megatron-core", "msgspec", "asyncssh", "transformers", "uvloop")


def dry_run(args: argparse.Namespace) -> int:
    """Print every run, what the plans of arms differ in and the plan of the first; 0 where `start` would begin.

    Raises ConfigError like `start`. What this machine lacks is said after the plan, which may be for another machine.
    """
    found = resolve(args)
    runs = _own(found)
    for one in found:
        if one.resume:
            run_folder.refuse_held(one.folder)
            _refuse_lost(one)
    plans = [compose.plan(one.deploy, run_dir=one.folder, incarnation=uuid.uuid4().hex, dry=True) for one in runs]
    for caution in dict.fromkeys(filter(None, (plan.caution() for plan in plans))):
        output.line(caution, to=sys.stderr)
    first, plan, loads = runs[0], plans[0], _checkpoints(found)
    arms = {one.arm: one for one in runs}.values()  # seeds need the same
    unfit = next(filter(None, (_unfit(one, one.deploy) for one in arms)), "")
    if args.json and not first.experiment:
        shown = {"file": args.file, "run": first.folder.name, "unfit": unfit, "checkpoints": loads}
        output.document({**shown, **_rows_of(plan)})
    elif args.json:
        rows = [
            {"name": one.folder.name, "arm": one.arm, "seed": one.deploy.run.seed, "changes": one.changes}
            | {"demonstrators": plan.demonstrators(), **_rows_of(plan)}
            for one, plan in zip(runs, plans, strict=True)
        ]
        output.document(
            {"file": args.file, "runs": rows, "unfit": unfit, "checkpoints": loads}
            | {"not_comparable": _not_comparable(runs)}
        )
    else:
        _show_runs(found, runs, plans) if first.experiment else _show_one(first, unfit)
        _show_plan(plan)
        for name, what in loads.items():
            output.line(f"checkpoint    {what} ({name})")
    if unfit:
        raise ConfigError(unfit)
    return 0


def _refuse_lost(request: RunRequest) -> None:
    """Raise ConfigError where a run would go on, and what it goes on from is gone or damaged."""
    if request.resume and request.ended() is None and (wrong := ledgers.damage(request.folder)):
        raise ConfigError(f"run {request.folder.name} can't go on: {wrong}")


def _checkpoints(found: Sequence[RunRequest]) -> dict[str, str]:
    """By name of each run that would go on, what it would begin from. Raises ConfigError where it could not."""
    return {one.folder.name: resume.checkpoint(one.folder) for one in found if one.resume and one.ended() is None}


def _own(found: Sequence[RunRequest]) -> list[RunRequest]:
    """Those of `found` that were asked for, after saying what a user may have overlooked."""
    runs = [one for one in found if one.is_own]
    for warning in filter(None, (one.warning for one in runs)):
        output.line(warning, to=sys.stderr)
    return runs


def _rows_of(plan: compose.Plan) -> dict[str, object]:
    """Hosts, actors and summary, for --json."""
    return {"hosts": plan.host_rows(), "actors": plan.actor_rows(), "summary": plan.summary()}


def _show_one(run: RunRequest, unfit: str) -> None:
    """Print what would become of a run of its own, which this machine can't run where it is `unfit`."""
    would = f"good; run {run.folder.name} would {'go on' if run.resume else 'begin'}"
    if (record := run.ended()) is not None:
        would = f"good; run {run.folder.name} has ended ({record.verdict}): nothing would be started"
    elif unfit:
        would = f"its keys are right, but {unfit.partition(': ')[0]}; the plan:"
    output.line(f"{run.file}: {would}\n")


def _show_runs(found: Sequence[RunRequest], runs: Sequence[RunRequest], plans: Sequence[compose.Plan]) -> None:
    """Print the runs of an experiment and what they share and do not share; `found` has what they begin from, too."""
    rows = [
        (one.folder.name, one.deploy.run.seed, one.said, ", ".join(plan.demonstrators()))
        for one, plan in zip(runs, plans, strict=True)
    ]
    output.table(("RUN", "SEED", "ARM", "DEMONSTRATED BY"), rows)
    first, demos = runs[0], runs[0].deploy.demos
    recorded: dict[Path, str] = {}  # recording -> the first arm that begins from it
    for one in runs:
        if one.recording is not None:
            recorded.setdefault(one.recording, one.arm)
    shared = f"those of {demos.source}" if demos.source else f"{demos.count}, recorded once for all"
    if len(recorded) > 1:
        shared = f"each arm's own, recorded once for its seeds ({', '.join(recorded.values())})"
    cloned = f", cloned by {first.cloned}" if first.cloned else ", cloned once per seed for all arms"
    once = bool(first.cloned) or any(one.arm == CLONING for one in found)
    output.line(f"\ndemonstrations are {shared if recorded or demos.source else 'none'}{cloned if once else ''}")
    if differing := _differing(runs, plans):
        output.line()
        output.table(("ARM", "", "WHAT DIFFERS"), differing)
    for line in _not_comparable(runs):
        output.line(f"\nnot comparable: {line}")
    output.line(f"\neach run looks like {first.folder.name}{', but for what differs' if differing else ''}:\n")


def _differing(runs: Sequence[RunRequest], plans: Sequence[compose.Plan]) -> list[tuple[str, str, str]]:
    """Arm, label and value of what the plans of arms do not share; nothing where they look alike."""
    told: dict[str, dict[str, str]] = {}  # of each arm's first run, for seeds change nothing that a plan shows
    for one, plan in zip(runs, plans, strict=True):
        actors = ", ".join(f"{count} {kind}" for kind, count, _ in plan.actor_rows())
        hosts = ", ".join(name for name, _, _ in plan.host_rows())
        told.setdefault(one.arm, dict([*plan.summary(), ("actors", actors), ("hosts", hosts)]))
    labels = dict.fromkeys(label for lines in told.values() for label in lines)
    apart = [label for label in labels if len({lines.get(label) for lines in told.values()}) > 1]
    return [(arm, label, lines.get(label, "none")) for arm, lines in told.items() for label in apart]


def _not_comparable(runs: Sequence[RunRequest]) -> list[str]:
    """What arms differ in beside what they compare."""
    return comparable.problems({one.arm: one.deploy for one in runs})


def _show_plan(plan: compose.Plan) -> None:
    """Print hosts, actors and summary."""
    output.table(("HOST", "ACTORS", "WHERE"), plan.host_rows())
    output.line()
    output.table(("ACTOR", "COUNT", "WHAT"), plan.actor_rows())
    output.line()
    output.table((), plan.summary())


def start(args: argparse.Namespace) -> int:
    """Carry out what the arguments of `run` ask for, or go on with it; the worst exit status of its runs."""
    found = resolve(args)
    runs = _own(found)
    for line in _not_comparable(runs):
        output.line(f"not comparable: {line}", to=sys.stderr)
    for one in found[1:]:  # the first is found good as it is carried out
        if one.is_own:
            _planned(one, execute.training())
    from actors.cluster.web.beside import live_page  # what serves is loaded last

    with live_page(Path(args.runs), runs[0].folder.name if len(runs) == 1 else "", args.web):
        return _carry_out_all(found, runs)


def _carry_out_all(found: Sequence[RunRequest], runs: Sequence[RunRequest]) -> int:
    """One after the other; `runs` are those of `found` that were asked for."""
    worst = 0
    for one in found:
        if one.news:
            output.news(one.news)
        status = carry_out(one, execute.recording() if one.arm == RECORDING else execute.training())
        worst = max(worst, status)
        if status == STATUS["stopped"] or (status and not one.is_own):
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
    except ConfigError as error:  # nothing to draw with, most likely: what was played stands
        output.news(f"no report: {error}")


def _planned(request: RunRequest, job: execute.Job) -> compose.Plan:
    return job.plan(request.deploy, run_dir=request.folder, incarnation=uuid.uuid4().hex)


def carry_out(request: RunRequest, job: execute.Job) -> int:
    """Claim the folder of `request`, run its plan for `job` and record how it ended; the exit status.

    What has ended is not started again, unless its settings have changed.
    """
    folder = request.folder.resolve()
    if (ended := request.ended()) is not None:
        _tell_ended(request, ended)
        return STATUS[str(ended.verdict)]
    places.refuse_unwritable(folder.parent, "--runs")
    _refuse_lost(request)
    deploy = request.begins()
    if unfit := _unfit(request, deploy):
        raise ConfigError(unfit)
    open_files.raise_limit()
    plan = job.plan(deploy, run_dir=folder, incarnation=uuid.uuid4().hex)
    if caution := plan.caution():
        output.line(caution, to=sys.stderr)
    run = claim(request, deploy)
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


def claim(request: RunRequest, deploy: Deploy) -> RunFolder:
    """The folder of a run that begins, or goes on, now with the settings `deploy`. Raises ConfigError."""
    folder, begun = request.folder.resolve(), time.time()
    record = RunRecord(
        name=folder.name,
        file=request.file,
        path=deploy_files.lasting(request.file),
        seed=deploy.run.seed,
        build=check_origin().build,
        versions=_versions(),
        started=run_folder.iso(begun),
        started_s=begun,
        experiment=request.experiment,
        arm=request.arm,
        cloned=request.cloned,
        settings=request.settings,
        asked=request.asked,
    )
    run = run_folder.claim(folder, record, resume=request.resume)
    run.write("deploy.yaml", deploy_files.dump(deploy).encode())
    return run


def _tell_ended(request: RunRequest, record: RunRecord) -> None:
    """Say that a run has ended, and what may be done about it."""
    folder, reason = request.folder.resolve(), f" - {record.reason}" if record.reason else ""
    if request.experiment:
        output.news(f"run {folder.name}: {record.verdict} already{reason}")
        if request.arm == RECORDING and record.verdict == "failed":
            taken = f"--set demos.source={folder} --set demos.count=N"
            output.news(f"  take it as it is with  {taken}  and another --name,")
            output.news("  or begin anew under another --name with fewer demos.count or more demos.attempts_per_demo")
        return
    output.news(f"run {folder.name} has ended: {record.verdict}{reason}")
    if record.verb == run_folder.RUN:
        seen = f"{program()} report {run_folder.words_for(folder)}"
        output.news(f"nothing was started; see  {seen}  or go on with  --set PATH=VALUE")


def _unfit(request: RunRequest, deploy: Deploy) -> str:
    """The first thing that this machine lacks, what mends it, and the names of the others; "" where the run can begin.

    A run that has ended needs nothing.
    """
    if request.ended() is not None:
        return ""
    bad = [check for check in doctor.examine(deploy, place=request.folder.resolve().parent) if check.fatal]
    if not bad:
        return ""
    said = f"this machine can't run it: {bad[0].name}: {bad[0].found}; mend it with: {bad[0].mend}"
    if others := ", ".join(check.name for check in bad[1:]):
        said += f"; and {others}"
        if request.asked is not None:  # by a deploy file
            sets = [word for one in request.asked.overrides for word in ("--set", one)]
            said += f": {program()} doctor {shlex.join([request.file, *sets])}"
    return said


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
