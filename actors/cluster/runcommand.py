"""From the arguments of `run` to its exit status.

Invariant: nothing is started before the file, the machine and the run folder have been found good, and whatever then
happens is recorded in `run.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import resource
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from actors.cluster import compose, deployfile, doctor, places, runfolder, say, typed
from actors.cluster.config import Deploy
from runtime.errors import ConfigError
from runtime.origin import check_origin

if TYPE_CHECKING:
    from actors.cluster import execute

STATUS = {"ok": 0, "failed": 1, "crashed": 1, "stopped": 130}
_VERSIONS = ("computerrl", "torch", "megatron-core", "msgspec", "asyncssh", "transformers", "uvloop")


def dry_run(deploy: Deploy, file: str, runs: str, *, as_json: bool) -> int:
    """Print the plan of a run in the folder `runs`."""
    plan = compose.plan(deploy, run_dir=Path(runs) / Path(file).stem, incarnation="dry-run")
    if as_json:
        say.document({"file": file, "hosts": plan.host_rows(), "actors": plan.actor_rows(), "summary": plan.summary()})
        return 0
    say.line(f"{file}: good\n")
    say.table(("HOST", "ACTORS"), plan.host_rows())
    say.line()
    say.table(("ACTOR", "COUNT", "WHAT"), plan.actor_rows())
    say.line()
    for label, value in plan.summary():
        say.line(f"{label:<14}{value}")
    return 0


def start(args: argparse.Namespace) -> int:
    """Run, or continue a run; the exit status."""
    begun = time.time()
    runs = Path(args.runs)
    path = deployfile.locate(args.file)
    name = args.name or f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(begun))}"
    places.refuse_bad_name(name)
    folder = runs / name
    if args.resume:
        folder = _to_resume(runs, args.name, path, args.file)
        deploy = typed.read(folder / "deploy.yaml", Deploy, args.overrides)
    else:
        deploy, _ = deployfile.load(args.file, args.overrides)
    folder = folder.resolve()

    def planned() -> compose.Plan:
        return compose.plan(deploy, run_dir=folder, incarnation=uuid.uuid4().hex)

    return carry_out(deploy, folder, planned, Labels(args.file, args.runs, begun), resume=args.resume)


class Labels(NamedTuple):
    """What a run is called in `run.json` and in the commands that it suggests."""

    file: str  # a deploy file, or the command that the run was started by
    runs: str  # --runs as given
    begun: float  # wall seconds
    experiment: str = ""  # what this run is one of
    arm: str = ""


def carry_out(
    deploy: Deploy,
    folder: Path,
    planned: Callable[[], compose.Plan],
    labels: Labels,
    *,
    resume: bool,
    job: execute.Job | None = None,
) -> int:
    """Claim `folder`, run the plan for `job` (default: training) and record how it ended; the exit status."""
    places.refuse_unwritable(folder.parent, "--runs")
    _refuse_unless_fit(deploy, folder.parent)
    _raise_file_limit()
    plan = planned()
    record = runfolder.RunRecord(
        name=folder.name,
        file=labels.file,
        seed=deploy.run.seed,
        build=check_origin().build,
        versions=_versions(),
        started=runfolder.iso(labels.begun),
        started_s=labels.begun,
        experiment=labels.experiment,
        arm=labels.arm,
    )
    run = runfolder.claim(folder, record, resume=resume)
    (folder / "deploy.yaml").write_text(deployfile.dump(deploy), encoding="utf-8")
    named = f"{folder.name}{runfolder.runs_flag(folder.parent)}"
    verdict: str = "crashed"
    reason: str | None = "ended unexpectedly"
    try:
        from actors.cluster import execute
        from runtime.system import run as run_loop

        say.line(f"run {folder.name}{' resumed' if resume else ''}   (computerrl logs {named} -f)")
        verdict, reason = run_loop(execute.execute(plan, run.record, job))
    except KeyboardInterrupt:
        verdict, reason = "stopped", "interrupted"
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        run.end(verdict, reason)
    say.line(f"run {folder.name}: {verdict}{f' - {reason}' if reason else ''}")
    if verdict == "crashed":
        say.line(f"see  computerrl logs {named} --level warning")
    if verdict in ("crashed", "stopped"):
        say.line(f"continue with  {runfolder.to_continue(record, folder)}")
    return STATUS[verdict]


def _to_resume(runs: Path, name: str | None, path: Path, file: str) -> Path:
    if name is None:
        return runfolder.newest_of(runs, path.stem, file)
    return runfolder.named(runs, name, [found.name for found, _ in runfolder.all_runs(runs)], "run")


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
