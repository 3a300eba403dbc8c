"""This program as a process: its name, its code, its environment, its processor time, its signals."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from runtime.errors import ConfigError

NAME = "computerrl"


def program() -> str:
    """`computerrl` where PATH finds this installation's, else the shorter of its relative and its absolute path.

    The word is quoted for a shell. An installation without such a file, as of Python modules alone, is `computerrl`.
    """
    started = Path(sys.argv[0])
    own = started if started.name == NAME else Path(sys.executable).with_name(NAME)  # -m and other programs
    on_path = shutil.which(NAME)
    if not own.exists() or (on_path is not None and os.path.samefile(on_path, own)):
        return NAME
    try:
        near = os.path.relpath(own)
    except FileNotFoundError:  # the current folder was removed
        return shlex.quote(str(own))
    return shlex.quote(min(near if "/" in near else f"./{near}", os.path.abspath(own), key=len))


SHARED_FILE = "messages.py"
PACKAGES = ("runtime", "policy", "apis", "actors")


class Origin(msgspec.Struct, frozen=True):
    """The folder that holds the packages and a digest over the names and contents of the files both sides share."""

    root: str
    build: str


@functools.cache
def check_origin() -> Origin:
    """The origin of this process's code. Raises ConfigError naming the package that comes from elsewhere."""
    root = Path(__file__).resolve().parent.parent
    for package in PACKAGES:
        place = package_folder(package)
        if place != root / package:
            raise ConfigError(
                f"package {package} comes from {place}, not from {root / package}: "
                f"take {place.parent} off PYTHONPATH or uninstall what put it there"
            )
    return Origin(str(root), _build(root))


def package_folder(package: str) -> Path:
    """Where `package` is imported from. Raises ConfigError when it is not there or is no plain package."""
    loaded = sys.modules.get(package)
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"package {package} is missing: install computerrl again")
    return Path(spec.origin).resolve().parent


def _build(root: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if package != "runtime" and path.name != SHARED_FILE:
                continue
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


NAMES = (
    "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TERM", "TMPDIR", "TZ", "USER",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
FAMILIES = (
    "COMPUTERRL_", "CUDA_", "GLOO_", "HF_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "NVTE_", "SSL_CERT_", "TORCH",
    "TRITON_", "XDG_",
)  # fmt: skip
# Of this program's own processes on this machine. Elsewhere they would be settings of the program that places hosts.
HERE = ("OMP_", "PYTHON")
# The token of what this very process serves.
TOKEN_ENV = "COMPUTERRL_TOKEN"  # noqa: S105 - the variable's name


def passed(environment: Mapping[str, str], named: Collection[str] = ()) -> dict[str, str]:
    """What a host on this machine gets of `environment`; `named` are further names."""
    return {
        name: value
        for name, value in environment.items()
        if name in NAMES or name in named or (name.startswith(FAMILIES + HERE) and name != TOKEN_ENV)
    }


def boot_id() -> str:
    """Names this boot of this machine, from which its monotonic clock and `machine_s` count."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Below:
    """Adds up the processor time of the processes below this one. What one used after the last look is not seen."""

    def __init__(self) -> None:
        self._seen: dict[psutil.Process, float] = {}  # pruned to the living at every look
        self._sum_s = 0.0

    def read_s(self) -> float:
        """Seconds so far, of the living and the dead. Looks through all processes of the machine."""
        alive: dict[psutil.Process, float] = {}
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                alive[process] = sum(process.cpu_times()[:2])
                self._sum_s += alive[process] - self._seen.get(process, 0.0)
        self._seen = alive
        return self._sum_s


def machine_s() -> float:
    """Seconds of processor time that the machine has spent on anything since its boot, over all cores."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


PR_SET_PDEATHSIG = 1
TOGETHER_S = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event that the first signal sets; inside the block signals do nothing else. Needs a running loop."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    first_at = 0.0

    def received(number: int) -> None:
        nonlocal first_at
        if not event.is_set():
            first_at = loop.time()
            event.set()
        elif loop.time() - first_at > TOGETHER_S:
            os._exit(128 + number)

    hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    heeded = [number for number in SIGNALS if number != signal.SIGHUP or hangup]
    for number in heeded:
        loop.add_signal_handler(number, received, number)
    try:
        yield event
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; exit now when it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
