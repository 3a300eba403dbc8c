"""The deploy file's schema.

Invariant: importing it loads no tensor library; every key has a type, a default and one place where it is declared;
at most 60 keys can be set, unless the file says that it is an expert's.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from actors.cluster.runs.criterion import RequireConfig
from actors.desktop.config import DesktopsConfig, HostsConfig, PoolConfig, SandboxConfig
from actors.desktop.demonstrators.config import EndpointMember, OracleMember
from actors.desktop.providers.sandbox.shares import Room, fitted
from actors.desktop.seat_config import Screenshots, SeatConfig
from actors.entropulse.config import EntropulseConfig, EvaluationConfig
from actors.learner.config import LearnerConfig
from actors.replay.config import DemosConfig, ReplayConfig, TasksConfig
from actors.sampler.config import SamplersConfig
from apis.actions.spaces import ActionSpace
from apis.prompts.compact import Form
from runtime.errors import ConfigError

SEED_MOST = 2**63 - 1  # messages between actors hold no larger whole number
# Every seat is an actor that the plan spells out and the one ledger hears: far more than the thousands it is built for.
SEATS_MOST = 65_536
HOSTS_MOST = 1024  # each is a process of its own on this machine


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The run as a whole."""

    seed: int = 0  # of tasks' order, sampling, demonstrators and batches
    base: str = ""  # Hugging Face folder to start from; "" is the bundled base model
    log_level: Literal["debug", "info", "warning", "error"] = (
        "info"  # what is less is not logged; reports and curves are made from "info"
    )
    expert: bool = False  # whether keys that are an expert's (EXPERT) may differ from their defaults
    limit_s: float | None = None  # wall seconds after which the run stops by itself; null: no limit
    require: RequireConfig = RequireConfig()

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= SEED_MOST:
            raise ConfigError(f"run.seed is {self.seed}: it is from 0 to {SEED_MOST}")
        if self.limit_s is not None and not 0 < self.limit_s < math.inf:
            raise ConfigError(f"run.limit_s is {self.limit_s}: it is above 0, and null for no limit")


class SeatsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where episodes are played."""

    seats: int = 4  # episodes at the same time
    hosts: int = 1  # processes that the seats are spread over
    spares: int = 1  # desktops that stand ready, per host process
    provider: SandboxConfig | HostsConfig = SandboxConfig()
    form: Form = "compact"  # of prompts and answers
    actions: ActionSpace = (
        "both"  # that the agent and its demonstrators have: all, "gui" or "api" (apis/actions/spaces.py)
    )
    screenshots: Screenshots = "some"  # stored: of each episode its last, and with "some" all of one episode in 16
    settle_ms: int = 1500  # the longest wait for a desktop to come to rest after an action

    def __post_init__(self) -> None:
        for name, least, most in (("seats", 1, SEATS_MOST), ("hosts", 1, HOSTS_MOST), ("spares", 0, SEATS_MOST)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"desktops.{name} is {getattr(self, name)}: it counts from {least} to {most}")
        if self.hosts > self.seats:
            raise ConfigError(f"desktops.hosts is {self.hosts}: more processes than desktops.seats ({self.seats})")
        if self.settle_ms < 0:
            raise ConfigError(f"desktops.settle_ms is {self.settle_ms}: it is not below 0")
        for index in range(self.hosts):
            if isinstance(self.provider, HostsConfig):
                self._refuse_too_few(self.provider, index)

    def _refuse_too_few(self, provider: HostsConfig, index: int) -> None:
        seats = self.seats_of(index)
        if (there := provider.share(index, self.hosts).seats) < seats + self.spares:
            raise ConfigError(
                f"desktops.provider.machines: of their {provider.seats} seats desktop process {index} has {there}, and"
                f" keeps {seats} desktops busy and {self.spares} ready: name more, or lower desktops.seats or .spares"
            )

    def host_of(self, seat: int) -> int:
        """The host process that a seat belongs to."""
        return seat * self.hosts // self.seats

    def seats_of(self, index: int) -> int:
        """How many seats belong to host process `index`."""
        first, after = (-(-place * self.seats // self.hosts) for place in (index, index + 1))
        return after - first

    @property
    def ready(self) -> int:
        """Desktops that stand ready, of all processes."""
        return self.spares * self.hosts

    def within(self, room: Room, key: str = "desktops.seats") -> SeatsConfig:
        """The same with limits of a desktop that the machine has `room` for. Raises ConfigError, which names `key`."""
        if isinstance(self.provider, HostsConfig):
            return self
        provider = fitted(self.provider, self.seats, self.ready, room, key=key)
        return msgspec.structs.replace(self, provider=provider)

    def of_one_host(self, lease_s: float = 900.0, index: int = 0) -> DesktopsConfig:
        """The desktops of host process `index`, each leased for as long as an episode is reserved (seconds)."""
        provider = self.provider
        if isinstance(provider, HostsConfig):
            provider = provider.share(index, self.hosts)
        return DesktopsConfig(provider=provider, pool=PoolConfig(spares=self.spares, lease_s=lease_s))

    def seat(self) -> SeatConfig:
        """What every seat is told."""
        return SeatConfig(form=self.form, actions=self.actions, screenshots=self.screenshots, settle_ms=self.settle_ms)


class DemonstrationsConfig(DemosConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where demonstrations come from and how they are played."""

    noise: float = 0.0  # how often a demonstrator takes a harmless wrong step and recovers
    routes: list[str] = []  # ways that demonstrators go in turn ("gui", "api", "mixed"); none: all of desktops.actions
    pool: list[OracleMember | EndpointMember] = []  # who demonstrates; none: the tasks' oracles, by every route
    resample_bc_steps: int = 0  # optimizer steps of the cloning after a round of resampling; 0: entropulse.bc_steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.noise < 1:
            raise ConfigError(f"demos.noise is {self.noise}: a share from 0 to below 1")
        if self.resample_bc_steps < 0:
            raise ConfigError(f"demos.resample_bc_steps is {self.resample_bc_steps}: it counts, from 0")

    def ledger(self) -> DemosConfig:
        """What the ledger is told."""
        return DemosConfig(**{name: getattr(self, name) for name in DemosConfig.__struct_fields__})


