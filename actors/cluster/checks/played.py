"""Recorded episodes: `rerun` plays the answers of one again and compares, `reverify` judges kept end states again.

A fault of a rerun leaves nothing to compare. What was not kept is counted as not judged, never as a failure. Nothing of
the run is changed.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.checks.live import Troubles
from actors.cluster.checks.tasks import refuse_unless_fit
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.output import plain
from actors.cluster.report.episodes import EpisodeView, ShownStep
from actors.cluster.runs import ledgers
from actors.cluster.views import episodes
from actors.cluster.views.episodes import EpisodeLine
from actors.desktop.answers import Answer, Prompt, PromptTooLong
from actors.desktop.files.read_home import ReadLimits, as_wanted
from actors.desktop.memo import Memo, file_of, scope
from actors.desktop.player import Play, Player
from actors.desktop.pool.leased import views
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from actors.desktop.recorder import EndState
from actors.desktop.scene import judged_apart, wanted_of
from actors.errors import DesktopFault
from actors.replay.database import queries
from actors.replay.messages import Outcome, StepPayload
from apis.observation import Observation
from apis.prompts.text import Turn
from apis.tasks.registry import task
from apis.tasks.verify.verify import TaskVerdict
from runtime.errors import ConfigError, PayloadLost
from runtime.segments import read_blob
from runtime.system import run as run_loop

PARTS = ("observation", "action", "result")  # of a step
SHOWN_LINES = 12  # of one difference


class Recorded:
    """An answerer that gives the answers of recorded steps, then none."""

    def __init__(self, steps: Sequence[ShownStep]) -> None:
        self._steps = steps

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The recorded answer. Raises PromptTooLong after the last, which ends the episode."""
        if step >= len(self._steps):
            raise PromptTooLong("the recording has no further answer")
        kept = self._steps[step]
        return Answer(
            kept.response, prompt_ids=[], response_ids=[], logprobs=[], spans=[], seconds=0.0,
            refusal=kept.refusal or "",
        )  # fmt: skip


class StepDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What came otherwise: the observation, action or result of a step, or the verdict (step 0)."""

    step: int  # from 1
    what: str
    recorded: str
    again: str


def differences(recorded: EpisodeView, steps: Sequence[StepPayload], outcome: Outcome) -> list[StepDifference]:
    """All of them, in the order of the steps, the verdict last."""
    found = [
        StepDifference(step=number, what=what, recorded=was, again=now)
        for number, (before, after) in enumerate(itertools.zip_longest(recorded.steps, steps), 1)
        for what, was, now in _parts(before, after)
        if was != now
    ]
    was, now = recorded.verdict, _verdict(outcome)
    return found + [StepDifference(step=0, what="verdict", recorded=was, again=now)] * (was != now)


def _verdict(outcome: Outcome) -> str:
    return f"{'success' if outcome.success else 'failure'} ({plain(outcome.reason)})"


def _parts(before: ShownStep | None, after: StepPayload | None) -> Iterator[tuple[str, str, str]]:
    if before is None or after is None:
        yield "step", "taken" if before else "not taken", "taken" if after else "not taken"
        return
    observations = before.observation, after.observation
    actions = before.action or f"refused: {before.refusal}", after.action or f"refused: {after.refusal}"
    results = before.result or "", after.result or ""
    for what, (was, now) in zip(PARTS, (observations, actions, results), strict=True):
        yield what, was, now


async def played_again(deploy: Deploy, recorded: EpisodeView, memo_file: Path | None = None) -> Play:
    """The episode with the desktops, prompts and actions of `deploy`. Raises ConfigError.

    A desktop is booted whatever `desktops.memo` is, or with `memo_file` for what that memo does not know.
    """
    seats = msgspec.structs.replace(
        deploy.desktops, count=1, processes=1, place={}, warm_pool=0, screenshots="none"
    ).within(shares.free())  # fmt: skip
    published, desktops = deploy.evaluation.published_metrics, seats.of_one_host()
    seat = msgspec.structs.replace(seats.seat(deploy.prompt), published_metrics=published)
    memo = None if memo_file is None else await Memo.open(scope(seat, desktops), memo_file)
    pool = await DesktopPool.open(desktops, Path(f"rerun-{os.getpid()}"), Troubles())
    turns = len(recorded.steps) + (recorded.reason != "out_of_steps")
    try:
        return await Player(pool, seat, memo=memo).play(
            recorded.task, lambda _: Recorded(recorded.steps), max_turns=turns
        )
    finally:
        await pool.close()
        if memo is not None:
            await memo.close()


def rerun(run: Path, episode: str, overrides: Sequence[str] = (), *, memo: bool = False, as_json: bool) -> int:
    """Play the `episode` of that trace or token again and print what differs; 1 where anything does, or by a fault.

    With `memo` the run's memo is asked before a desktop. Raises ConfigError.
    """
    deploy_files.refuse_other_keys(overrides)
    deploy = deploy_files.stored(run, overrides)
    one, recorded = episodes.whole(run, episode)
    refuse_unless_fit([one.task], deploy.desktops.provider)
    file = file_of(deploy.desktops.memo_file, run.parent) if memo else None
    play = run_loop(played_again(deploy, recorded, file))
    others = differences(recorded, play.steps, play.outcome) if play.outcome is not None else []
    if as_json:
        output.document({"episode": one, "played": play.outcome is not None, "detail": play.detail,
                         "faults": play.faults, "differences": others})  # fmt: skip
    elif play.outcome is None:
        output.line(output.clean(f"{one.trace} could not be played again: {play.detail}"))
    else:
        _print(one.trace, recorded, play, others)
    return int(play.outcome is None or bool(others))


def _print(trace: str, recorded: EpisodeView, play: Play, found: Sequence[StepDifference]) -> None:
    for one in found[: -1 if found and not found[-1].step else None]:
        output.line(f"step {one.step}: another {one.what}" if one.what != "step" else f"step {one.step}: {one.again}")
        lines = [*difflib.unified_diff(one.recorded.split("\n"), one.again.split("\n"), n=0, lineterm="")][3:]
        output.quoted("\n".join(lines[:SHOWN_LINES]))
        if lines[SHOWN_LINES:]:
            output.line(f"and {len(lines) - SHOWN_LINES} more lines (--json has all)")
    total, others = len(recorded.steps), Counter(one.what for one in found if one.step)
    same = ", ".join(f"{total - others[what] - others['step']} {what}s" for what in PARTS)
    assert play.outcome is not None
    verdict = _verdict(play.outcome)
    as_before = "as recorded" if not found or found[-1].step else f"recorded was {found[-1].recorded}"
    output.line(f"{trace}: as recorded in its {total} steps: {same}")
    output.line(output.clean(f"verdict: {verdict}, {as_before}: {play.detail}", lines=True))


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
                end = EndState.of([read_blob(run / "segments", blob) for blob in steps[-1].end])
                strict = not one.trace.startswith("eval.")
                _count(found, one, await judged_again(one.task, end, published_metrics=asked, strict=strict))
            except PayloadLost:
                left_out["its end state can't be read"] += 1
            except (ConfigError, DesktopFault) as error:
                left_out[str(error)] += 1
    found.left_out = dict(left_out.most_common())
    return found


def _count(found: JudgedAgain, one: EpisodeLine, verdict: TaskVerdict) -> None:
    found.judged += 1
    found.successes_recorded += one.ending == "success"
    if verdict.success is not (one.ending == "success"):
        about = {"trace": one.trace, "token": one.token, "task": one.task, "where": one.where}
        found.changes.append(VerdictChange(**about, success=verdict.success, detail=verdict.reason))  # type: ignore[arg-type]


def reverify(run: Path, family: str | None, *, as_json: bool) -> int:
    """Judge again and print what changes; 1 where anything does. Raises ConfigError where nothing can be judged."""
    found = run_loop(all_of(run, family))
    if as_json:
        output.document(found)
    else:
        _print_verdicts(run, found)
    if not found.judged:
        raise ConfigError(
            f"run {run.name} has no end state that can be judged again{f' of {family}' if family else ''}"
        )
    return int(bool(found.changes))


def _print_verdicts(run: Path, found: JudgedAgain) -> None:
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
