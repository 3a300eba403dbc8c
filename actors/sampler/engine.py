"""The engine that one sampler actor talks to: a process of its own, embedded or SGLang's, or a server somewhere.

Invariant: a started engine runs in a session of its own and dies with this process: no process of that session, no
socket and no temporary folder is left. Its token is in its environment and in no command line. SGLang sees nothing of
this program's import path.
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
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from actors.errors import EngineGone, SamplerError
from actors.sampler.client import EngineClient, ServerInfo
from actors.sampler.config import LOOPBACK, EmbeddedConfig, SamplerSettings, SglangConfig, attached_key
from actors.sampler.messages import Weights
from actors.sampler.progress import StartProgress, session_cpu_s
from policy.errors import EngineBusy, EngineError
from runtime.clock import Clock
from runtime.control import listen_unix
from runtime.errors import ConfigError
from runtime.program import TOKEN_ENV, check_origin

_PROBE_PERIOD_S = 5.0
_EXIT_AFTER_BREAK_S = 5.0
_PROBE_TOKEN = 0
_KNOCK_S = 0.5  # between two tries to reach a server that does not listen yet
_LOOK_S, _SAY_S = 2.0, 30.0  # between two looks at a start's progress, and two reports of it
_MOST_S = 7200.0  # of a start, whatever goes on in it
_STOP_GRACE_S = 5.0
_LINES_KEPT = 20
_LINE_BYTES = 2000
_UNUSABLE = 2  # the exit status that a restart can't cure, of SGLang's own parser of options, too


Starting = Callable[[float, str], None]  # takes seconds since the start, and the last line of output


class Engine(ABC):
    """What the actor needs of an engine."""

    kind: str
    client: EngineClient

    def __init__(self, settings: SamplerSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock

    @property
    def pid(self) -> int:
        return 0

    @property
    def exit_code(self) -> int | None:
        return None

    @property
    def last_output(self) -> list[str]:
        return []

    @abstractmethod
    async def up(self, latest: Weights) -> None:
        """Start or reach it, return after its first generated token. Raises SamplerError, ConfigError."""

    @abstractmethod
    async def lost(self) -> str:
        """Return the cause, once the engine is gone."""

    @abstractmethod
    async def condemn(self) -> None:
        """It does not answer any more: make `lost` return."""

    async def down(self) -> None:
        if hasattr(self, "client"):
            await self.client.close()


class StartedEngine(Engine):
    """A child process serving the newest weights from its start, and all that it spawned."""

    def __init__(self, settings: SamplerSettings, name: str, run_dir: Path, clock: Clock, starting: Starting) -> None:
        super().__init__(settings, clock)
        self._starting, self._written = starting, 0
        self._name, self._run_dir = name.replace("/", "-"), run_dir
        self._log = run_dir / "logs" / f"{self._name}.engine.log"
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None
        self._pidfd: int | None = None
        self._last_lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.token = ""  # what the server asks of its callers, another one for each life

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode if self._process else None

    @property
    def last_output(self) -> list[str]:
        return list(self._last_lines)

    @abstractmethod
    def command(self, location: str, version: str) -> tuple[list[str], dict[str, str], list[int]]:
        """Command line, environment and passed descriptors of a life that serves `location` as `version`.

        Raises ConfigError.
        """

    @property
    @abstractmethod
    def url(self) -> str:
        """What the client calls."""

    def connector(self) -> aiohttp.BaseConnector:
        return aiohttp.TCPConnector(limit=0)

    def clear(self) -> None:
        """Remove what `command` has made for this life."""

    async def up(self, latest: Weights) -> None:
        self.token = secrets.token_urlsafe(24)
        self._last_lines.clear()
        await self._start(latest)
        self.client = EngineClient(self.url, self.connector(), self.token)
        answered = asyncio.ensure_future(self._first_token())
        ended = asyncio.ensure_future(self._exited())
        try:
            await self._watch({answered, ended})
            if answered.done() and answered.exception() is not None:
                # A connection that broke is most often the process ending: its own reason says more.
                await asyncio.wait({ended}, timeout=_EXIT_AFTER_BREAK_S)
            if ended.done():
                raise SamplerError(f"the engine ended with {ended.result()} at its start: {self._tail()}")
            try:
                await answered
            except EngineError as error:
                raise SamplerError(f"the engine refused its first request: {error}") from error
        finally:
            answered.cancel()
            ended.cancel()
            await asyncio.gather(answered, ended, return_exceptions=True)

    async def lost(self) -> str:
        return f"the engine ended with {await self._exited()}: {self._tail()}"

    async def condemn(self) -> None:
        self._signal(signal.SIGKILL)

    async def down(self) -> None:
        """End it, by force after a grace period, reap it, and end what is left of its session."""
        await super().down()
        if self._process is not None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_STOP_GRACE_S):
                    await self._process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await self._process.wait()
            # Its members hold the group's id, so no other group can have it; an empty group is no error.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._output is not None:
            self._output.cancel()
            await asyncio.wait({self._output})
        if self._pidfd is not None:
            os.close(self._pidfd)
        self._pidfd = self._process = None
        self.clear()

    async def _start(self, latest: Weights) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        begins = self._settings if self._settings.sglang_adapters else None
        where, version = (begins.model, begins.version) if begins else (latest.location, latest.version)
        argv, env, descriptors = self.command(where, str(version))
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=env,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"the engine can't be started: {error}") from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._output = asyncio.create_task(self._keep_output(), name=f"output of {self._name}")

    async def _first_token(self) -> None:
        """Return after a real generation; SGLang listens only once it has loaded, and says so by no event."""
        while True:
            try:
                return await self.client.first_token(_PROBE_TOKEN, _MOST_S)
            except EngineGone:
                if self.kind == "embedded":
                    raise
            await self._clock.sleep(_KNOCK_S)

    async def _watch(self, watched: set[asyncio.Future[Any]]) -> None:
        """Return once one of `watched` is done. Raises EngineGone where nothing moves any more."""
        limit_s, began = self._settings.samplers.start_timeout_s, self._clock.now()
        progress, said = StartProgress(began), began
        while not (await asyncio.wait(watched, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            now = self._clock.now()
            silent_s, waited_s = progress.silent_s(self._written, session_cpu_s(self.pid), now), now - began
            if silent_s > limit_s or waited_s > _MOST_S:
                raise EngineGone(f"no token in {waited_s:.0f} s, no sign of life for {silent_s:.0f} s: {self._tail()}")
            if now - said >= _SAY_S:
                said = now
                self._starting(round(waited_s, 1), self._tail())

    async def _exited(self) -> int:
        """The exit code, once it has ended. Raises ConfigError when the engine said that the model can't be served."""
        if self._process is None:
            raise EngineGone("the engine was not started")
        code = await self._process.wait()
        if self._output is not None:
            await asyncio.wait({self._output}, timeout=1.0)
        if code == _UNUSABLE:
            raise ConfigError(f"the engine can't serve its model: {self._tail()}")
        return code

    def _tail(self) -> str:
        return self._last_lines[-1] if self._last_lines else "it wrote nothing"

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
            self._written += len(chunk)
            try:
                if size + len(chunk) > self._settings.log_bytes:
                    self._log.replace(self._log.with_suffix(self._log.suffix + ".1"))
                    size = 0
                with self._log.open("ab") as file:
                    file.write(chunk)
                size += len(chunk)
            except OSError as error:  # reading has to go on, or the engine would stand still before a full pipe
                self._last_lines.append(f"{len(chunk)} bytes of output were not kept: {error}")
            lines = chunk[-_LINE_BYTES:].decode(errors="replace").splitlines()
            self._last_lines.extend(line for line in lines if line.strip())


