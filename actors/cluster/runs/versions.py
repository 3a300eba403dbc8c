"""Whether torch, NCCL, driver, compilers and SGLang of a GPU machine fit each other.

`misfits` is pure. What it looks at comes from packages' metadata and from the programs' own answers: torch is not
imported, and no GPU is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from actors.cluster.config.schema import Deploy
from actors.sampler.config import SglangConfig
from actors.sampler.engine import MACHINE_NVCC, interpreter
from runtime.errors import ConfigError

SGLANG = "0.5.23"  # whose protocol this program speaks
ASK_S = 20.0  # for a program to answer
DRIVERS = {12: "525", 13: "580"}  # NVIDIA's first driver for each CUDA
_LIST = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}))"
)


class Packages(msgspec.Struct, frozen=True):
    """Versions of one Python environment's packages; "" for one that is not there."""

    torch: str = ""
    nccl: str = ""  # of the library that torch loads
    cuda: int = 0  # the major version that torch is built for; 0: for none
    sglang: str = ""
    flashinfer: str = ""
    ready_kernels: str = ""  # flashinfer's compiled kernels
    nvcc: str = ""  # of CUDA's compiler as a package


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has."""

    learner: Packages
    engine: Packages = Packages()  # SGLang's environment
    driver: str = ""  # the newest CUDA that it runs, as in 13.0
    nvcc: str = ""  # CUDA's compiler of the machine, as in 13.0
    gxx: bool = False


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    mend: str | None = None  # the command that mends it
    needed: bool = True  # False: a run works without it, only less well

    @property
    def fatal(self) -> bool:
        return self.needed and not self.ok


def misfits(have: Versions, *, collective: bool = False, compiles: bool = True) -> Iterator[Check]:
    """What has to change. `compiles` says whether the engine asks flashinfer for kernels at its start."""
    for whose, packages in (("the learner's", have.learner), ("SGLang's", have.engine)):
        if packages.cuda and have.driver and int(have.driver.partition(".")[0]) < packages.cuda:
            what = f"the driver runs CUDA {have.driver}, and {whose} torch {packages.torch} needs {packages.cuda}"
            least = DRIVERS.get(packages.cuda, "of its year")
            yield Check("driver", False, what, f"install NVIDIA's driver {least} or newer")
    if wrong := nccl_misfit(have.learner, have.engine):
        mend = "make sglang-gpu gives both one torch, or weight_sync.transport: disk"
        yield Check("nccl", False, wrong, mend, collective)
    engine, nvcc = have.engine, have.nvcc or have.engine.nvcc
    if engine.sglang not in {"", SGLANG}:
        what = f"SGLang {engine.sglang}: this program speaks the protocol of {SGLANG}"
        yield Check("sglang version", False, what, "make sglang-gpu", needed=False)
    if not compiles or not engine.flashinfer or engine.ready_kernels.partition("+")[0] == engine.flashinfer:
        return
    lacking = [name for name, there in (("nvcc", nvcc), ("g++", have.gxx)) if not there]
    ready = f"pip install flashinfer-jit-cache=={engine.flashinfer} in .venv-sglang"
    if lacking:
        what = f"flashinfer {engine.flashinfer} compiles its kernels, and {' and '.join(lacking)} is missing"
        mend = f"install CUDA's toolkit and g++, or {ready}, or samplers.engine.options.sampling-backend: pytorch"
        yield Check("kernels", False, what, mend)
    elif engine.cuda and int(nvcc.partition(".")[0]) != engine.cuda:
        what = f"nvcc is CUDA {nvcc}'s, and SGLang's torch is built for {engine.cuda}"
        mend = f"let CUDA_HOME name CUDA {engine.cuda}'s toolkit, or {ready}"
        yield Check("kernels", False, what, mend, needed=False)


def nccl_misfit(learner: Packages, engine: Packages) -> str:
    """Why the two can't form a group, "" where they can or nothing is known: NCCL asks for one version on all ranks."""
    if not learner.nccl or not engine.nccl or learner.nccl == engine.nccl:
        return ""
    return (
        f"the learner's torch {learner.torch} brings NCCL {learner.nccl}, SGLang's torch {engine.torch} brings"
        f" {engine.nccl}: they form no group"
    )


def examine(deploy: Deploy) -> Iterator[Check]:
    """Misfits for a run of `deploy` on this machine."""
    options = deploy.samplers.engine.options if isinstance(deploy.samplers.engine, SglangConfig) else {}
    own = "flashinfer" not in options.values() and options.get("sampling-backend") == "pytorch"
    collective = deploy.weight_sync.transport == "collective"
    yield from misfits(here(deploy.samplers.engine), collective=collective, compiles=not own)


def here(engine: object) -> Versions:
    """What this machine has, for the learner and for an `engine` of SGLang's."""
    python = ""
    if isinstance(engine, SglangConfig):
        with contextlib.suppress(ConfigError):
            python = str(interpreter(engine.python))
    driver = re.search(r"CUDA[A-Z ]* Version:\s*([\d.]+)", _printed(["nvidia-smi"]))
    home = os.environ.get("CUDA_HOME")
    compilers = (path for path in (home and Path(home, "bin/nvcc"), MACHINE_NVCC) if path and path.is_file())
    nvcc = re.search(r"release ([\d.]+)", _printed([str(next(compilers, "nvcc")), "--version"]))
    return Versions(
        learner=packages(_listed(sys.executable)),
        engine=packages(_listed(python)) if python else Packages(),
        driver=driver[1] if driver else "",
        nvcc=nvcc[1] if nvcc else "",
        gxx=shutil.which("g++") is not None,
    )


def packages(versions: Mapping[str, str]) -> Packages:
    """Those of `versions`, by the names of distributions, that matter on a GPU."""
    prefix = "nvidia-nccl-cu"
    known = {int(name.removeprefix(prefix)): name for name in versions if name.startswith(prefix)}
    torch, cuda = versions.get("torch", ""), max(known, default=0)
    on_cpu = torch.endswith("+cpu")
    return Packages(
        torch=torch,
        nccl="" if on_cpu else versions.get(known.get(cuda, ""), ""),
        cuda=0 if on_cpu else cuda,
        sglang=versions.get("sglang", ""),
        flashinfer=versions.get("flashinfer-python", ""),
        ready_kernels=versions.get("flashinfer-jit-cache", ""),
        nvcc=versions.get("nvidia-cuda-nvcc", ""),
    )


def _listed(python: str) -> dict[str, str]:
    listed: dict[str, str] = json.loads(_printed([python, "-I", "-c", _LIST]) or "{}")
    return listed


def _printed(command: list[str]) -> str:
    ok, text = answer(command)
    return text if ok else ""


def answer(command: list[str]) -> tuple[bool, str]:
    """Whether a program ended well, and what it printed; of one that did not, errors too."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, str(error)
    return (True, done.stdout) if done.returncode == 0 else (False, done.stdout + done.stderr)
