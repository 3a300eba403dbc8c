"""From a deploy file to actors and hosts: the ledger, the learner, samplers, the supervisor and seats, each built here.

Invariant: the same file gives the same plan. An actor is in a later stage than the actors that it needs to start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.cluster.config import keys
from actors.cluster.config.lanes import Lanes, members_of, pool_of, routes_of
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.runs import recordings
from actors.cluster.runs.refusals import Named
from actors.desktop import memo as memos
from actors.desktop.actor import DesktopSeat
from actors.desktop.config import SEATS_ENV, E2bConfig, EndpointConfig, SandboxConfig
from actors.desktop.providers.sandbox import shares
from actors.entropulse.config import EntropulseSettings
from actors.learner.config import GroupSettings, LearnerSettings, RankSettings
from actors.learner.rank import meeting_s
from actors.replay.config import LedgerSettings
from actors.sampler.config import SamplersConfig, SamplerSettings, WeightSyncConfig
from actors.sampler.messages import BEGIN
from actors.sampler.router import DispatchSettings
from apis.tasks.registry import digest, kind_of
from policy.settings import projection
from runtime.hosts.frames import wanted
from runtime.messaging.message import Version
from runtime.spec import MAIN
from runtime.system import ActorSpec, HostSpec, PlacerSpec

ANSWER_MARGIN_S = 5.0  # that a seat waits for an answer beyond the sampler's own limit
LOAD_S, FAR_LOAD_S = 300.0, 4 * 3600.0  # of a whole model: ranks on other machines read and write it by a file server
HUNG_S, SGLANG_HUNG_S = 20.0, 60.0  # without an answer for so long an engine is asked whether it still generates

LEARNER = "learner"  # the actor and its process
ROUTER = "router"  # likewise: in front of the samplers, and of a single one, for it can get others while the run lives
RANK_SILENT_S = 300.0  # a tensor library may hold the interpreter for long, and a restart costs a whole checkpoint
LEARNER_SILENT_S = 120.0  # of its actor: it plans large batches, and a restart costs the steps since a checkpoint
FAR_RANKS_SILENT_S = 120.0  # of several: they meet within 300 s, and a lost machine's has to begin elsewhere before
# Megatron-core says these at every import where Apex and CUDA graphs are not used; they would head every warning log.
MEGATRON_NOTICES = "ignore:Apex is not installed,ignore:full scope is deprecated"

Stages = tuple[tuple[ActorSpec, ...], ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, in which order."""

    deploy: Deploy
    run_dir: Path
    hosts: tuple[HostSpec, ...]
    stages: Stages
    lanes: Lanes
    placer: PlacerSpec | None = None  # of hosts on other machines
    memory: str = ""  # of each rank of the learner, and what there is
    caution: str = ""  # a line on a recording that shows other observations than the run's desktops
    sums: tuple[shares.Sum, ...] = ()  # of the desktops' limits, and what the machine has

    def host_rows(self) -> list[tuple[str, str, str]]:
        """Host, the actors in it, and where it goes."""
        where = {"main": "here"} | {one.name: _where(one) for one in self.hosts}
        specs = self._specs()
        return [(name, ranges([spec.name for spec in specs if spec.host == name]), at) for name, at in where.items()]

    def summary(self) -> list[tuple[str, str]]:
        """Label and value: what the deploy file comes to, and what its desktops may take of the machine."""
        sums = [(one.name, one.line) for one in self.sums]
        more = [("learner", self.memory)] * bool(self.memory) + sums + self._memo()
        source = self._ledger().demos.source
        if not source:
            return [*keys.summary(self.deploy, self.lanes), *more]
        held, wanted = recordings.header_of(Path(source)).demos, self.deploy.demos.count
        lanes = self.lanes if held < wanted else msgspec.structs.replace(self.lanes, demo=[])
        rest = f"the other {wanted - held} are demonstrated" if held < wanted else "none is demonstrated"
        holds = f"{self.deploy.demos.source} holds {keys.count(held, 'demonstration')}"
        return [*keys.summary(self.deploy, lanes), ("recording", f"{holds}, {wanted} are wanted: {rest}"), *more]

    def _memo(self) -> list[tuple[str, str]]:
        """What is remembered of desktops here; nothing where none is, or where they are elsewhere."""
        config = next((spec.config for spec in self._specs() if isinstance(spec.config, DesktopSeat)), None)
        if config is None or config.seat.memo == "off" or self.deploy.desktops.place:
            return []
        file = memos.file_of(config.seat.memo_file, self.run_dir.parent)
        return [("memo", memos.known(memos.scope(config.seat, config.desktops), file))]

    @property
    def samplers(self) -> list[str]:
        return [spec.name for spec in self._specs() if spec.name.startswith("sampler/")]

    def _ledger(self) -> LedgerSettings:
        ledger = self.stages[0][0].config
        if not isinstance(ledger, LedgerSettings):
            raise TypeError(f"the first stage holds {self.stages[0][0].name}, not the ledger")
        return ledger

    def _specs(self) -> list[ActorSpec]:
        return [spec for stage in self.stages for spec in stage]