class Deploy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One deploy file."""

    run: RunConfig = RunConfig()
    tasks: TasksConfig = TasksConfig()
    demos: DemonstrationsConfig = DemonstrationsConfig()
    desktops: SeatsConfig = SeatsConfig()
    samplers: SamplersConfig = SamplersConfig()
    replay: ReplayConfig = ReplayConfig()
    learner: LearnerConfig = LearnerConfig()
    entropulse: EntropulseConfig = EntropulseConfig()
    evaluation: EvaluationConfig = EvaluationConfig()


# Keys whose defaults suit every first run: without `run.expert` they stay as they are.
EXPERT = frozenset(
    {
        "demos.pool",
        "learner.rl_cycle",
        "replay.disk_gib",
        "demos.attempts",
        "demos.mixed_attempts",
        "demos.resample_rounds",
        "demos.resamples",
        "demos.resample_bc_steps",
        "desktops.actions",
        "desktops.provider.state_dir",
        "desktops.provider.memory_mib",
        "desktops.provider.disk_mib",
        "desktops.provider.processes",
        "desktops.provider.open_files",
        "desktops.provider.terminals",
        "samplers.device",
        "samplers.gpus",
        "samplers.nice",
        "samplers.max_waiting",
        "samplers.cache_tokens",
        "samplers.update",
        "samplers.canary_tolerance",
        "samplers.publish",
        "samplers.publish_unit",
        "samplers.publish_address",
        "samplers.publish_join_s",
        "samplers.engine.python",
        "samplers.engine.dtype",
        "samplers.engine.options",
        "replay.curriculum",
        "replay.retries",
        "replay.reservoir_per_task",
        "replay.pulse_tasks",
        "replay.pulse_demos",
        "replay.keep_payload_steps",
        "replay.reservation_s",
        "replay.sampler_silent_s",
        "learner.advantage_std",
        "learner.negative_scale",
        "learner.rl_warmup_steps",
        "learner.lr_schedule",
        "learner.sft_lr_schedule",
        "learner.lr_floor",
        "learner.advantage",
        "learner.epochs",
        "learner.dual_clip",
        "learner.mismatch_cap",
        "learner.rehearsal",
        "learner.rehearsal_coef",
        "learner.betas",
        "learner.weight_decay",
        "learner.clip_grad",
        "learner.dtype",
        "learner.ranks",
        "entropulse.min_stay",
        "entropulse.window",
        "entropulse.plateau_gain",
        "entropulse.entropy_share",
        "entropulse.patience",
        "entropulse.pulse",
        "entropulse.rl_steps_for_pulse",
        "evaluation.episodes",
        "evaluation.one_in",
        "run.require.gain_above",
    }
)


def refuse_expert_keys(deploy: Deploy, source: str) -> None:
    """Raise ConfigError when an expert's key was changed in a file that does not say `run.expert`."""
    if deploy.run.expert:
        return
    for path in sorted(EXPERT):
        if _changed(deploy, path):
            raise ConfigError(f"{source}: {path} is an expert's key: set run.expert to true as well to change it")


def _changed(deploy: Deploy, path: str) -> bool:
    """Whether the key at `path` is there and not at its default."""
    *parents, key = path.split(".")
    owner: Any = deploy
    for name in parents:
        owner = getattr(owner, name, None)
    for field in msgspec.structs.fields(owner) if isinstance(owner, msgspec.Struct) else ():
        if field.name == key:
            made = field.default_factory
            return bool(getattr(owner, key) != (field.default if made is msgspec.NODEFAULT else made()))
    return False
