"""From a deploy file to the processes that hold actors, and to what places those on other machines.

Invariant: pure but for reading the environment's Ray address. A host that has a place names what it reads from here.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

from actors.cluster.config.schema import Deploy
from actors.desktop.config import SEATS_ENV
from actors.desktop.endpoints.config import EndpointConfig
from actors.entropulse.kept_weights import PINNED
from actors.learner.config import LearnerConfig
from actors.learner.folders import CHECKPOINTS, PLANS, WEIGHTS
from runtime.system import HostSpec, PlacerSpec

RANK_SILENT_S = 300.0  # a tensor library may hold the interpreter for long, and a restart costs a whole checkpoint
FAR_RANKS_SILENT_S = 120.0  # of several: they meet within 300 s, and a lost machine's has to begin elsewhere before
# Megatron-core says these at every import where Apex and CUDA graphs are not used; they would head every warning log.
MEGATRON_NOTICES = "ignore:Apex is not installed,ignore:full scope is deprecated"


def rank_host(name: str, learner: LearnerConfig, model: str, run_dir: Path) -> HostSpec:
    """The process of one rank; on another machine it reads and writes what lies here."""
    env = {
        "OMP_NUM_THREADS": str(learner.rl.threads),
        "MKL_NUM_THREADS": str(learner.rl.threads),
        # A thread that waits for the other one sleeps: spinning takes the core from the desktop or the sampler that the
        # other's core is busy with, and a step then takes several times its processor time.
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONWARNINGS": MEGATRON_NOTICES,
    }
    checkpoints, weights, plans = (str(run_dir.resolve() / one) for one in (CHECKPOINTS, WEIGHTS, PLANS))
    return HostSpec(
        name=name,
        place=learner.place or None,
        env=env,
        reads_weights=(model, checkpoints, plans) if learner.place else (),
        writes=(checkpoints, weights) if learner.place else (),
        silent_limit_s=FAR_RANKS_SILENT_S if learner.place and learner.parallel.ranks > 1 else RANK_SILENT_S,
    )


def sampler_hosts(deploy: Deploy, model: str, run_dir: Path) -> tuple[HostSpec, ...]:
    """Of engines on other machines, which read what the learner writes here."""
    weights = (model, *(str(run_dir.resolve() / name) for name in (WEIGHTS, PINNED)))
    samplers = deploy.samplers
    return tuple(
        HostSpec(name=f"samplers/{i}", place=samplers.place, reads_weights=weights, counts_below=True)
        for i in range(samplers.count if samplers.place else 0)
    )


def sampler_host(name: str) -> str:
    """The host of the sampler `name` where engines have a place."""
    return f"samplers/{name.rpartition('/')[2]}"


def desktop_hosts(deploy: Deploy, model: str) -> tuple[HostSpec, ...]:
    """The processes that hold desktops, with the variables that hold endpoints' keys."""
    endpoints = [one for one in (*deploy.demos.demonstrators, deploy.model.endpoint) if isinstance(one, EndpointConfig)]
    keys = [one.key_env for one in endpoints if one.key_env]
    return tuple(
        HostSpec(
            name=desktop_host(i),
            place=deploy.desktops.place or None,
            env=dict(SEATS_ENV),
            reads=(model,),
            passes=tuple(sorted(set(keys))),
        )
        for i in range(deploy.desktops.processes)
    )


def desktop_host(index: int) -> str:
    """The host of the desktop process number `index`."""
    return f"desktops/{index}"


def processes_of(deploy: Deploy) -> dict[str, int]:
    """How many processes each section of `Deploy.places` has."""
    ranks = deploy.learner.parallel.ranks
    return {"desktops": deploy.desktops.processes, "samplers": deploy.samplers.count, "learner": ranks}


def placer_of(deploy: Deploy) -> PlacerSpec | None:
    """How the hosts that have a place get their machines."""
    cluster = deploy.cluster
    if cluster.engine == "none" or not any(place for _, place in deploy.places):
        return None
    every = Counter[str]()
    for part, place in deploy.places:
        every.update({name: amount * processes_of(deploy)[part] for name, amount in place.items()})
    arguments = [f"--address={cluster.address}", f"--resources={msgspec.json.encode(every).decode()}"]
    arguments += [f"--bind={cluster.bind.partition(':')[0]}"] * bool(cluster.bind)
    where = cluster.address or os.environ.get("RAY_ADDRESS", "") or "this machine's address"
    named = "Ray, which this machine starts," if where == "local" else f"Ray at {where} (cluster.address)"
    return PlacerSpec(cluster=named, arguments=tuple(arguments), bind=cluster.bind, wait_s=cluster.wait_s)
