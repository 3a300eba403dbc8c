"""From a deploy file to the processes that hold actors, and to what places those on other machines.

Invariant: pure but for reading the environment's Ray address.
"""

from __future__ import annotations

import os
from collections import Counter

import msgspec

from actors.cluster.config.schema import Deploy
from actors.desktop.config import SEATS_ENV, EndpointConfig
from actors.learner.config import LearnerConfig
from runtime.system import HostSpec, PlacerSpec

LEARNER = "learner"  # the actor and its process
ROUTER = "router"  # likewise: in front of the samplers, and of a single one, for it can get others while the run lives
RANK_SILENT_S = 300.0  # a tensor library may hold the interpreter for long, and a restart costs a whole checkpoint
LEARNER_SILENT_S = 120.0  # of its actor: it plans large batches, and a restart costs the steps since a checkpoint
FAR_RANKS_SILENT_S = 120.0  # of several: they meet within 300 s, and a lost machine's has to begin elsewhere before
# Megatron-core says these at every import where Apex and CUDA graphs are not used; they would head every warning log.
MEGATRON_NOTICES = "ignore:Apex is not installed,ignore:full scope is deprecated"


def rank_host(name: str, learner: LearnerConfig) -> HostSpec:
    """The process of one rank."""
    env = {
        "OMP_NUM_THREADS": str(learner.rl.threads),
        "MKL_NUM_THREADS": str(learner.rl.threads),
        # A thread that waits for the other one sleeps: spinning takes the core from the desktop or the sampler that the
        # other's core is busy with, and a step then takes several times its processor time.
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONWARNINGS": MEGATRON_NOTICES,
    }
    return HostSpec(
        name=name,
        place=learner.place or None,
        env=env,
        silent_limit_s=FAR_RANKS_SILENT_S if learner.place and learner.parallel.ranks > 1 else RANK_SILENT_S,
    )


def learner_hosts(learner: LearnerConfig) -> tuple[HostSpec, ...]:
    """Of the learner's actor on another machine."""
    host = HostSpec(
        name=LEARNER,
        place=learner.actor_place,
        silent_limit_s=LEARNER_SILENT_S,
    )
    return (host,) if learner.actor_place else ()


def router_hosts(deploy: Deploy) -> tuple[HostSpec, ...]:
    """Of the router on another machine."""
    place = deploy.samplers.router_place
    return (HostSpec(name=ROUTER, place=place),) if place else ()


def sampler_hosts(deploy: Deploy) -> tuple[HostSpec, ...]:
    """Of engines on other machines."""
    samplers = deploy.samplers
    return tuple(
        HostSpec(name=f"samplers/{i}", place=samplers.place, counts_below=True)
        for i in range(samplers.count if samplers.place else 0)
    )


def sampler_host(name: str) -> str:
    """The host of the sampler `name` where engines have a place."""
    return f"samplers/{name.rpartition('/')[2]}"


def desktop_hosts(deploy: Deploy) -> tuple[HostSpec, ...]:
    """The processes that hold desktops, with the variables that hold endpoints' keys."""
    endpoints = [one for one in (*deploy.demos.demonstrators, deploy.model.endpoint) if isinstance(one, EndpointConfig)]
    keys = [one.key_env for one in endpoints if one.key_env]
    return tuple(
        HostSpec(
            name=desktop_host(i),
            place=deploy.desktops.place or None,
            env=dict(SEATS_ENV),
            passes=tuple(sorted(set(keys))),
        )
        for i in range(deploy.desktops.processes)
    )


def desktop_host(index: int) -> str:
    """The host of the desktop process number `index`."""
    return f"desktops/{index}"


def hosts_of(deploy: Deploy) -> tuple[HostSpec, ...]:
    """Every process that a run of `deploy` may need."""
    learner = deploy.learner
    return (
        *(rank_host(f"ranks/{i}", learner) for i in range(learner.parallel.ranks)),
        *learner_hosts(learner),
        *sampler_hosts(deploy),
        *router_hosts(deploy),
        *desktop_hosts(deploy),
    )


def placed_by(deploy: Deploy) -> dict[str, list[str]]:
    """The hosts that each key of `Deploy.places` places, if it is set."""
    return {
        "desktops.place": [desktop_host(i) for i in range(deploy.desktops.processes)],
        "samplers.place": [f"samplers/{i}" for i in range(deploy.samplers.count)],
        "samplers.router_place": [ROUTER],
        "learner.place": [f"ranks/{i}" for i in range(deploy.learner.parallel.ranks)],
        "learner.actor_place": [LEARNER],
    }


def placer_of(deploy: Deploy) -> PlacerSpec | None:
    """How the hosts that have a place get their machines."""
    cluster = deploy.cluster
    if cluster.engine == "none" or not any(deploy.places.values()):
        return None
    every, hosts = Counter[str](), placed_by(deploy)
    for where, place in deploy.places.items():
        every.update({name: amount * len(hosts[where]) for name, amount in place.items()})
    arguments = [f"--address={cluster.address}", f"--resources={msgspec.json.encode(every).decode()}"]
    arguments += [f"--bind={cluster.bind.partition(':')[0]}"] * bool(cluster.bind)
    where = cluster.address or os.environ.get("RAY_ADDRESS", "") or "this machine's address"
    named = "Ray, which this machine starts," if where == "local" else f"Ray at {where} (cluster.address)"
    return PlacerSpec(cluster=named, arguments=tuple(arguments), bind=cluster.bind, wait_s=cluster.wait_s)
