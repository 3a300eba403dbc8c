"""Commands that judge, over a copy of a frozen HOME.

Invariant: what the policy has left is data here. Each command runs in a sandbox of its own, without network and rights,
with this machine's programs and an environment that no file of HOME has a part in. Time, memory, processes, room and
output are bounded. What a command leaves running ends with it, and the copy goes with its desktop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.provider import Outside
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import cgroups, command, sandbox
from actors.errors import DesktopFault
from apis.guest.session.members import descendants, kill
from apis.plans.action import Call

COPY_S = 30.0
GONE_S = 2.0  # for what is killed
SPARE_S = 5.0  # beyond a command's own time, for its sandbox to start and end
OUT_BYTES = 256 << 10
ROOM_BYTES = 512 << 20  # where the desktop's own disk has no bound
# Those of the desktop that a command counts for. None is frozen: the desktop has been stopped by signals.
GROUPS = (*cgroups.LIMITED, cgroups.UNIFIED)
# What lies at the path is replaced: a link there is not followed, one above it leads nowhere but into the copy.
_WRITING = ("/bin/sh", "-c", 'mkdir -p -- "$(dirname -- "$1")" && rm -rf -- "$1" && exec cat > "$1"')
_APPENDING = ("/bin/sh", "-c", 'exec cat >> "$1"')
_WAITING = ("sh", "-c", 'read -r _ && exec "$@"', "sh")  # until it has been put into its groups
_NOT_STARTED = b"bwrap: execvp "
_FULL = b"No space left on device"


class Tried(msgspec.Struct, frozen=True):
    """The copy, and what commands wrote, by the names that their calls are kept under; or why nothing was tried."""

    home: str = ""
    outputs: Mapping[str, str] = {}
    trouble: str = ""


async def held(outside: Outside, calls: Iterable[Call]) -> Tried:
    """Copy HOME of a frozen desktop and carry out `calls` (run, write_file) there. Raises DesktopFault."""
    trial = _Trial(outside)
    try:
        await asyncio.to_thread(trial.make_room)
    except OSError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"no room to judge in: {error}"[:300]) from error
    if trouble := await trial.copy():
        return Tried(trouble=trouble)
    outputs = {}
    for call in calls:
        if call.method == "write_file":
            writer = _APPENDING if call.args.get("append") else _WRITING
            await trial.run([*writer, "sh", call.args["path"]], {}, COPY_S, call.args["data"])
            continue
        ended = await trial.run(call.args["argv"], call.args.get("env") or {}, call.args["timeout_ms"] / 1000)
        if call.kept and ended is not None:
            outputs[call.kept] = (ended.errors if call.args.get("errors") else ended.out).decode("utf-8", "replace")
    return Tried(str(trial.home), outputs)


class _Ended(NamedTuple):
    """How a command ended; its status is None at its deadline."""

    code: int | None
    out: bytes  # up to `OUT_BYTES`, as `errors`
    errors: bytes


class _Trial:
    """The copy of one HOME, and how commands run over it. What it takes counts for its desktop."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._place = Path(outside.trial)
        self.home = self._place / "home"
        self._filter = command.filter_program(user_namespaces=False)
        self._groups = {name: folder for name, folder in outside.cgroups.items() if name in GROUPS}

    def make_room(self) -> None:
        """A disk like the desktop's own. Blocks. Raises OSError."""
        if self._place.exists():  # of a look before this one
            sandbox.unmount(self._place)
            sandbox.remove_folder(self._place)
        above = Path(self._outside.home).parent
        size = os.statvfs(above)
        bound = size.f_blocks * size.f_frsize if os.path.ismount(above) else ROOM_BYTES
        sandbox.make_disk(self._place, self._outside.uid, bound)

    async def copy(self) -> str:
        """Fill the copy; why there is none, or "". What the desktop's user may not read is left out.

        Raises DesktopFault where it takes too long: a desktop's disk is small.
        """
        ended = await self._spoken(["cp", "-a", "--", f"{self._outside.home}/.", str(self.home)], COPY_S)
        if ended.code is None:
            raise DesktopFault("verify_timeout", f"HOME was not copied within {COPY_S:g} s", "verifier")
        if _FULL in ended.errors or ended.code < 0:
            return "HOME does not fit into what a desktop has a second time"
        locked = os.stat(self._outside.home).st_mode & 0o500 != 0o500
        return "HOME itself is locked" if locked else ""

    async def run(self, argv: list[str], env: Mapping[str, str], limit_s: float, data: bytes = b"") -> _Ended | None:
        """What a command writes; None where there is no such program. Raises DesktopFault."""
        ended = await self._apart(argv, env, limit_s, data)
        if ended.code == 1 and ended.errors.startswith(_NOT_STARTED):
            return None
        if ended.code == 1 and ended.errors.startswith(b"bwrap: "):  # a command may say so itself
            sane = await self._apart(["/bin/true"], {}, SPARE_S)
            if sane.code != 0:
                raise fault(FaultCause.OUTSIDE_VIEW, f"no sandbox to judge in: {sane.errors[:200]!r}")
        return ended

    async def _apart(self, argv: list[str], env: Mapping[str, str], limit_s: float, data: bytes = b"") -> _Ended:
        with command.filter_opened(self._filter) as filter_fd:
            line = command.trial_command(
                filter_fd=filter_fd, home=self.home, tmp=self._place / "tmp", shared=Path(self._outside.shared),
                editor=home.editor_place(), env=env, argv=argv,
            )  # fmt: skip
            return await self._spoken(line, limit_s, data, [filter_fd] if self._filter else [])

    async def _spoken(self, line: list[str], limit_s: float, data: bytes = b"", fds: Sequence[int] = ()) -> _Ended:
        """How a program of the desktop's user ended. What is left of it is killed."""
        process = await asyncio.create_subprocess_exec(
            *command.as_user(self._outside.uid), *command.bounded(int(limit_s) + 1), *_WAITING, *line,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env=command.environment(), pass_fds=fds,
        )  # fmt: skip
        try:
            cgroups.enter(self._groups, [process.pid])
            async with asyncio.timeout(limit_s + SPARE_S):
                return await _heard(process, data)
        except TimeoutError:
            return _Ended(None, b"", b"")
        finally:
            if process.returncode is None:
                await _killed(process)


