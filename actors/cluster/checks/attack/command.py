"""`tasks attack`: from arguments to a verdict on the verdicts.

Invariant: the exit status is 0 only when no cheat passed, each was really tried, and every requested task was played.
Every oracle has to pass without a cheat, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import msgspec

from actors.cluster import output
from actors.cluster.checks.attack.battery import AttackedBody, CheatResult
from actors.cluster.checks.attack.cheats import CHEATS
from actors.cluster.checks.attack.scene import DONE, UNTOUCHED
from actors.cluster.checks.tasks.command import chosen, refuse_counts, refuse_unless_fit, seats_of
from actors.cluster.checks.tasks.live import ClaimsAtOnce, Troubles, in_turns
from actors.cluster.config import models, tasksets
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.config import PromptConfig
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.replay.config import EVERY, TaskRange
from apis.tasks import registry as tasks
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.system import run as run_loop

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


def attack(args: argparse.Namespace) -> int:
    """Cheat on what `args.suite` names; the exit status."""
    refuse_counts(args)
    ids, whens = _asked(args)
    seats = seats_of(args)
    refuse_unless_fit([listed[0] for listed in ids.values()], seats.provider)
    requests = [CheatRequest(task, when) for listed in ids.values() for task in listed for when in whens]
    tried: list[CheatResult] = []
    plays: list[CheatedEpisode] = []
    if not args.json:
        output.line(
            f"{len(requests)} episodes to cheat on, {args.desktops} desktops at a time (Ctrl-C: finish and sum up)"
        )
    shown, tokenizer = output.Progress(as_json=args.json), Tokenizer.load(models.locate(""))

    async def one(pool: DesktopPool, config: SeatsConfig, request: CheatRequest) -> None:
        results, played = await _one(pool, config, request, tokenizer)
        tried.extend(results)
        plays.append(played)
        passed, idle = sum(result.passed for result in tried), sum(bool(result.trouble) for result in tried)
        shown.line(f"episodes {len(plays)}/{len(requests)}  cheats {len(tried)}  passed {passed}  not tried {idle}")

    whole = run_loop(in_turns(requests, seats, Troubles(), one))
    return _show(tried, plays, args, whole=whole)


def _asked(args: argparse.Namespace) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """The tasks by family, and when they are cheated on. A task set has no oracle. Raises ConfigError."""
    if not tasksets.is_of_files(args.suite):
        return chosen(args, static=False), (DONE, UNTOUCHED)
    if args.family or args.split:
        raise ConfigError("--family and --split are of suites: a task set has neither")
    playable = tasksets.chosen(TaskRange(set=args.suite, first=args.first, count=EVERY))
    return {args.suite: playable[: args.instances]}, (UNTOUCHED,)


async def _one(
    pool: DesktopPool, config: SeatsConfig, request: CheatRequest, tokenizer: Tokenizer
) -> tuple[list[CheatResult], CheatedEpisode]:
    task, cheats = tasks.task(request.task), [cheat for cheat in CHEATS if cheat.when == request.when]
    results: dict[str, CheatResult] = {}  # by cheat: a fault has all of them tried again

    def heard(result: CheatResult) -> None:
        results[result.cheat] = result

    player = Player(pool, config.seat(PromptConfig()), desktop=lambda booted: AttackedBody(booted, task, cheats, heard))
    number, done = request.task.split("/")[2], request.when == DONE
    seed = int(number) if number.isdecimal() else 0
    play = await player.play(request.task, demonstrated(tokenizer) if done else lambda _: ClaimsAtOnce(), seed=seed)
    right = play.outcome is not None and play.success == done
    return [*results.values()], CheatedEpisode(task=request.task, when=request.when, right=right, detail=play.detail)


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
