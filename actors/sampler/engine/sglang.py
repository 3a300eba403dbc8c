"""A real SGLang server's process: its interpreter, its port, its command line, its environment.

Invariant: the server runs in SGLang's own environment and sees nothing of this program's import path. It dies with
this process, and its temporary folder goes with it. It answers those who show its key, which is in no command line.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import aiohttp

from actors.sampler.config import SamplerSettings, SglangConfig
from actors.sampler.engine.embedded import environment
from actors.sampler.engine.process import ServerProcess
from runtime.errors import ConfigError
from runtime.program import TOKEN_ENV, check_origin

ENVIRONMENT = ".venv-sglang"
BEGUN = ".computerrl-begun"  # in an environment whose set-up has not come to its end
_LAUNCHER = Path(__file__).with_name("sglang_launch.py")
_HOST = "127.0.0.1"
_EXIT_UNUSABLE = 2  # of SGLang's own parser of options
# Plain torch for attention and sampling, no graphs: what a CPU without matrix units can run.
_ON_CPU = [
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
    "--disable-cuda-graph", "--disable-overlap-schedule", "--mem-fraction-static", "0.2", "--sleep-on-idle",
]  # fmt: skip


class SglangProcess(ServerProcess):
    """One run of the server, serving `location` as `version` on a free port of this machine."""

    def __init__(self, settings: SamplerSettings, engine: SglangConfig, name: str, log: Path) -> None:
        super().__init__(name, log, settings.log_bytes, unusable=_EXIT_UNUSABLE)
        self._settings, self._engine = settings, engine
        self._port = 0
        self._temporary: str | None = None

    @property
    def base_url(self) -> str:
        """What the client calls."""
        return f"http://{_HOST}:{self._port}"

    def connector(self) -> aiohttp.BaseConnector:
        """Connects to this server."""
        return aiohttp.TCPConnector(limit=0)

    async def serve(self, location: str, version: str) -> None:
        """Start the process; it refuses connections until its weights are loaded. Raises ConfigError."""
        argv, env = self.command(location, version)
        await self.start(argv, env)

    def command(self, location: str, version: str) -> tuple[list[str], dict[str, str]]:
        """The command line on a port of its own, and the environment. Raises ConfigError."""
        python = interpreter(self._engine.python)
        self._port = _free_port()
        # Short: SGLang's processes talk through sockets in it, and a socket's path holds 107 bytes.
        self._temporary = tempfile.mkdtemp(prefix="crl-sglang-")
        return self._argv(str(python), location, version), self._environment()

    async def stop(self) -> None:
        """End it, all that it spawned, and its temporary files."""
        await super().stop()
        self.clear()

    def clear(self) -> None:
        """Remove its temporary files."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _argv(self, python: str, location: str, version: str) -> list[str]:
        config, engine = self._settings.samplers, self._engine
        argv = ["nice", "-n", str(config.nice)] if config.nice else []
        argv += [python, "-P", str(_LAUNCHER), str(os.getpid()), "--model-path", location, "--weight-version", version]
        argv += ["--host", _HOST, "--port", str(self._port), "--dtype", engine.dtype, "--grammar-backend", "none"]
        # "openai": a model folder's generation_config.json must not set top-p and penalties behind our back.
        argv += ["--sampling-defaults", "openai", "--max-running-requests", str(config.max_running_requests)]
        # Its own warm-up is a text of which a small tokenizer may make no token at all, and it dies of that.
        argv += ["--max-queued-requests", str(config.max_queued_requests), "--skip-server-warmup"]
        argv += [*_ON_CPU, "--max-total-tokens", str(config.cache_tokens)] if config.device == "cpu" else []
        argv += ["--device", config.device] if config.device != "cpu" else []
        for option, value in engine.options.items():
            if value is False:  # a flag that is not set
                continue
            argv += [f"--{option.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return argv

    def _environment(self) -> dict[str, str]:
        env = environment(self._settings)
        env.pop("PYTHONPATH", None)
        env |= {"HF_HUB_OFFLINE": "1", TOKEN_ENV: self.token, "TMPDIR": self._temporary or tempfile.gettempdir()}
        return env | ({"SGLANG_USE_CPU_ENGINE": "1"} if self._settings.samplers.device == "cpu" else {})


def interpreter(configured: str) -> Path:
    """The Python that has SGLang: the configured one, else that of the project's own environment.

    Raises ConfigError when it is not there.
    """
    python = Path(configured) if configured else Path(check_origin().root) / ENVIRONMENT / "bin" / "python"
    if not os.access(python, os.X_OK):
        what = "samplers.engine.python names" if configured else "SGLang's environment is missing:"
        raise ConfigError(f"{what} {python}: make sglang-cpu builds one")
    if (python.parent.parent / BEGUN).exists():
        raise ConfigError(f"SGLang's environment is half built: {python}: make sglang-cpu builds it anew")
    return python


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as sock:
        return int(sock.getsockname()[1])
