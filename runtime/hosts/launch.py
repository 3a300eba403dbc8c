"""A child process of this one, as the operating system has it: process, socket, output.

Invariant: `reap` leaves neither the child nor anything in its process group, and no descriptor of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.hosts.frames import Link
from runtime.program import check_origin, passed
from runtime.spec import HostSpec

EXIT_AFTER_LINK_S = 2.0
MAX_LINE = 2000


class Launched(ABC):
    """One life of a host, wherever it is."""

    pid = 0
    machine = ""  # "" is this one

    @abstractmethod
    async def link(self, frame_type: object) -> Link[Any]:
        """The link to it, once it is there; the caller closes it. Raises HostLost or ConfigError."""

    @abstractmethod
    async def output(self, line: Callable[[str], None]) -> None:
        """Pass what it writes to stdout and stderr to `line`, one line at a time, until it ends."""

    @property
    @abstractmethod
    def exited(self) -> asyncio.Event:
        """Set once it has ended, or was ordered to."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once."""

    @abstractmethod
    async def reap(self, stopped_by: float) -> int | None:
        """See to it that it has ended; returns its exit code, None where that can't be known.

        `stopped_by` is the moment (monotonic seconds) by which it has ended by itself, if its machine can't be reached.
        """

    async def until_exit_or(self, reading: Coroutine[None, None, None]) -> None:
        """Run `reading` until it ends, or until shortly after the exit, when all it sent has been read.

        Raises what `reading` raises.
        """
        task, gone = asyncio.ensure_future(reading), asyncio.ensure_future(self.exited.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({task, gone}, timeout=EXIT_AFTER_LINK_S)
            if task.done():
                await task
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)


class Child(Launched):
    """One child process, in a session and process group of its own: `python -P -m MODULE --fd=N --parent=PID ...`.

    Raises OSError when it can't start.
    """

    def __init__(self, module: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        argv = [sys.executable, "-P", "-m", module, f"--fd={theirs.fileno()}", f"--parent={os.getpid()}", *arguments]
        path = [check_origin().root, *env.get("PYTHONPATH", "").split(os.pathsep)]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=[theirs.fileno()],
                env={**env, "PYTHONPATH": os.pathsep.join(entry for entry in path if entry)},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        self.pid = self._process.pid
        self._socket: socket.socket | None = ours
        self._read_end = os.fdopen(read_end, "rb", buffering=0)
        self._exited = asyncio.Event()
        self._pidfd = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited.set)

    async def link(self, frame_type: object) -> Link[Any]:
        taken, self._socket = self._socket, None
        assert taken is not None
        return await Link.of_socket(taken, frame_type)

    @property
    def exited(self) -> asyncio.Event:
        return self._exited

    async def output(self, line: Callable[[str], None]) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._read_end
        )
        rest = b""
        try:
            while chunk := await reader.read(4096):
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[:MAX_LINE]
                for text in lines:
                    line(text[:MAX_LINE].decode(errors="replace"))
            if rest:
                line(rest.decode(errors="replace"))
        finally:
            transport.close()

    def kill(self) -> None:
        # The zombie keeps the group's id from being used again until `wait`, so this can't hit strangers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def reap(self, stopped_by: float = 0.0) -> int:
        """Kill what is left of the group, wait for the child, close everything; returns its exit code."""
        self.kill()
        try:
            async with asyncio.timeout(30.0):
                await self._exited.wait()
        finally:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            if self._socket is not None:
                self._socket.close()
        return self._process.wait()

    async def ended(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._exited.wait()
        return self._exited.is_set()


def arguments(spec: HostSpec, log_level: str, stall_after_s: float) -> list[str]:
    """The command line's part that every host gets, wherever it is."""
    words = [f"--name={spec.name}"]
    words += ["--counts-below"] * spec.counts_below
    return [*words, f"--log-level={log_level}", f"--stall-after-s={stall_after_s}"]


def launch_here(spec: HostSpec, run_dir: Path, log_level: str, stall_after_s: float) -> Child:
    """A host as a child process. Raises OSError when it can't start."""
    env = passed(os.environ, spec.passes) | spec.env
    words = [*arguments(spec, log_level, stall_after_s), f"--run-dir={run_dir}"]
    return Child("runtime.hosts.child", words, env)