def _where(host: HostSpec) -> str:
    return "here" if host.place is None else f"a machine with {wanted(host.place)} free"


def _kind(name: str) -> str:
    head, _, tail = name.rpartition("/")
    return head if tail.isdigit() else name


def ranges(names: Sequence[str]) -> str:
    """`desktop/0 desktop/1 desktop/2` as `desktop/0..2`, and those with gaps one by one."""
    by_kind: dict[str, list[str]] = {}
    for name in names:
        by_kind.setdefault(_kind(name), []).append(name.rpartition("/")[2])
    return ", ".join(_range(kind, tails) for kind, tails in by_kind.items())


def _range(kind: str, tails: list[str]) -> str:
    if not tails[0].isdigit():
        return kind
    first, last = int(tails[0]), int(tails[-1])
    return f"{kind}/{first}..{last}" if last - first == len(tails) - 1 and last > first else f"{kind}/{','.join(tails)}"


def plan(named: Named, *, run_dir: Path, incarnation: str) -> Plan:
    """The plan of a run that trains."""
    deploy, model = named.deploy, named.model
    samplers = _sampler_names(deploy.samplers)
    parts = [
        *_learner(deploy, model, samplers),
        *_samplers(deploy.samplers, deploy.weight_sync, model, named.stop_ids, adapters=_adapters(named)),
        _supervisor(deploy, named.lanes, samplers),
        *_seats(deploy, model, ROUTER),
    ]
    return _placed(named, run_dir, incarnation, parts, sums=sums_of(deploy.desktops))


def recording(named: Named, *, run_dir: Path, incarnation: str) -> Plan:
    """The plan of a run that only records demonstrations: the ledger and the seats."""
    return _placed(named, run_dir, incarnation, _seats(named.deploy, named.model, ""))


def evaluating(named: Named, *, version: Version, model: str = "", run_dir: Path, incarnation: str) -> Plan:
    """The plan of a run that only plays an evaluation round: the ledger, samplers that serve the folder `model`
    (its own where none is given) as `version`, unless an endpoint answers, and the seats.
    """
    deploy, model = named.deploy, model or named.model
    samplers = []
    if deploy.model.endpoint is None:
        alone = msgspec.structs.replace(deploy.samplers, turns=False)  # no learner is here
        samplers = _samplers(alone, deploy.weight_sync, model, named.stop_ids, version)
    seats = _seats(deploy, model, ROUTER if samplers else "")
    return _placed(named, run_dir, incarnation, [*samplers, *seats])


def _placed(
    named: Named, run_dir: Path, incarnation: str, parts: list[ActorSpec], *, sums: tuple[shares.Sum, ...] = ()
) -> Plan:
    deploy, used = named.deploy, {spec.host for spec in parts}
    places = placed(deploy).values()
    return Plan(
        deploy=deploy,
        run_dir=run_dir,
        lanes=named.lanes,
        hosts=tuple(host for several in places for host in several if host.name in used),
        stages=((_ledger(deploy, named, incarnation),), tuple(parts)),
        placer=placer_of(deploy),
        sums=sums,
        memory=named.memory,
        caution=named.caution,
    )


