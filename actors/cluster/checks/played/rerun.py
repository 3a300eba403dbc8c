"""A recorded episode played again on a fresh desktop, and what differs.

Invariant: the answers are the recorded ones to the letter. What they do is found out again, by what plays an episode. A
fault is no difference: it leaves nothing to compare.
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
from actors.cluster.checks.tasks.command import refuse_unless_fit
from actors.cluster.checks.tasks.live import Troubles
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.report.episodes import EpisodeView, ShownStep
from actors.cluster.views import episodes
from actors.cluster.words import plain
from actors.desktop.answers import Answer, Prompt, PromptTooLong
from actors.desktop.player import Play, Player
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from actors.replay.messages import Outcome, StepPayload
from apis.observation import Observation
from apis.prompts.text import Turn
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
    was, now = _verdict(success=recorded.success, reason=recorded.reason), _verdict(outcome.success, outcome.reason)
    return found + [StepDifference(step=0, what="verdict", recorded=was, again=now)] * (was != now)


def _verdict(success: bool, reason: str) -> str:
    return f"{'success' if success else 'failure'} ({plain(reason)})"


def _parts(before: ShownStep | None, after: StepPayload | None) -> Iterator[tuple[str, str, str]]:
    if before is None or after is None:
        yield "step", "taken" if before else "not taken", "taken" if after else "not taken"
        return
    observations = before.observation, after.observation
    actions = before.action or f"refused: {before.refusal}", after.action or f"refused: {after.refusal}"
    results = before.result or "", after.result or ""
    for what, (was, now) in zip(PARTS, (observations, actions, results), strict=True):
        yield what, was, now


async def played_again(deploy: Deploy, recorded: EpisodeView) -> Play:
    """The episode with the desktops, prompts and actions of `deploy`. Raises ConfigError.

    Desktops are real whatever `desktops.memo` is.
    """
    seats = msgspec.structs.replace(
        deploy.desktops, count=1, processes=1, place={}, warm_pool=0, screenshots="none"
    ).within(shares.free())  # fmt: skip
    pool = await DesktopPool.open(seats.of_one_host(), Path(f"rerun-{os.getpid()}"), Troubles())
    published = deploy.evaluation.published_metrics
    player = Player(pool, msgspec.structs.replace(seats.seat(deploy.prompt), published_metrics=published))
    turns = len(recorded.steps) + (recorded.reason != "out_of_steps")
    try:
        return await player.play(recorded.task, lambda _: Recorded(recorded.steps), max_turns=turns)
    finally:
        await pool.close()


def show(run: Path, episode: str, overrides: Sequence[str] = (), *, as_json: bool) -> int:
    """Play the `episode` of that trace or token again and print what differs; 1 where anything does, or by a fault.

    Raises ConfigError.
    """
    deploy_files.refuse_other_keys(overrides)
    deploy = deploy_files.stored(run, overrides)
    one, recorded = episodes.whole(run, episode)
    refuse_unless_fit([one.task], deploy.desktops.provider)
    play = run_loop(played_again(deploy, recorded))
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
    verdict = _verdict(play.outcome.success, play.outcome.reason)
    as_before = "as recorded" if not found or found[-1].step else f"recorded was {found[-1].recorded}"
    output.line(f"{trace}: as recorded in its {total} steps: {same}")
    output.line(output.clean(f"verdict: {verdict}, {as_before}: {play.detail}", lines=True))
