"""Engine processes: the embedded engine's and a real SGLang server's.

Invariant: the child runs in a session of its own and dies with this process. `stop` leaves no process of that session,
no socket and no temporary folder. The child's output takes at most twice `log_bytes` on disk. Its token is in its
environment and in no command line. SGLang sees nothing of this program's import path.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from actors.errors import EngineGone
from actors.sampler.config import EmbeddedConfig, SamplerSettings, SglangConfig
from runtime.control import listen_unix
from runtime.errors import ConfigError
from runtime.program import TOKEN_ENV, check_origin

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


_BASE_URL = "http://localhost"
_BACKLOG = 1024
_EXIT_UNUSABLE = 2  # of SGLang's own parser of options, too


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


ENVIRONMENT = ".venv-sglang"
BEGUN = ".computerrl-begun"  # in an environment whose set-up has not come to its end
_LAUNCHER = Path(__file__).with_name("sglang_launch.py")
_HOST = "127.0.0.1"
# Plain torch for attention and sampling, no graphs: what a CPU without matrix units can run.
_ON_CPU = [
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
    "--disable-cuda-graph", "--disable-overlap-schedule", "--mem-fraction-static", "0.2", "--sleep-on-idle",
]  # fmt: skip
MACHINE_NVCC = Path("/usr/local/cuda/bin/nvcc")
_PACKAGED_NVCC = "lib/python3*/site-packages/nvidia/cu*/bin/nvcc"


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
        if self._settings.samplers.device == "cpu":
            return env | {"SGLANG_USE_CPU_ENGINE": "1"}
        # flashinfer looks for a compiler in CUDA_HOME, and not for that of its own environment's packages.
        compilers = sorted(interpreter(self._engine.python).parent.parent.glob(_PACKAGED_NVCC))
        elsewhere = "CUDA_HOME" in env or shutil.which("nvcc") or MACHINE_NVCC.exists()
        return env | ({"CUDA_HOME": str(compilers[-1].parent.parent)} if compilers and not elsewhere else {})


def interpreter(configured: str) -> Path:
    """The Python that has SGLang: the configured one, else that of the project's own environment.

    Raises ConfigError when it is not there.
    """
    python = Path(configured) if configured else Path(check_origin().root) / ENVIRONMENT / "bin" / "python"
    if not os.access(python, os.X_OK):
        what = "samplers.engine.python names" if configured else "SGLang's environment is missing:"
        raise ConfigError(f"{what} {python}: make sglang-cpu builds one, on a CUDA machine make sglang-gpu")
    if (python.parent.parent / BEGUN).exists():
        raise ConfigError(f"SGLang's environment is half built: {python}: make sglang-cpu or sglang-gpu ends it")
    return python


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as sock:
        return int(sock.getsockname()[1])
