"""Kept end states judged again, by the verifiers of today.

Invariant: an episode is judged only from all that its verifier reads today. What was not kept is counted as not judged,
never as a failure. Nothing of the run is changed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.cluster.runs import ledgers
from actors.cluster.views import episodes
from actors.cluster.views.episodes import EpisodeLine
from actors.desktop.files.read_home import ReadLimits, as_wanted
from actors.desktop.pool.leased import views
from actors.desktop.recorder import EndState
from actors.desktop.scene import judged_apart, wanted_of
from actors.errors import DesktopFault
from actors.replay.database import queries
from actors.replay.messages import StepRef
from apis.tasks.registry import task
from apis.tasks.verify.verify import TaskVerdict
from runtime.errors import ConfigError, PayloadLost
from runtime.segments import read_blob
from runtime.system import run as run_loop

_NOW = ("failure", "success")
JUDGED = ("verified", "not_verified")  # reasons that a verifier gives


class VerdictChange(msgspec.Struct, frozen=True, kw_only=True):
    """An episode whose verdict is another one today."""

    trace: str
    token: int
    task: str
    where: str
    success: bool  # today
    detail: str  # the verifier's sentence of today


class JudgedAgain(msgspec.Struct, kw_only=True):
    """What came of all episodes that a verifier had judged. `left_out` counts by the reason."""

    judged: int = 0
    successes_recorded: int = 0  # of those that were judged again
    changes: list[VerdictChange] = []
    left_out: dict[str, int] = {}


async def judged_again(
    task_id: str, end: EndState, *, published_metrics: bool = False, strict: bool = True
) -> TaskVerdict:
    """The verdict of today. Raises ConfigError where the task is gone or wants what was not kept, DesktopFault."""
    of = task(task_id)
    wanted = wanted_of(of, end.before)
    kept = {file.path: file for file in end.files}
    if missing := [one.path for one in wanted if one.path not in kept]:
        raise ConfigError(f"{missing[0]} is read today and was not kept")
    seen = await as_wanted(wanted, [kept[one.path] for one in wanted], ReadLimits())
    read = views(seen, end.home)
    return await judged_apart(
        of, read, end.before, end.after, end.outputs, published_metrics=published_metrics, strict=strict
    )


async def all_of(run: Path, family: str | None) -> JudgedAgain:
    """Every episode of `run`, or of its tasks of `family`. Raises ConfigError where there is no ledger."""
    found, left_out = JudgedAgain(), Counter[str]()
    asked = deploy_files.stored(run).evaluation.published_metrics
    with ledgers.opened(run) as db:
        for one in [*map(episodes.line_of, queries.episodes(db))]:  # at once: judging is slow, and a run may write
            if one.reason not in JUDGED or family not in (None, one.task.partition("/")[0]):
                continue
            steps = queries.steps_of(db, one.token) if one.stored else []
            if not steps or not steps[-1].end:
                left_out["no end state was kept" if steps else "its steps have been deleted"] += 1
                continue
            try:
                end, strict = _read(run, steps[-1]), not one.trace.startswith("eval.")
                _count(found, one, await judged_again(one.task, end, published_metrics=asked, strict=strict))
            except PayloadLost:
                left_out["its end state can't be read"] += 1
            except (ConfigError, DesktopFault) as error:
                left_out[str(error)] += 1
    found.left_out = dict(left_out.most_common())
    return found


def _read(run: Path, step: StepRef) -> EndState:
    return EndState.of([read_blob(run / "segments", blob) for blob in step.end])


def _count(found: JudgedAgain, one: EpisodeLine, verdict: TaskVerdict) -> None:
    was = one.ending == "success"
    found.judged += 1
    found.successes_recorded += was
    if verdict.success is not was:
        found.changes.append(
            VerdictChange(
                trace=one.trace, token=one.token, task=one.task, where=one.where, success=verdict.success,
                detail=verdict.reason,
            )
        )  # fmt: skip


def show(run: Path, family: str | None, *, as_json: bool) -> int:
    """Judge again and print what changes; 1 where anything does. Raises ConfigError where nothing can be judged."""
    found = run_loop(all_of(run, family))
    if as_json:
        output.document(found)
    else:
        _print(run, found)
    if not found.judged:
        raise ConfigError(
            f"run {run.name} has no end state that can be judged again{f' of {family}' if family else ''}"
        )
    return int(bool(found.changes))


def _print(run: Path, found: JudgedAgain) -> None:
    if found.changes:
        rows = [(one.trace, one.task, one.where, _NOW[not one.success], _NOW[one.success], one.detail)
                for one in found.changes]  # fmt: skip
        output.table(("EPISODE", "TASK", "PLAYED IN", "WAS", "IS", "BECAUSE"), rows)
        output.line()
    for why, count in found.left_out.items():
        output.line(output.clean(f"{count} not judged: {why}"))
    if found.judged:
        gained = sum(1 if one.success else -1 for one in found.changes)
        before, after = found.successes_recorded, found.successes_recorded + gained
        output.prose(
            f"{run.name}: {found.judged} end states judged again, {len(found.changes)} with another verdict; successes"
            f" {before} -> {after}, {before / found.judged:.3f} -> {after / found.judged:.3f}"
        )