def _ledger(deploy: Deploy, named: Named, incarnation: str) -> ActorSpec:
    space, lanes = deploy.prompt.action_space, named.lanes
    pool = pool_of(deploy.demos, space)
    ledger = LedgerSettings(
        seed=deploy.run.seed,
        train_tasks=lanes.train,
        demo_tasks=lanes.demo,
        max_turns=deploy.tasks.max_turns,
        demos=msgspec.structs.replace(deploy.demos.ledger(), source=named.recording),
        rules=deploy.replay,
        sampling=deploy.sampling,
        incarnation=incarnation,
        tokenizer=named.tokenizer,
        format=deploy.prompt.format,
        action_space=space,
        demo_routes={} if pool else routes_of(lanes.demo, deploy.demos.routes, space),
        demo_members=members_of(lanes.demo, pool, space),
        train_kinds=[kind_of(task) for task in lanes.train] if deploy.replay.curriculum != "none" else [],
        rl_steps_in_all=deploy.entropulse.total_rl_steps,
        rollout_share=deploy.evaluation.rollout_share,
        single_version=deploy.samplers.single_version,
        pulse=deploy.entropulse.pulse,
        advantage=deploy.learner.rl.advantage,
        own_reward=bool(deploy.learner.rl.reward),
    )
    return ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=ledger)


def _learner(deploy: Deploy, model: str, samplers: list[str]) -> list[ActorSpec]:
    learner, seed, groups = deploy.learner, deploy.run.seed, _groups(deploy)
    ranks = range(learner.parallel.ranks)
    turns = deploy.samplers.turns
    rank = RankSettings(learner=learner, ranks=tuple(f"rank/{i}" for i in ranks), turns=turns)
    load_s = FAR_LOAD_S if learner.place else LOAD_S
    return [
        *(
            ActorSpec(name=f"rank/{i}", factory="actors.learner.rank:RankActor", config=rank, host=f"ranks/{i}")
            for i in ranks
        ),
        ActorSpec(
            name=LEARNER,
            factory="actors.learner.actor:LearnerActor",
            config=LearnerSettings(
                learner=learner,
                model=model,
                seed=seed,
                samplers=samplers,
                groups=groups,
                turns=turns,
                transport=deploy.weight_sync.transport,
                load_timeout_s=load_s,
            ),
            host=LEARNER if learner.actor_place else MAIN,
            start_timeout_s=load_s + meeting_s(len(ranks)),
        ),
    ]


def _groups(deploy: Deploy) -> GroupSettings | None:
    sync, backend = deploy.weight_sync, "gloo" if deploy.samplers.device == "cpu" else "nccl"
    if sync.transport != "collective":
        return None
    return GroupSettings(address=sync.address, backend=backend, join_s=sync.join_s)


def _adapters(named: Named) -> tuple[int, list[str]]:
    """Rank and projections of the adapters that engines get; 0 where they get whole weights."""
    lora = named.deploy.learner.lora
    if named.deploy.weight_sync.transport != "adapter":
        return 0, []
    return lora.rank, sorted({projection(hf) for of in lora.adapted(named.architecture).values() for hf in of})


def _sampler_names(samplers: SamplersConfig) -> list[str]:
    return [f"sampler/{i}" for i in range(samplers.actors())]


