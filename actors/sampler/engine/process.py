"""A child process that serves: start, output, end.

Invariant: the child runs in a session of its own. `stop` leaves no process of that session and reaps the first. The
child's output takes at most twice `log_bytes` on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from actors.errors import EngineGone
from runtime.errors import ConfigError

_STOP_GRACE_S = 5.0
_LINES_KEPT = 20
_LINE_BYTES = 2000


class ServerProcess:
    """One process and what it spawned. `unusable` is the exit status that a restart can't cure."""

    def __init__(self, name: str, log: Path, log_bytes: int, *, unusable: int) -> None:
        self._name, self._log, self._log_bytes, self._unusable = name, log, log_bytes, unusable
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None
        self._pidfd: int | None = None
        self.token = secrets.token_urlsafe(24)  # what the server asks of its callers
        self.last_lines: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def pid(self) -> int:
        """The process's id, 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.returncode if self._process else None

    async def start(self, argv: Sequence[str], env: dict[str, str], pass_fds: Sequence[int] = ()) -> None:
        """Start it. Raises ConfigError when the program can't be run."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=env,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"the engine can't be started: {error}") from error
        self._pidfd = os.pidfd_open(self._process.pid)
        self._output = asyncio.create_task(self._keep_output(), name=f"output of {self._name}")

    async def exited(self) -> int:
        """The exit code, once it has ended. Raises ConfigError when the engine said that the model can't be served."""
        if self._process is None:
            raise EngineGone("the engine was not started")
        code = await self._process.wait()
        if self._output is not None:
            await asyncio.wait({self._output}, timeout=1.0)
        if code == self._unusable:
            raise ConfigError(f"the engine can't serve its model: {self.tail()}")
        return code

    def tail(self) -> str:
        """The last line it wrote."""
        return self.last_lines[-1] if self.last_lines else "it wrote nothing"

    def kill(self) -> None:
        """End it at once; `exited` returns soon after."""
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """End it, by force after a grace period, reap it, and end what is left of its session."""
        process = self._process
        if process is not None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_STOP_GRACE_S):
                    await process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await process.wait()
            # Its members hold the group's id, so no other group can have it; an empty group is no error.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if self._output is not None:
            self._output.cancel()
            await asyncio.wait({self._output})
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _signal(self, number: signal.Signals) -> None:
        # Not through the process object: it would reap a dead child before the event loop has seen its exit code.
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def _keep_output(self) -> None:
        """Copy its output to the log file, starting the file again (one older part is kept) at `log_bytes`."""
        if self._process is None or self._process.stdout is None:
            return
        size = self._log.stat().st_size if self._log.exists() else 0
        while chunk := await self._process.stdout.read(4096):
            try:
                if size + len(chunk) > self._log_bytes:
                    self._log.replace(self._log.with_suffix(self._log.suffix + ".1"))
                    size = 0
                with self._log.open("ab") as file:
                    file.write(chunk)
                size += len(chunk)
            except OSError as error:  # reading has to go on, or the engine would stand still before a full pipe
                self.last_lines.append(f"{len(chunk)} bytes of output were not kept: {error}")
            lines = chunk[-_LINE_BYTES:].decode(errors="replace").splitlines()
            self.last_lines.extend(line for line in lines if line.strip())
