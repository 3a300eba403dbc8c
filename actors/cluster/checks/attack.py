"""`tasks attack`: tries cheats on desktops, one after the other, each on HOME as its episode left it.

Invariant: an episode's verifier judges each cheat, and in the end the cheated episode itself: so HOME was put back, and
a cheat failed for its own sake. A cheat whose program fails or changes nothing in HOME has a `trouble` and counts as
neither passed nor refused. The exit status is 0 only when no cheat passed, each was really tried, and every requested
task was played. Every oracle has to pass without a cheat, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import asyncssh
import msgspec

from actors.cluster import output
from actors.cluster.checks.cheats import CHEATS, DONE, UNTOUCHED, Cheat, Scene
from actors.cluster.checks.live import ClaimsAtOnce, Troubles, in_turns
from actors.cluster.checks.tasks import chosen, refuse_unless_fit, seats_of
from actors.cluster.config import models, tasksets
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.config import PromptConfig
from actors.desktop.link import connect
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import Frozen, LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import Desktop
from actors.errors import DesktopFault, GuestRefused
from actors.replay.config import EVERY, TaskRange
from apis.tasks import registry as tasks
from apis.tasks.osworld import Task
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import TaskVerdict, WantedFile
from apis.tasksets.judge import NOTHING, Judging, told_as_published
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.system import run as run_loop

SHOWN = 20
LOOKS = 6  # at HOME, until two in turn are alike
SCRIPT_S = 300.0  # for one cheat, which may start the office on a busy machine
PATH = "/usr/bin:/bin:/usr/sbin"
# Of the desktop, or of its machine, on which others may be cheated on.
_KEPT = '"/tmp/kept$(pwd -P | tr / _)"'
_KEEP = f"rm -rf {_KEPT}; cp -a . {_KEPT}"
# What a cheat has locked up must be opened to be removed; programs that run may write meanwhile.
_BACK = f"chmod -R u+rwX . 2>/dev/null; find . -mindepth 1 -delete; cp -a {_KEPT}/. ."


class CheatResult(msgspec.Struct, frozen=True, kw_only=True):
    """One cheat on one task."""

    task: str
    family: str
    cheat: str
    passed: bool
    reason: str  # the verifier's sentence
    trouble: str = ""  # why the cheat was not really tried
    script: str
    wall_s: float


class AttackedBody(LeasedDesktop):
    """A desktop on which, before an episode is judged, each of `cheats` is tried; `heard` is told what came of it."""

    def __init__(
        self, booted: BootedDesktop, task: Task, cheats: Sequence[Cheat], heard: Callable[[CheatResult], None]
    ) -> None:
        super().__init__(booted)
        self._task, self._cheats, self._heard = task, cheats, heard
        self._before = Manifest()

    async def manifest(self, timeout_s: float, sought: tuple[str, ...] = ()) -> Manifest:
        """See `LeasedDesktop.manifest`."""
        self._before = await super().manifest(timeout_s, sought)
        return self._before

    async def frozen_files(self, wanted: list[WantedFile], timeout_s: float, judging: Judging = NOTHING) -> Frozen:
        """See `LeasedDesktop.frozen_files`; the cheats come first."""
        scene, of_set = Scene(self._task, self._before), tasks.of_set(self._task.id)
        cheats = [cheat for cheat in self._cheats if cheat.files or not of_set]
        scripts = [(cheat, script) for cheat in cheats if (script := cheat.script(scene)) is not None]
        try:
            async with _connected(self._desktop) as connection:
                kept, failed = Manifest(), ""
                for _ in range(LOOKS):  # on a slow machine a program may still be at what the last action asked for
                    if (there := (await self.look([])).manifest) == kept:
                        break
                    kept = there
                    failed = await _run(connection, self.home, _KEEP)
                if failed:
                    raise DesktopFault("attack_failed", f"HOME can't be put back later: {failed}"[:300], "host")
                for cheat, script in scripts:
                    began = time.monotonic()
                    failed = await _run(connection, self.home, script)
                    told = await self._said(judging)
                    seen = await self.look(wanted, judging)
                    told |= {name: told_as_published(out, self.home) for name, out in seen.outputs.items()}
                    verdict = tasks.judged(self._task, seen.read, self._before, seen.manifest, told)
                    why = trouble(cheat, failed, verdict, changed=seen.manifest != kept)
                    await _run(connection, self.home, _BACK)
                    self._heard(
                        CheatResult(
                            task=self._task.id,
                            family=scene.kind,
                            cheat=cheat.name,
                            passed=verdict.success and not cheat.harmless and not (why and cheat.when == DONE),
                            reason=verdict.reason,
                            trouble=why,
                            script=script,
                            wall_s=time.monotonic() - began,
                        )
                    )
        except (OSError, asyncssh.Error) as error:
            raise DesktopFault("attack_failed", f"{type(error).__name__}: {error}"[:300], "host") from error
        return await super().frozen_files(wanted, timeout_s, judging)

    async def _said(self, judging: Judging) -> dict[str, str]:
        told = {}
        for call in (call for call in judging.live if call.kept):
            with contextlib.suppress(GuestRefused):
                told[call.kept] = told_as_published((await self.call(call.method, call.args, SCRIPT_S)).out, self.home)
        return told


def trouble(cheat: Cheat, failed: str, verdict: TaskVerdict, *, changed: bool) -> str:
    """Why `cheat` was not really tried, "" where it was; `failed` is how its program failed."""
    if failed:
        return f"its program failed: {failed}"
    if not changed and not cheat.idle:
        return "it changed nothing in HOME"
    return f"it is harmless and was refused: {verdict.reason}" if cheat.harmless and not verdict.success else ""


@contextlib.asynccontextmanager
async def _connected(desktop: Desktop) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with asyncio.timeout(SCRIPT_S):
        connection = await connect(desktop)
    try:
        yield connection
    finally:
        connection.abort()


async def _run(connection: asyncssh.SSHClientConnection, home: str, script: str) -> str:
    """Run a shell script in `home` on the desktop. Returns how it failed, "" where its status is 0."""
    async with asyncio.timeout(SCRIPT_S):
        # A cheat before this one may have forged programs, and the way to them. A session's HOME is not its user's.
        order = f"export HOME={shlex.quote(home)}; cd && PATH={PATH} exec /bin/sh -s"
        done = await connection.run(order, input=script + "\n", check=False)
    return "" if done.exit_status == 0 else f"status {done.exit_status}: {str(done.stderr).strip()[-200:]}"


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
