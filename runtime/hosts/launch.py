"""The operating system's side of a child host: process, socket, output.

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
from collections.abc import Callable, Coroutine
from pathlib import Path

from runtime.origin import check_origin
from runtime.spec import HostSpec

EXIT_AFTER_LINK_S = 2.0
MAX_LINE = 2000


class Child:
    """One running child process, in a session and process group of its own. Raises OSError when it can't start."""

    def __init__(self, spec: HostSpec, run_dir: Path, log_level: str, stall_after_s: float) -> None:
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        env = {**os.environ, **spec.env}
        path = [check_origin().root, *env.get("PYTHONPATH", "").split(os.pathsep)]
        env["PYTHONPATH"] = os.pathsep.join(entry for entry in path if entry)
        argv = [sys.executable, "-P", "-m", "runtime.hosts.child"]
        argv += [f"--name={spec.name}", f"--fd={theirs.fileno()}", f"--parent={os.getpid()}", f"--nice={spec.nice}"]
        argv += [f"--run-dir={run_dir}", f"--log-level={log_level}", f"--stall-after-s={stall_after_s}"]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=[theirs.fileno()],
                env=env,
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

    def take_socket(self) -> socket.socket:
        """Our end of the link; the caller closes it."""
        taken, self._socket = self._socket, None
        assert taken is not None
        return taken

    async def until_exit_or(self, reading: Coroutine[None, None, None]) -> None:
        """Run `reading` until it ends, or until shortly after the child's exit, when all it sent has been read."""
        task = asyncio.ensure_future(reading)
        exited = asyncio.ensure_future(self._exited.wait())
        try:
            await asyncio.wait({task, exited}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({task, exited}, timeout=EXIT_AFTER_LINK_S)
            if task.done():
                await task
        finally:
            task.cancel()
            exited.cancel()
            await asyncio.gather(task, exited, return_exceptions=True)

    async def output(self, line: Callable[[str], None]) -> None:
        """Pass what the child writes to stdout and stderr to `line`, one line at a time, until it ends."""
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
        """End the whole group at once, stopped processes too."""
        # The zombie keeps the group's id from being used again until `wait`, so this can't hit strangers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def reap(self) -> int:
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
