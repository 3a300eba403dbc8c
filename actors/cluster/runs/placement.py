"""From a deploy file to the processes that hold actors, and to what places those on other machines.

Invariant: pure but for reading the environment's Ray address.
"""

from __future__ import annotations

import os
from collections import Counter

import msgspec

from actors.cluster.config.schema import Deploy
from actors.desktop.config import SEATS_ENV, EndpointConfig
from runtime.system import HostSpec, PlacerSpec

LEARNER = "learner"  # the actor and its process
ROUTER = "router"  # likewise: in front of the samplers, and of a single one, for it can get others while the run lives
RANK_SILENT_S = 300.0  # a tensor library may hold the interpreter for long, and a restart costs a whole checkpoint
LEARNER_SILENT_S = 120.0  # of its actor: it plans large batches, and a restart costs the steps since a checkpoint
FAR_RANKS_SILENT_S = 120.0  # of several: they meet within 300 s, and a lost machine's has to begin elsewhere before
# Megatron-core says these at every import where Apex and CUDA graphs are not used; they would head every warning log.
MEGATRON_NOTICES = "ignore:Apex is not installed,ignore:full scope is deprecated"


def placed(deploy: Deploy) -> dict[str, tuple[HostSpec, ...]]:
    """The processes that a run of `deploy` may need besides the entry point's, by the key that places them.

    Those of samplers, router and learner's actor are there only where the key is set: without, they run in the entry
    point's process.
    """
    learner, samplers, seats = deploy.learner, deploy.samplers, deploy.desktops
    far_ranks = learner.place and learner.parallel.ranks > 1
    threads = {
        "OMP_NUM_THREADS": str(learner.rl.threads),
        "MKL_NUM_THREADS": str(learner.rl.threads),
        # A thread that waits for the other one sleeps: spinning takes the core from the desktop or the sampler that the
        # other's core is busy with, and a step then takes several times its processor time.
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONWARNINGS": MEGATRON_NOTICES,
    }
    endpoints = [one for one in (*deploy.demos.demonstrators, deploy.model.endpoint) if isinstance(one, EndpointConfig)]
    keys = tuple(sorted({one.key_env for one in endpoints if one.key_env}))
    actor = HostSpec(name=LEARNER, place=learner.actor_place, silent_limit_s=LEARNER_SILENT_S)
    return {
        "learner.place": tuple(
            HostSpec(
                name=f"ranks/{i}",
                place=learner.place or None,
                env=threads,
                silent_limit_s=FAR_RANKS_SILENT_S if far_ranks else RANK_SILENT_S,
            )
            for i in range(learner.parallel.ranks)
        ),
        "learner.actor_place": (actor,) * bool(learner.actor_place),
        "samplers.place": tuple(
            HostSpec(name=f"samplers/{i}", place=samplers.place, counts_below=True)
            for i in range(samplers.count * bool(samplers.place))
        ),
        "samplers.router_place": (HostSpec(name=ROUTER, place=samplers.router_place),) * bool(samplers.router_place),
        "desktops.place": tuple(
            HostSpec(name=f"desktops/{i}", place=seats.place or None, env=dict(SEATS_ENV), passes=keys)
            for i in range(seats.processes)
        ),
    }


def placer_of(deploy: Deploy) -> PlacerSpec | None:
    """How the hosts that have a place get their machines."""
    cluster = deploy.cluster
    if cluster.engine == "none" or not any(deploy.places.values()):
        return None
    every, hosts = Counter[str](), placed(deploy)
    for where, place in deploy.places.items():
        every.update({name: amount * len(hosts[where]) for name, amount in place.items()})
    arguments = [f"--address={cluster.address}", f"--resources={msgspec.json.encode(every).decode()}"]
    arguments += [f"--bind={cluster.bind.partition(':')[0]}"] * bool(cluster.bind)
    where = cluster.address or os.environ.get("RAY_ADDRESS", "") or "this machine's address"
    named = "Ray, which this machine starts," if where == "local" else f"Ray at {where} (cluster.address)"
    return PlacerSpec(cluster=named, arguments=tuple(arguments), bind=cluster.bind, wait_s=cluster.wait_s)
