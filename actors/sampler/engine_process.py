"""The embedded engine's process: start, readiness, output, end.

Invariant: the process never outlives this one (the kernel kills it when we end), `stop` reaps it, and its output
takes at most twice `log_bytes` on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from pathlib import Path

import aiohttp

from actors.sampler.config import SamplerSettings
from runtime.errors import ConfigError, EngineGone
from runtime.origin import check_origin
from runtime.sockets import listen_unix

_BASE_URL = "http://engine"
_BACKLOG = 1024
_STOP_GRACE_S = 5.0
_LINES_KEPT = 20
_LINE_BYTES = 2000
_EXIT_UNUSABLE = 2


class EngineProcess:
    """One run of the engine, serving `location` as `version` on a Unix socket in `folder`."""

    def __init__(self, settings: SamplerSettings, name: str, folder: Path, log: Path) -> None:
        self._settings, self._name = settings, name
        self._folder, self._log_path = folder, log
        self._socket_path = folder / f"{name}.sock"
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None
        self._folder_fd: int | None = None
        self._pidfd: int | None = None
        self.last_lines: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def pid(self) -> int:
        """The process's id, 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.returncode if self._process else None

    @property
    def base_url(self) -> str:
        """What the client calls."""
        return _BASE_URL

    def connector(self) -> aiohttp.BaseConnector:
        """Connects to this engine; the folder is named through a descriptor because socket paths are short."""
        return aiohttp.UnixConnector(f"/proc/self/fd/{self._folder_fd}/{self._socket_path.name}", limit=0)

    async def start(self, location: str, version: str) -> None:
        """Start the process; it listens from the first moment, and answers once its weights are loaded."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        sock = listen_unix(self._socket_path)
        sock.listen(_BACKLOG)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv(location, version, sock.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment(),
                pass_fds=(sock.fileno(),),
                start_new_session=True,
            )
        finally:
            sock.close()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._output = asyncio.create_task(self._keep_output(), name=f"output of {self._name}")

    async def exited(self) -> int:
        """The exit code, once it has ended. Raises ConfigError when the engine said that the model can't be served."""
        if self._process is None:
            raise EngineGone("the engine was not started")
        code = await self._process.wait()
        if self._output is not None:
            await asyncio.wait({self._output}, timeout=1.0)
        if code == _EXIT_UNUSABLE:
            raise ConfigError(f"the engine can't serve its model: {self.tail()}")
        return code

    def tail(self) -> str:
        """The last line it wrote."""
        return self.last_lines[-1] if self.last_lines else "it wrote nothing"

    def kill(self) -> None:
        """End it at once; `exited` returns soon after."""
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """End it, by force after a grace period, and reap it."""
        process = self._process
        if process is not None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_STOP_GRACE_S):
                    await process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await process.wait()
        if self._output is not None:
            self._output.cancel()
            await asyncio.wait({self._output})
        self._socket_path.unlink(missing_ok=True)
        for fd in (self._folder_fd, self._pidfd):
            if fd is not None:
                os.close(fd)
        self._folder_fd = self._pidfd = None

    def _signal(self, number: signal.Signals) -> None:
        # Not through the process object: it would reap a dead child before the event loop has seen its exit code.
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _argv(self, location: str, version: str, fd: int) -> list[str]:
        config = self._settings.samplers
        argv = ["nice", "-n", str(config.nice)] if config.nice else []
        argv += [sys.executable, "-P", "-m", "policy.engine", "--model-path", location, "--weight-version", version]
        argv += ["--fd", str(fd), "--die-with-parent", str(os.getpid()), "--device", config.device]
        argv += ["--threads", str(config.threads), "--max-running-requests", str(config.max_running)]
        argv += ["--max-queued-requests", str(config.max_waiting), "--max-total-tokens", str(config.cache_tokens)]
        return argv

    def _environment(self) -> dict[str, str]:
        path = [check_origin().root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        threads = str(self._settings.samplers.threads)
        # Waiting threads that spin would take the core from desktops.
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(entry for entry in path if entry),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OMP_WAIT_POLICY": "PASSIVE",
        }

    async def _keep_output(self) -> None:
        """Copy its output to the log file, starting the file anew (one older part is kept) at `log_bytes`."""
        if self._process is None or self._process.stdout is None:
            return
        size = self._log_path.stat().st_size if self._log_path.exists() else 0
        while chunk := await self._process.stdout.read(4096):
            if size + len(chunk) > self._settings.log_bytes:
                self._log_path.replace(self._log_path.with_suffix(self._log_path.suffix + ".1"))
                size = 0
            with self._log_path.open("ab") as file:
                file.write(chunk)
            size += len(chunk)
            lines = chunk[-_LINE_BYTES:].decode(errors="replace").splitlines()
            self.last_lines.extend(line for line in lines if line.strip())