def _samplers(
    samplers: SamplersConfig,
    sync: WeightSyncConfig,
    model: str,
    stop_ids: list[int],
    version: Version = BEGIN,
    *,
    adapters: tuple[int, list[str]] = (0, []),
) -> list[ActorSpec]:
    names = _sampler_names(samplers)
    made = [
        ActorSpec(
            name=name,
            factory="actors.sampler.actor:SamplerActor",
            config=SamplerSettings(
                samplers=samplers.of_one(),
                weight_sync=sync,
                model=model,
                attach=url,
                gpus=gpus,
                version=version,
                adapter_rank=adapters[0],
                adapter_targets=adapters[1],
                stop_ids=stop_ids,
                hung_after_s=SGLANG_HUNG_S if samplers.sglang else HUNG_S,
            ),
            host=f"samplers/{name.rpartition('/')[2]}" if samplers.place else MAIN,
        )
        for name, url, gpus in zip(
            names, samplers.attach or [""] * len(names), samplers.gpus or [""] * len(names), strict=True
        )
    ]
    router = ActorSpec(
        name=ROUTER,
        factory="actors.sampler.router:DispatchActor",
        config=DispatchSettings(samplers=names, generate_timeout_s=samplers.answer_limit_s),
        host=ROUTER if samplers.router_place else MAIN,
    )
    return [*made, router]


def _supervisor(deploy: Deploy, lanes: Lanes, samplers: list[str]) -> ActorSpec:
    phases = deploy.entropulse
    tried = lanes.trial(phases.trial_tasks if phases.pulse == "trials" else 0)
    settings = EntropulseSettings(
        entropulse=phases,
        evaluation=deploy.evaluation,
        sampling=deploy.sampling,
        demos=deploy.demos.ledger(),
        eval_tasks=lanes.eval,
        task_set=lanes.task_set,
        trial_tasks=tried,
        trial_set=digest(tried),
        samplers=samplers,
        single_version=deploy.samplers.single_version,
    )
    return ActorSpec(name="entropulse", factory="actors.entropulse.actor:EntropulseActor", config=settings)


def _seats(deploy: Deploy, model: str, router: str) -> list[ActorSpec]:
    """A controller for each seat; those of a process share its settings. `router` is "" where no engine answers."""
    desktops = deploy.desktops.within(shares.room())
    seat = msgspec.structs.replace(
        desktops.seat(deploy.prompt),
        # A little longer than the sampler's own limit, so that its word for what went wrong arrives.
        generate_timeout_s=deploy.samplers.answer_limit_s + ANSWER_MARGIN_S,
        published_metrics=deploy.evaluation.published_metrics,
    )
    pool = pool_of(deploy.demos, deploy.prompt.action_space)
    configs = [
        DesktopSeat(
            seat=seat,
            desktops=desktops.of_one_host(deploy.replay.lease_s, index),
            model=model,
            samplers=[router] if router else [],
            fit_seats=desktops.seats_of(index) if desktops.place else 0,
            noise=deploy.demos.noise,
            demonstrators=pool,
            endpoint=deploy.model.endpoint,
        )
        for index in range(desktops.processes)
    ]
    return [
        ActorSpec(
            name=f"desktop/{k}",
            factory="actors.desktop.actor:DesktopController",
            config=configs[desktops.host_of(k)],
            host=f"desktops/{desktops.host_of(k)}",
        )
        for k in range(desktops.count)
    ]


def sums_of(desktops: SeatsConfig) -> tuple[shares.Sum, ...]:
    """What the desktops may take of this machine together; nothing of those elsewhere. Raises ConfigError where they
    can't be had."""
    if not isinstance(desktops.provider, SandboxConfig) or desktops.place:
        return ()
    return tuple(shares.sums(desktops.provider, desktops.count, desktops.ready, shares.room()))


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
    asked = (*deploy.demos.demonstrators, deploy.model.endpoint, seats.provider)
    endpoints = [one for one in asked if isinstance(one, EndpointConfig | E2bConfig)]
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
    arguments = (f"--address={cluster.address}", f"--resources={msgspec.json.encode(every).decode()}")
    where = cluster.address or os.environ.get("RAY_ADDRESS", "") or "this machine's address"
    named = "Ray, which this machine starts," if where == "local" else f"Ray at {where} (cluster.address)"
    return PlacerSpec(cluster=named, arguments=arguments, wait_s=cluster.wait_s)
