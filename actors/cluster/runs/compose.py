"""From a deploy file to actors and hosts.

Invariant: pure but for reading what tasks, models, recordings and keys exist. The same file gives the same plan. An
actor stands in a later stage than the actors it needs to start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from actors.cluster.config import demonstrators as demopool
from actors.cluster.config import models
from actors.cluster.config import summary as plansummary
from actors.cluster.config.lanes import Lanes, lanes_of, refuse_undoable, routes_of
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import fits, host_specs, ledgers, recordings, refusals, trackers
from actors.cluster.runs.host_specs import LEARNER, ROUTER
from actors.cluster.runs.weights import BEGIN
from actors.desktop.actor import DesktopSeat
from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox import shares
from actors.entropulse.config import EntropulseSettings
from actors.learner.config import GroupSettings, LearnerSettings, RankSettings
from actors.learner.rank import meeting_s
from actors.replay.config import LedgerSettings
from actors.sampler.config import SamplerSettings, SglangConfig, attached_key
from actors.sampler.router import DispatchSettings
from apis.tasks.registry import kind_of
from policy.architecture import read_architecture
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.hosts.frames import wanted
from runtime.messaging.message import Version
from runtime.spec import MAIN
from runtime.system import ActorSpec, HostSpec, PlacerSpec

TENSOR_PARALLEL = {"tp", "tp-size", "tensor-parallel-size"}
ANSWER_MARGIN_S = 5.0  # that a seat waits for an answer beyond the sampler's own limit
START_S, FAR_START_S = 300.0, 4 * 3600.0  # of the learner: a model may have to go to ranks on other machines
FETCH_S = 300.0  # for a vocabulary to come to the learner's actor elsewhere
HUNG_S, SGLANG_HUNG_S = 20.0, 60.0  # without an answer for so long an engine is asked whether it still generates

Stages = tuple[tuple[ActorSpec, ...], ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, in which order."""

    deploy: Deploy
    run_dir: Path
    hosts: tuple[HostSpec, ...]
    stages: Stages
    lanes: Lanes
    placer: PlacerSpec | None = None  # of hosts on other machines
    memory: str = ""  # of each rank of the learner, beside what there is
    sums: tuple[shares.Sum, ...] = ()  # of the desktops' limits, beside what the machine has

    def host_rows(self) -> list[tuple[str, str, str]]:
        """Host, the actors in it, and where it goes."""
        where = {"main": "here"} | {one.name: _where(one) for one in self.hosts}
        specs = self._specs()
        return [(name, ranges([spec.name for spec in specs if spec.host == name]), at) for name, at in where.items()]

    def actor_rows(self) -> list[tuple[str, int, str]]:
        """Kind, count, factory."""
        kinds = Counter(_kind(spec.name) for spec in self._specs())
        factory = {_kind(spec.name): str(spec.factory) for spec in self._specs()}
        return [(kind, count, factory[kind]) for kind, count in kinds.items()]

    def summary(self) -> list[tuple[str, str]]:
        """Label and value: what the deploy file comes to, and what its desktops may take of the machine."""
        learner = [("learner", self.memory)] * bool(self.memory)
        return [*self._summary(), *learner, *((one.name, one.told) for one in self.sums)]

    def _summary(self) -> list[tuple[str, str]]:
        source = self._ledger().demos.source
        if not source:
            return plansummary.summary(self.deploy, self.lanes)
        held, wanted = recordings.header_of(Path(source)).demos, self.deploy.demos.count
        lanes = self.lanes if held < wanted else msgspec.structs.replace(self.lanes, demo=[])
        rest = f"the other {wanted - held} are demonstrated" if held < wanted else "none is demonstrated"
        holds = f"{self.deploy.demos.source} holds {plansummary.count(held, 'demonstration')}"
        return [*plansummary.summary(self.deploy, lanes), ("recording", f"{holds}, {wanted} are wanted: {rest}")]

    def caution(self) -> str:
        """A line on a recording that shows other observations than the run's desktops; "" without one."""
        source = self._ledger().demos.source
        return recordings.caution(Path(source)) if source else ""

    def demonstrators(self) -> list[str]:
        """Routes of the oracles, or members of the pool, by which demonstrations are made; none where none are."""
        if not self.deploy.demos.count:
            return []
        ledger = self._ledger()
        shown = (ledger.demo_members or ledger.demo_routes).values()
        return sorted({name for names in shown for name in names})

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
    """`desktop/0 desktop/1 desktop/2` as `desktop/0..2`, and every second one as `desktop/0,2..8`."""
    by_kind: dict[str, list[str]] = {}
    for name in names:
        by_kind.setdefault(_kind(name), []).append(name.rpartition("/")[2])
    return ", ".join(_range(kind, found) for kind, found in by_kind.items())


