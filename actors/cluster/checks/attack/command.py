"""`tasks attack`: from arguments to a verdict on the verdicts.

Invariant: the exit status is 0 only when no cheat passed, each was really tried, and every requested task was played.
Every oracle has to pass without a cheat, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.checks.attack import attributes, damage, forgery, office
from actors.cluster.checks.attack.battery import AttackedBody, CheatResult
from actors.cluster.checks.attack.scene import DONE, UNTOUCHED
from actors.cluster.checks.tasks.command import chosen, refuse_unless_fit, splits_for
from actors.cluster.checks.tasks.display import Progress, stream
from actors.cluster.checks.tasks.live import Troubles
from actors.cluster.config import deploy_files, models, tasksets
from actors.cluster.config.schema import SeatsConfig
from actors.cluster.config.suites import load
from actors.desktop.answers import Answer, Answerer, Prompt
from actors.desktop.config import PromptConfig
from actors.desktop.player import Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from actors.replay.config import EVERY, TaskRange
from actors.replay.messages import Reservation
from apis.observation import Observation
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.program import stop_event
from runtime.system import run as run_loop

CHEATS = (*damage.CHEATS, *attributes.CHEATS, *forgery.CHEATS, *office.CHEATS)
SHOWN = 20


class CheatRequest(msgspec.Struct, frozen=True):
    """One task, cheated on after its oracle or in its place."""

    task: str
    when: str


class CheatedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """The episode that was cheated on: `right` when its own verdict is what it should be."""

    task: str
    when: str
    right: bool
    detail: str


class _Claims:
    """Claims success at once."""

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        text = "Agent.exit(success=True)"
        return Answer(text=text, prompt_ids=[1], response_ids=[1], logprobs=[], spans=[], seconds=0.0)


def attack(args: argparse.Namespace) -> int:
    """Cheat on what `args.suite` names; the exit status."""
    if args.instances < 1 or args.first < 0 or args.desktops < 1:
        raise ConfigError("--instances and --desktops count from 1, --first from 0")
    ids, whens = _asked(args)
    seats = SeatsConfig(
        count=args.desktops, warm_pool=min(2, args.desktops), screenshots="none",
        provider=deploy_files.provider_set(args.overrides),
    )  # fmt: skip
    refuse_unless_fit([listed[0] for listed in ids.values()], seats.provider)
    requests = [CheatRequest(task, when) for listed in ids.values() for task in listed for when in whens]
    tried: list[CheatResult] = []
    plays: list[CheatedEpisode] = []
    if not args.json:
        output.line(
            f"{len(requests)} episodes to cheat on, {args.desktops} desktops at a time (Ctrl-C: finish and sum up)"
        )
    with Progress(stream(as_json=args.json)) as shown:

        def told() -> None:
            passed, not_tried = sum(one.passed for one in tried), sum(bool(one.trouble) for one in tried)
            shown.line(
                f"episodes {len(plays)}/{len(requests)}  cheats {len(tried)}  passed {passed}  not tried {not_tried}"
            )

        whole = run_loop(_all(requests, seats, tried, plays, told))
    return _show(tried, plays, args, whole=whole)


def _asked(args: argparse.Namespace) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """The tasks by family, and when they are cheated on. A task set has no oracle. Raises ConfigError."""
    if tasksets.is_of_files(args.suite):
        if args.family or args.split:
            raise ConfigError("--family and --split are of suites: a task set has neither")
        found = tasksets.chosen(TaskRange(set=args.suite, first=args.first, count=EVERY))[: args.instances]
        return {args.suite: found}, (UNTOUCHED,)
    suite = load(args.suite)
    splits = splits_for(args.split, static=False)
    return chosen(suite, args.family, splits, args.first, args.instances), (DONE, UNTOUCHED)


async def _all(
    requests: list[CheatRequest],
    seats: SeatsConfig,
    tried: list[CheatResult],
    plays: list[CheatedEpisode],
    told: Callable[[], None],
) -> bool:
    """Play every request; False when it was interrupted."""
    tokenizer = Tokenizer.load(models.locate(""))
    config = seats.within(shares.free(), "--desktops")
    pool = await DesktopPool.open(config.of_one_host(), Path(f"attack-{os.getpid()}"), Troubles())
    try:
        with stop_event() as stop:

            async def seat(left: Iterator[CheatRequest]) -> None:
                for request in left:
                    found, played = await _one(pool, config, request, tokenizer)
                    tried.extend(found)
                    plays.append(played)
                    told()
                    if stop.is_set():
                        return

            left = iter(requests)
            async with asyncio.TaskGroup() as group:
                for _ in range(seats.count):
                    group.create_task(seat(left))
            return not stop.is_set()
    finally:
        await pool.close()


async def _one(
    pool: DesktopPool, config: SeatsConfig, request: CheatRequest, tokenizer: Tokenizer
) -> tuple[list[CheatResult], CheatedEpisode]:
    task, cheats = tasks.task(request.task), [cheat for cheat in CHEATS if cheat.when == request.when]
    found: dict[str, CheatResult] = {}  # by cheat: a fault has all of them tried again

    def heard(one: CheatResult) -> None:
        found[one.cheat] = one

    player = Player(pool, config.seat(PromptConfig()), desktop=lambda booted: AttackedBody(booted, task, cheats, heard))
    number = request.task.split("/")[2]
    seed = int(number) if number.isdecimal() else 0
    play = await player.play(request.task, _answers(request, tokenizer), seed=seed)
    return [*found.values()], _judged(request, play)


def _answers(request: CheatRequest, tokenizer: Tokenizer) -> Callable[[Reservation], Answerer]:
    return demonstrated(tokenizer) if request.when == DONE else lambda _: _Claims()


def _judged(request: CheatRequest, play: Play) -> CheatedEpisode:
    right = play.outcome is not None and play.success == (request.when == DONE)
    return CheatedEpisode(task=request.task, when=request.when, right=right, detail=play.detail)


def _show(tried: list[CheatResult], plays: list[CheatedEpisode], args: argparse.Namespace, *, whole: bool) -> int:
    passed = [one for one in tried if one.passed]
    wrong = [one for one in plays if not one.right]
    idle = [one for one in tried if one.trouble]
    good = whole and not passed and not wrong and not idle
    if args.json:
        output.document({"ok": good, "interrupted": not whole, "cheats": tried, "wrong": wrong})
        return 0 if good else 1
    for one in passed[:SHOWN]:
        output.line(f"\n{one.task}: {one.cheat!r} passed: {one.reason}\n    {one.script[:300]}")
    for one in idle[:SHOWN]:
        output.line(f"\n{one.task}: {one.cheat!r} was not tried: {one.trouble}")
    for play in wrong[:SHOWN]:
        what = "its oracle did not pass" if play.when == DONE else "nothing was done, and it was not refused"
        output.line(f"\n{play.task}: {what}: {play.detail}")
    output.line()
    output.table(("CHEAT", "AFTER", "TRIED", "PASSED", "NOT TRIED", "FAMILIES", "MEDIAN MS", "WHAT"), [*_rows(tried)])
    output.line()
    families = len({one.family for one in tried})
    verdict = "good" if good else "not good" if whole else "interrupted"
    output.prose(
        f"{len(tried)} cheats on {len(plays)} episodes of {families} families: {len(passed)} passed,"
        f" {len(idle)} not really tried, {len(wrong)} episodes judged wrong: {verdict}"
    )
    return 0 if good else 1


def _rows(tried: list[CheatResult]) -> Iterator[tuple[object, ...]]:
    for cheat in CHEATS:
        mine = [one for one in tried if one.cheat == cheat.name]
        if mine:
            passed, took = sum(one.passed for one in mine), sorted(one.wall_s for one in mine)[len(mine) // 2]
            after = "oracle" if cheat.when == DONE else "nothing"
            families = len({one.family for one in mine})
            yield (
                cheat.name,
                after,
                len(mine),
                f"{passed}{'!' * bool(passed)}",
                sum(bool(one.trouble) for one in mine),
                families,
                f"{1e3 * took:.0f}",
                cheat.about,
            )
