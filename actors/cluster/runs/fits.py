"""Whether the learner's model fits where it is trained.

Invariant: looking loads no tensor library and changes nothing. A plan that can't fit is refused with its parts, before
anything starts.
"""

from __future__ import annotations

import shutil
import subprocess

import psutil

from actors.cluster.config.schema import Deploy
from actors.sampler.config import SglangConfig
from policy import memory
from policy.architecture import Architecture
from policy.memory import GIB
from runtime.errors import ConfigError

ASK_S = 20.0


def device_bytes() -> int | None:
    """Memory of this machine's smallest GPU; None without one."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return None
    words = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=True).stdout
        return min(int(line) for line in said.splitlines()) << 20
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def learner_memory(deploy: Deploy, architecture: Architecture) -> str:
    """What each rank holds, in GiB, and of how much. Raises ConfigError where that is too little."""
    learner = deploy.learner
    elsewhere = bool(learner.place) and not learner.device_gib
    said = None if elsewhere else round(learner.device_gib * GIB) or device_bytes()
    found = memory.plan(
        architecture,
        learner.optim(),
        learner.parallel,
        token_budget=learner.token_budget,
        reference=learner.rl.kl_coef > 0,
        device="cuda" if said or learner.place.get("GPU") else "cpu",
        broadcast=deploy.weight_sync.transport == "collective",
    )
    if elsewhere:
        return f"{found.total / GIB:.2f} GiB, on the machine that learner.place finds: {found.by_part()}"
    ranks = learner.parallel.ranks
    if said:
        share = _engine_share(deploy)
        room, where = round(said * (1 - share)), f"a device of {said / GIB:.1f} GiB"
        where += f", of which an engine has {share:.0%}" if share else ""
    else:
        room, where = psutil.virtual_memory().total // ranks, "this machine's memory"
        where += f", shared by {ranks} ranks" if ranks > 1 else ""
    told = f"{found.total / GIB:.2f} of {room / GIB:.1f} GiB per rank ({where}): {found.by_part()}"
    if found.total > room:
        raise ConfigError(
            f"the learner can't fit: {told}; learner.parallel, learner.recompute, learner.token_budget and"
            " learner.lora.rank make it smaller"
        )
    if said and not learner.device_gib and found.host * ranks > (host := psutil.virtual_memory().total):
        raise ConfigError(
            f"what {ranks} ranks hold beside their devices can't fit in this machine's memory of {host / GIB:.1f} GiB:"
            f" {told}; learner.lora.rank makes it smaller, and learner.rl.kl_coef 0 needs no reference"
        )
    return told


def _engine_share(deploy: Deploy) -> float:
    """Of the learner's device: what an engine that is started beside it keeps for itself."""
    samplers = deploy.samplers
    if samplers.device == "cpu" or samplers.attach or samplers.place or samplers.gpus or deploy.learner.place:
        return 0.0
    options = samplers.engine.options if isinstance(samplers.engine, SglangConfig) else {}
    return float(options.get("mem-fraction-static", 0.0))