def _range(kind: str, found: list[str]) -> str:
    if not found[0].isdigit():
        return kind
    numbers = [int(one) for one in found]
    steps = {after - before for before, after in pairwise(numbers)}
    if len(steps) != 1:
        return f"{kind}/{','.join(found)}"
    second = "" if steps == {1} else f",{found[1]}"
    return f"{kind}/{found[0]}{second}..{found[-1]}" if not second or len(found) > 2 else f"{kind}/{found[0]}{second}"


def plan(deploy: Deploy, *, run_dir: Path, incarnation: str, dry: bool = False) -> Plan:
    """The plan of `deploy`, which a `dry` run only shows: its model may then be elsewhere.

    Raises ConfigError for tasks, models or numbers that don't fit together.
    """
    try:
        path, shape = deploy.model.path, deploy.model.shape
        model = str(models.planned(path, shape) if dry else models.locate(path))
    except ConfigError as error:
        raise ConfigError(f"model.path: {error}") from None
    models.refuse_form(Path(model), deploy.prompt.format)
    architecture = read_architecture(Path(model))
    refusals.elsewhere(deploy)
    trackers.refuse_missing(deploy.run.trackers)
    refusals.beyond_context(deploy, architecture.context)
    lanes = lanes_of(deploy.tasks)
    refusals.idle_phases(deploy, lanes)
    refusals.out_of_reach(deploy)
    refusals.shared_round(deploy)
    samplers = [f"sampler/{i}" for i in range(deploy.samplers.actors())]
    replay = _replay(deploy, lanes, model, run_dir, incarnation)
    learner = deploy.learner
    if learner.rehearsal and not Tokenizer.load(model).own:
        raise ConfigError(
            f"learner.rehearsal is {learner.rehearsal}: its exercises are the bundled base model's, and {model} has "
            "another vocabulary; leave it at 0"
        )
    learner.parallel.refuse(architecture)
    memory = fits.learner_memory(deploy, architecture)
    ranks = range(learner.parallel.ranks)
    rank = RankSettings(learner=learner, ranks=tuple(f"rank/{i}" for i in ranks))
    others = [
        *(
            ActorSpec(name=f"rank/{i}", factory="actors.learner.rank:RankActor", config=rank, host=f"ranks/{i}")
            for i in ranks
        ),
        ActorSpec(name="folders", factory="actors.learner.folders:FoldersActor"),
        ActorSpec(
            name=LEARNER,
            factory="actors.learner.actor:LearnerActor",
            config=LearnerSettings(
                learner=learner, model=model, seed=deploy.run.seed, samplers=samplers, groups=_groups(deploy)
            ),
            host=LEARNER if learner.actor_place else MAIN,
            start_timeout_s=(FAR_START_S if learner.place else START_S)
            + (FETCH_S if learner.actor_place else 0.0)
            + meeting_s(learner.parallel.ranks),
        ),
        *_samplers(deploy, model, samplers),
        ActorSpec(
            name="entropulse",
            factory="actors.entropulse.actor:EntropulseActor",
            config=EntropulseSettings(
                entropulse=deploy.entropulse,
                evaluation=deploy.evaluation,
                sampling=deploy.sampling,
                demos=deploy.demos.ledger(),
                eval_tasks=lanes.eval,
                task_set=lanes.task_set,
                samplers=samplers,
                single_version=deploy.samplers.single_version,
            ),
        ),
        *_seats(deploy, model, samplers),
    ]
    of_ranks = [host_specs.rank_host(f"ranks/{i}", learner, model, run_dir) for i in ranks]
    hosts = (
        *of_ranks,
        *host_specs.learner_hosts(learner, model, run_dir),
        *_serving_hosts(deploy, model, run_dir),
        *host_specs.desktop_hosts(deploy, model),
    )
    stages = ((replay,), tuple(others))
    return Plan(
        deploy=deploy,
        run_dir=run_dir,
        lanes=lanes,
        hosts=hosts,
        stages=stages,
        placer=host_specs.placer_of(deploy),
        sums=sums_of(deploy),
        memory=memory,
    )


