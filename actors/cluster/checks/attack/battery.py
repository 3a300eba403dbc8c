"""Tries cheats on one desktop, one after the other, each on HOME as its episode left it.

Invariant: an episode's verifier judges each cheat, and in the end the cheated episode itself. The last verdict shows
that HOME was put back, and that a cheat failed for its own sake. A cheat whose program fails or changes nothing in HOME
has a `trouble` and counts as neither passed nor refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import asyncssh
import msgspec

from actors.cluster.checks.attack.cheats import Cheat
from actors.cluster.checks.attack.scene import DONE, Scene
from actors.desktop.link import connect
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import Frozen, LeasedDesktop
from actors.desktop.provider import Desktop
from actors.errors import DesktopFault, GuestRefused
from apis.tasks import registry as tasks
from apis.tasks.osworld import Task
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import TaskVerdict, WantedFile
from apis.tasksets.judge import NOTHING, Judging, told_as_published

SCRIPT_S = 300.0  # for one cheat, which may start the office on a busy machine
PATH = "/usr/bin:/bin:/usr/sbin"
_KEPT = "/tmp/kept"  # noqa: S108 - of the desktop
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
                await _run(connection, _KEEP)
                kept = (await self.look([])).manifest
                for cheat, script in scripts:
                    began = time.monotonic()
                    failed = await _run(connection, script)
                    told = await self._said(judging)
                    seen = await self.look(wanted, judging)
                    told |= {name: told_as_published(out, self.home) for name, out in seen.outputs.items()}
                    verdict = tasks.judged(self._task, seen.read, self._before, seen.manifest, told)
                    why = trouble(cheat, failed, verdict, changed=seen.manifest != kept)
                    await _run(connection, _BACK)
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
        """What the live desktop answers to what it is asked, after a cheat as before it."""
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


@asynccontextmanager
async def _connected(desktop: Desktop) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with asyncio.timeout(SCRIPT_S):
        connection = await connect(desktop)
    try:
        yield connection
    finally:
        connection.abort()


async def _run(connection: asyncssh.SSHClientConnection, script: str) -> str:
    """Run a program of the desktop's shell in HOME. Returns how it failed, "" where its status is 0."""
    async with asyncio.timeout(SCRIPT_S):
        # A cheat before this one may have forged programs, and the way to them.
        done = await connection.run(f"cd && PATH={PATH} exec /bin/sh -s", input=script + "\n", check=False)
    return "" if done.exit_status == 0 else f"status {done.exit_status}: {str(done.stderr).strip()[-200:]}"