class EmbeddedEngine(StartedEngine):
    """The program's own engine, on a Unix socket: it listens from the first moment, and answers once it has loaded."""

    kind = "embedded"
    url = "http://localhost"
    _folder_fd: int | None = None

    @property
    def _socket(self) -> Path:
        return self._run_dir / "sockets" / f"{self._name}.sock"

    def connector(self) -> aiohttp.BaseConnector:
        # The folder is named through a descriptor because socket paths are short.
        return aiohttp.UnixConnector(f"/proc/self/fd/{self._folder_fd}/{self._socket.name}", limit=0)

    def command(self, location: str, version: str) -> tuple[list[str], dict[str, str], list[int]]:
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._folder_fd = os.open(self._socket.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with listen_unix(self._socket) as sock:
            sock.listen(1024)
            descriptor = os.dup(sock.fileno())
        config, engine = self._settings.samplers, self._settings.samplers.engine
        options: dict[str, object] = {
            "model-path": location,
            "weight-version": version,
            "fd": descriptor,
            "die-with-parent": os.getpid(),
            "device": config.device,
            "threads": config.threads,
            "max-running-requests": config.max_running_requests,
            "max-queued-requests": config.max_queued_requests,
            "max-total-tokens": config.cache_tokens,
        }
        if isinstance(engine, EmbeddedConfig):
            options["dtype"] = engine.dtype
            options |= {"context-length": engine.context_tokens} if engine.context_tokens else {}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        path = [check_origin().root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        own = {"PYTHONPATH": os.pathsep.join(entry for entry in path if entry), TOKEN_ENV: self.token}
        return [sys.executable, "-P", "-m", "policy.engine", *words], environment(self._settings) | own, [descriptor]

    def clear(self) -> None:
        self._socket.unlink(missing_ok=True)
        if self._folder_fd is not None:
            os.close(self._folder_fd)
            self._folder_fd = None


def environment(settings: SamplerSettings) -> dict[str, str]:
    """This process's environment, with threads for matrix products that don't spin while they wait, and the GPUs."""
    count = str(settings.samplers.threads)
    # Waiting threads that spin would take the core from desktops.
    threads = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "PASSIVE"}
    return os.environ | threads | ({"CUDA_VISIBLE_DEVICES": settings.gpus} if settings.gpus else {})


ENVIRONMENT = ".venv-sglang"
BEGUN = ".computerrl-begun"  # in an environment whose set-up has not come to its end
_LAUNCHER = Path(__file__).with_name("sglang_launch.py")
# Plain torch for attention and sampling, no graphs: what a CPU without matrix units can run.
_ON_CPU = [
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
    "--disable-cuda-graph", "--disable-overlap-schedule", "--mem-fraction-static", "0.2", "--sleep-on-idle",
]  # fmt: skip

MACHINE_NVCC = Path("/usr/local/cuda/bin/nvcc")
_PACKAGED_NVCC = "lib/python3*/site-packages/nvidia/cu*/bin/nvcc"


class SglangEngine(StartedEngine):
    """A real server on a free port of this machine; it refuses connections until its weights are loaded."""

    kind = "sglang"
    _port = 0
    _temporary: str | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def command(self, location: str, version: str) -> tuple[list[str], dict[str, str], list[int]]:
        config, engine = self._settings.samplers, self._settings.samplers.engine
        assert isinstance(engine, SglangConfig)
        python = interpreter(engine.python)
        with socket.create_server((LOOPBACK, 0)) as sock:
            self._port = int(sock.getsockname()[1])
        # Short: SGLang's processes talk through sockets in it, and a socket's path holds 107 bytes.
        self._temporary = tempfile.mkdtemp(prefix="crl-sglang-")
        argv = [str(python), "-P", str(_LAUNCHER), str(os.getpid()), "--model-path", location]
        argv += ["--weight-version", version, "--host", LOOPBACK, "--port", str(self._port), "--dtype", engine.dtype]
        # "openai": a model folder's generation_config.json must not set top-p and penalties behind our back.
        argv += ["--grammar-backend", "none", "--sampling-defaults", "openai"]
        # Patches by Pillow, as the learner has them: torchvision's differ in the last bits of a shade.
        argv += ["--image-processor-backend", "pil"]
        argv += ["--max-running-requests", str(config.max_running_requests)]
        # Its own warm-up is a text of which a small tokenizer may make no token at all, and it dies of that.
        argv += ["--max-queued-requests", str(config.max_queued_requests), "--skip-server-warmup"]
        argv += [*_ON_CPU, "--max-total-tokens", str(config.cache_tokens)] if config.device == "cpu" else []
        argv += ["--device", config.device] if config.device != "cpu" else []
        # Without the copy of the weights a load would have to succeed before the engine could answer again.
        saver = config.turns and config.device != "cpu"  # torch-memory-saver is CUDA's
        argv += ["--enable-memory-saver", "--enable-weights-cpu-backup"] if saver else []
        if rank := self._settings.adapter_rank:  # of those in use at once; another may be loaded meanwhile
            argv += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras-per-batch", "3", "--max-loaded-loras"]
            argv += ["6", "--lora-target-modules", *self._settings.adapter_targets]
            argv += ["--lora-backend", "torch_native"] if config.device == "cpu" else []
        for option, value in engine.options.items():
            if value is not False:  # else a flag that is not set
                argv.append(f"--{option.replace('_', '-')}" + ("" if value is True else f"={value}"))
        env = environment(self._settings)
        env.pop("PYTHONPATH", None)
        env |= {"HF_HUB_OFFLINE": "1", TOKEN_ENV: self.token, "TMPDIR": self._temporary}
        if config.device == "cpu":
            return argv, env | {"SGLANG_USE_CPU_ENGINE": "1"}, []
        # flashinfer looks for a compiler in CUDA_HOME, and not for that of its own environment's packages.
        compilers = sorted(python.parent.parent.glob(_PACKAGED_NVCC))
        elsewhere = "CUDA_HOME" in env or shutil.which("nvcc") or MACHINE_NVCC.exists()
        return argv, env | ({"CUDA_HOME": str(compilers[-1].parent.parent)} if compilers and not elsewhere else {}), []

    def clear(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


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


class AttachedEngine(Engine):
    """A server that this run did not start, reached by its URL."""

    kind = "attach"

    def __init__(self, settings: SamplerSettings, clock: Clock) -> None:
        super().__init__(settings, clock)
        self._url = settings.attach
        self._condemned = asyncio.Event()
        self._met = False  # whether it was ever there

    async def up(self, latest: Weights) -> None:
        """Connect; its weights are compared and loaded by the caller.

        One that was there before may be starting again, which takes minutes, or stand still since a load broke off.
        """
        self._condemned.clear()
        self.client = EngineClient(
            self._url, aiohttp.TCPConnector(limit=0), attached_key(self._settings.samplers, os.environ)
        )
        limit_s = self._settings.samplers.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        with contextlib.suppress(EngineError):
                            await self.client.resume()
                        await self.client.first_token(_PROBE_TOKEN, limit_s)
                    except EngineGone:
                        if not self._met:
                            raise
                    except EngineBusy:  # its line is full, or a proxy before it waits for its start
                        pass
                    else:
                        break
                    await self._clock.sleep(_KNOCK_S)
        except EngineError as error:
            raise SamplerError(f"{self._url} refused its first request: {error}") from error
        except TimeoutError as error:
            raise EngineGone(f"{self._url} gave no token within {limit_s:g} s") from error
        await self._refuse_without_adapters()
        self._met = True

    async def _refuse_without_adapters(self) -> None:
        """Raise ConfigError for a server that would refuse the adapter of every version."""
        rank, about = self._settings.adapter_rank, ServerInfo()
        if rank:
            with contextlib.suppress(EngineError):  # a proxy before it may keep this to itself
                about = await self.client.server_info()
        if not about.enable_lora or (about.max_lora_rank or rank) < rank:
            raise ConfigError(
                f"weight_sync.transport is adapter, and {self._url} takes none of rank {rank}: start it with"
                f" --enable-lora --max-lora-rank {rank} --lora-target-modules"
                f" {' '.join(self._settings.adapter_targets)}, or set weight_sync.transport to disk"
            )

    async def lost(self) -> str:
        while True:
            try:
                async with asyncio.timeout(_PROBE_PERIOD_S):
                    await self._condemned.wait()
            except TimeoutError:
                pass
            else:
                return "it did not answer"
            try:
                await self.client.model_info()
            except EngineBusy:
                continue
            except (EngineGone, EngineError) as error:
                return str(error)

    async def condemn(self) -> None:
        self._condemned.set()


def engine_of(settings: SamplerSettings, name: str, run_dir: Path, clock: Clock, starting: Starting) -> Engine:
    """The engine of the sampler actor `name`, not yet up; `starting` is called while a start takes long."""
    if settings.attach:
        return AttachedEngine(settings, clock)
    kind = SglangEngine if isinstance(settings.samplers.engine, SglangConfig) else EmbeddedEngine
    return kind(settings, name, run_dir, clock, starting)