def recording(deploy: Deploy, *, run_dir: Path, incarnation: str) -> Plan:
    """The plan of a run that only records demonstrations: the ledger and the seats. Raises ConfigError like `plan`."""
    model = str(models.locate(deploy.model.path))
    models.refuse_form(Path(model), deploy.prompt.format)
    lanes = lanes_of(deploy.tasks)
    stages = ((_replay(deploy, lanes, model, run_dir, incarnation),), tuple(_seats(deploy, model, [])))
    return _playing(deploy, lanes, model, run_dir, stages)


def evaluating(deploy: Deploy, *, version: Version, run_dir: Path, incarnation: str) -> Plan:
    """The plan of a run that only plays an evaluation round: the ledger, samplers that serve the base model as
    `version`, unless an endpoint answers, and the seats. Raises ConfigError like `plan`.
    """
    model = str(models.locate(deploy.model.path))
    models.refuse_form(Path(model), deploy.prompt.format)
    lanes = lanes_of(deploy.tasks)
    samplers = samplers_of(deploy)
    later = (*_samplers(deploy, model, samplers, version), *_seats(deploy, model, samplers))
    stages = ((_replay(deploy, lanes, model, run_dir, incarnation),), later)
    return _playing(deploy, lanes, model, run_dir, stages)


def samplers_of(deploy: Deploy) -> list[str]:
    """Names of the sampler actors of an evaluation."""
    return [] if deploy.model.endpoint is not None else [f"sampler/{i}" for i in range(deploy.samplers.actors())]


def _playing(deploy: Deploy, lanes: Lanes, model: str, run_dir: Path, stages: Stages) -> Plan:
    """The plan of a run that only plays."""
    used = {spec.host for stage in stages for spec in stage}
    serving = (host for host in _serving_hosts(deploy, model, run_dir) if host.name in used)
    hosts = (*serving, *host_specs.desktop_hosts(deploy, model))
    return Plan(
        deploy=deploy, run_dir=run_dir, lanes=lanes, hosts=hosts, stages=stages, placer=host_specs.placer_of(deploy)
    )


def _serving_hosts(deploy: Deploy, model: str, run_dir: Path) -> tuple[HostSpec, ...]:
    return *host_specs.sampler_hosts(deploy, model, run_dir), *host_specs.router_hosts(deploy)


def _replay(deploy: Deploy, lanes: Lanes, model: str, run_dir: Path, incarnation: str) -> ActorSpec:
    tokenizer = models.fingerprint(model)
    source = ""
    # A run that goes on needs its recording no more once it has taken it in.
    if deploy.demos.source and not ledgers.holds_demos(run_dir, deploy.demos.count):
        try:
            source = str(recordings.locate(deploy.demos.source, run_dir.parent))
        except ConfigError as error:
            raise ConfigError(f"demos.source: {error}") from None
        recordings.refuse_unfit(deploy, Path(source), tokenizer, lanes.eval)
    space = deploy.prompt.action_space
    refuse_undoable(lanes.train, space, "train")
    refuse_undoable(lanes.demo, space, "demo")
    pool = demopool.pool_of(deploy.demos, space)
    if not deploy.demos.source and deploy.demos.count:
        demopool.refuse_missing_keys(pool, os.environ)
    if deploy.samplers.attach:
        attached_key(deploy.samplers, os.environ)
    ledger = LedgerSettings(
        seed=deploy.run.seed,
        train_tasks=lanes.train,
        demo_tasks=lanes.demo,
        max_turns=deploy.tasks.max_turns,
        demos=msgspec.structs.replace(deploy.demos.ledger(), source=source),
        rules=deploy.replay,
        sampling=deploy.sampling,
        incarnation=incarnation,
        tokenizer=tokenizer,
        format=deploy.prompt.format,
        action_space=deploy.prompt.action_space,
        demo_routes={} if pool else routes_of(lanes.demo, deploy.demos.routes, space),
        demo_members=demopool.members_of(lanes.demo, pool, space),
        train_kinds=[kind_of(task) for task in lanes.train] if deploy.replay.curriculum != "none" else [],
        rl_steps_in_all=deploy.entropulse.rl_steps_in_all,
        rollout_share=deploy.evaluation.rollout_share,
        single_version=deploy.samplers.single_version,
        pulse=deploy.entropulse.pulse,
        advantage=deploy.learner.rl.advantage,
    )
    return ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=ledger)