async def _heard(process: asyncio.subprocess.Process, data: bytes) -> _Ended:
    assert process.stdin is not None
    writing = asyncio.ensure_future(_given(process.stdin, b"\n" + data))
    try:
        out, errors = await asyncio.gather(_kept(process.stdout), _kept(process.stderr))
        return _Ended(await process.wait(), out, errors)
    finally:
        writing.cancel()


async def _kept(pipe: asyncio.StreamReader | None) -> bytes:
    assert pipe is not None
    kept = bytearray()
    while piece := await pipe.read(1 << 16):
        kept += piece[: OUT_BYTES - len(kept)]
    return bytes(kept)


async def _killed(process: asyncio.subprocess.Process) -> None:
    """Kill a program and all that it has started. asyncio says that it has ended once its output is read."""
    await asyncio.to_thread(_kill, process.pid)
    with contextlib.suppress(TimeoutError):  # what waits for a disk ends with its desktop
        async with asyncio.timeout(GONE_S):
            await asyncio.gather(_kept(process.stdout), _kept(process.stderr))
            await process.wait()


def _kill(pid: int) -> None:
    """Kill a process and all below it, in whatever sessions they are. Blocks."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGSTOP)  # it starts nothing more
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    kill(descendants(pid), GONE_S)


async def _given(pipe: asyncio.StreamWriter, data: bytes) -> None:
    try:
        pipe.write(data)
        await pipe.drain()
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):  # it wants no more
        return
