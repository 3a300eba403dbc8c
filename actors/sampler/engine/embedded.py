"""The embedded engine's process: its socket, its command line, its environment.

Invariant: the process never outlives this one (the kernel kills it when we end), and its socket is gone with it. Its
token is in its environment and in no command line.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import aiohttp

from actors.sampler.config import EmbeddedConfig, SamplerSettings
from actors.sampler.engine.process import ServerProcess
from runtime.control import listen_unix
from runtime.program import TOKEN_ENV, check_origin

_BASE_URL = "http://localhost"
_BACKLOG = 1024
_EXIT_UNUSABLE = 2


class EngineProcess(ServerProcess):
    """One run of the engine, serving `location` as `version` on a Unix socket in `folder`."""

    def __init__(self, settings: SamplerSettings, name: str, folder: Path, log: Path) -> None:
        super().__init__(name, log, settings.log_bytes, unusable=_EXIT_UNUSABLE)
        self._settings = settings
        self._folder = folder
        self._socket_path = folder / f"{name}.sock"
        self._folder_fd: int | None = None

    @property
    def base_url(self) -> str:
        """What the client calls."""
        return _BASE_URL

    def connector(self) -> aiohttp.BaseConnector:
        """Connects to this engine; the folder is named through a descriptor because socket paths are short."""
        return aiohttp.UnixConnector(f"/proc/self/fd/{self._folder_fd}/{self._socket_path.name}", limit=0)

    async def serve(self, location: str, version: str) -> None:
        """Start the process; it listens from the first moment, and answers once its weights are loaded."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        sock = listen_unix(self._socket_path)
        sock.listen(_BACKLOG)
        try:
            await self.start(self.command(location, version, sock.fileno()), self._environment(), (sock.fileno(),))
        finally:
            sock.close()

    async def stop(self) -> None:
        """End it and remove its socket."""
        await super().stop()
        self._socket_path.unlink(missing_ok=True)
        if self._folder_fd is not None:
            os.close(self._folder_fd)
            self._folder_fd = None

    def command(self, location: str, version: str, fd: int) -> list[str]:
        """The command line of an engine that listens on descriptor `fd`."""
        config = self._settings.samplers
        argv = ["nice", "-n", str(config.nice)] if config.nice else []
        argv += [sys.executable, "-P", "-m", "policy.engine", "--model-path", location, "--weight-version", version]
        argv += ["--fd", str(fd), "--die-with-parent", str(os.getpid()), "--device", config.device]
        argv += ["--threads", str(config.threads), "--max-running-requests", str(config.max_running_requests)]
        argv += [
            "--max-queued-requests",
            str(config.max_queued_requests),
            "--max-total-tokens",
            str(config.cache_tokens),
        ]
        engine = config.engine
        if isinstance(engine, EmbeddedConfig):
            argv += ["--dtype", engine.dtype]
            argv += ["--context-length", str(engine.context_tokens)] if engine.context_tokens else []
        return argv

    def _environment(self) -> dict[str, str]:
        path = [check_origin().root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        own = {"PYTHONPATH": os.pathsep.join(entry for entry in path if entry), TOKEN_ENV: self.token}
        return environment(self._settings) | own


def environment(settings: SamplerSettings) -> dict[str, str]:
    """This process's environment, with threads for matrix products that don't spin while they wait, and the GPUs."""
    count = str(settings.samplers.threads)
    # Waiting threads that spin would take the core from desktops.
    threads = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "PASSIVE"}
    return os.environ | threads | ({"CUDA_VISIBLE_DEVICES": settings.gpus} if settings.gpus else {})