def _groups(deploy: Deploy) -> GroupSettings | None:
    """How weights go by collective, if they do."""
    samplers, engine, sync = deploy.samplers, deploy.samplers.engine, deploy.weight_sync
    if sync.transport != "collective":
        return None
    started = isinstance(engine, SglangConfig) and not samplers.attach
    whole = not any(name.replace("_", "-") in TENSOR_PARALLEL for name in getattr(engine, "options", {}))
    same = isinstance(engine, SglangConfig) and engine.dtype == deploy.learner.dtype
    return GroupSettings(
        address=sync.address,
        backend="gloo" if samplers.device == "cpu" else "nccl",
        unit=sync.unit,
        checksums=started and whole and same and samplers.device == "cpu",
        join_s=sync.join_s,
    )


def _samplers(deploy: Deploy, model: str, names: list[str], version: Version = BEGIN) -> list[ActorSpec]:
    if not names:
        return []
    attached = deploy.samplers.attach or [""] * len(names)
    hung_s = SGLANG_HUNG_S if deploy.samplers.sglang else HUNG_S
    # A plan by a shape alone has no tokenizer, and starts nothing that would stop by its ids.
    stops = list(Tokenizer.load(model).stop_ids) if (Path(model) / "tokenizer.json").is_file() else []
    made = [
        ActorSpec(
            name=name,
            factory="actors.sampler.actor:SamplerActor",
            config=SamplerSettings(
                samplers=deploy.samplers.of_one(),
                weight_sync=deploy.weight_sync,
                model=model,
                attach=url,
                gpus=gpus,
                version=version,
                stop_ids=stops,
                hung_after_s=hung_s,
            ),
            host=host_specs.sampler_host(name) if deploy.samplers.place else MAIN,
        )
        for name, url, gpus in zip(names, attached, deploy.samplers.gpus or [""] * len(names), strict=True)
    ]
    settings = DispatchSettings(samplers=names, generate_timeout_s=deploy.samplers.generate_timeout_s)
    router = ActorSpec(
        name=ROUTER,
        factory="actors.sampler.router:DispatchActor",
        config=settings,
        host=ROUTER if deploy.samplers.router_place else MAIN,
    )
    return [*made, router]


def _seats(deploy: Deploy, model: str, samplers: list[str]) -> list[ActorSpec]:
    desktops = deploy.desktops.within(shares.room())
    # A little longer than the sampler's own limit, so that its word for what went wrong arrives.
    patience_s = deploy.samplers.generate_timeout_s + ANSWER_MARGIN_S
    configs = [
        DesktopSeat(
            seat=msgspec.structs.replace(
                desktops.seat(deploy.prompt),
                generate_timeout_s=patience_s,
                published_metrics=deploy.evaluation.published_metrics,
            ),
            desktops=desktops.of_one_host(deploy.replay.lease_s, index),
            model=model,
            samplers=[ROUTER] if samplers else [],
            fit_seats=desktops.seats_of(index) if desktops.place else 0,
            noise=deploy.demos.noise,
            demonstrators=demopool.pool_of(deploy.demos, deploy.prompt.action_space),
            endpoint=deploy.model.endpoint,
        )
        for index in range(desktops.processes)
    ]
    return [
        ActorSpec(
            name=f"desktop/{k}",
            factory="actors.desktop.actor:DesktopController",
            config=configs[desktops.host_of(k)],
            host=host_specs.desktop_host(desktops.host_of(k)),
        )
        for k in range(desktops.count)
    ]


def sums_of(deploy: Deploy) -> tuple[shares.Sum, ...]:
    """What the desktops may take of this machine together; nothing of those elsewhere. Raises ConfigError where they
    can't be had."""
    desktops = deploy.desktops
    if not isinstance(desktops.provider, SandboxConfig) or desktops.place:
        return ()
    return tuple(shares.sums(desktops.provider, desktops.count, desktops.ready, shares.room()))
