"""The deploy file's schema. Importing it loads no tensor library, no task family and no database."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import msgspec

from actors.desktop import config as desktop
from actors.desktop.providers.sandbox.shares import Room, fitted
from actors.entropulse.config import EntropulseConfig, EvaluationConfig
from actors.learner.config import LearnerConfig
from actors.replay.config import ReplayConfig, TasksConfig
from actors.sampler.config import EmbeddedConfig, SamplersConfig, WeightSyncConfig
from actors.settings import DemosConfig, SamplingConfig
from apis.observation import SCREEN
from apis.prompts import USUAL
from runtime.errors import ConfigError
from runtime.settings import Section, key, tuning

SEED_MOST = 2**63 - 1  # messages between actors hold no larger whole number
# Every seat is an actor that the plan spells out and the one ledger hears: far more than the thousands it is built for.
DESKTOPS_MOST = 65_536
PROCESSES_MOST = 1024  # each is a process of its own on this machine


class ClusterConfig(Section, frozen=True, kw_only=True):
    """Other machines, and how this one is reached from them."""

    AT: ClassVar[str] = "cluster"

    engine: Annotated[
        Literal["none", "ray"],
        key("Chooses what finds machines for parts that have a place. none keeps all on this machine."),
    ] = "none"
    address: Annotated[
        str,
        key(
            "Gives the cluster's HOST:PORT. Empty takes RAY_ADDRESS or the cluster that this machine belongs to; local"
            " starts one on this machine and stops it at the end."
        ),
    ] = ""
    wait_s: Annotated[
        float, tuning("Ends the run when a process has found no machine at its start for so many seconds.", gt=0)
    ] = 600.0


class RequireConfig(Section, frozen=True, kw_only=True):
    """What must have happened, else the run's exit status is 1."""

    AT: ClassVar[str] = "run.require"

    bc_steps: Annotated[int, key("Fails the run with fewer optimizer steps of behaviour cloning.", ge=0)] = 0
    rl_steps: Annotated[int, key("Fails the run with fewer RL steps.", ge=0)] = 0
    gain_above: Annotated[
        Annotated[float, msgspec.Meta(ge=-1, le=1)] | None,
        key("Fails the run unless the 95 % interval of the paired gain lies above this share."),
    ] = None


class RunConfig(Section, frozen=True, kw_only=True):
    """The run as a whole."""

    AT: ClassVar[str] = "run"

    seed: Annotated[int, key("Seeds the tasks' order, sampling, demonstrators and batches.", ge=0, le=SEED_MOST)] = 0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        tuning("Logs no event below this level. Reports and curves need info."),
    ] = "info"
    limit_s: Annotated[
        Annotated[float, msgspec.Meta(gt=0)] | None,
        key("Stops the run after this many seconds of wall time. null sets no limit."),
    ] = None
    require: RequireConfig = RequireConfig()
    trackers: Annotated[
        tuple[Literal["wandb", "trackio", "mlflow"], ...],
        tuning("Sends the curves to these trackers, too. Each needs its package: computerrl[trackers]."),
    ] = ()


class ModelConfig(Section, frozen=True, kw_only=True):
    """The model that is trained."""

    AT: ClassVar[str] = "model"

    path: Annotated[
        str,
        key(
            "Names the Hugging Face folder to start from, or OWNER/MODEL[@REVISION] on the hub. Empty: the bundled one."
        ),
    ] = ""
    shape: Annotated[
        str,
        tuning(
            "Names a folder with a config.json, or one of deploy/shapes, to plan with where model.path is elsewhere."
        ),
    ] = ""
    endpoint: desktop.EndpointConfig | None = None  # a model elsewhere, which can only be evaluated


class SeatsConfig(Section, frozen=True, kw_only=True):
    """Where episodes are played."""

    AT: ClassVar[str] = "desktops"

    count: Annotated[int, key("Sets the episodes at the same time.", ge=1, le=DESKTOPS_MOST)] = 4
    processes: Annotated[int, key("Spreads desktops over this many processes.", ge=1, le=PROCESSES_MOST)] = 1
    place: Annotated[
        dict[str, float],
        key(
            "Puts each process on a machine of the cluster that has so much free: {CPU: 2, desktops: 125}. Empty keeps"
            " them on this machine."
        ),
    ] = {}
    warm_pool: Annotated[int, key("Keeps this many booted desktops ready, per process.", ge=0, le=DESKTOPS_MOST)] = 1
    boots_at_once: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=DESKTOPS_MOST)] | None,
        key(
            "Limits the boots under way, per process. null takes a quarter of the processors, less where memory is"
            " short; of SSH machines an eighth of their desktops, at most 10 each; at least 2.",
            advanced=True,
        ),
    ] = None
    provider: desktop.ProviderConfig = desktop.SandboxConfig()
    screenshots: Annotated[
        desktop.Screenshots,
        key("Chooses the screenshots to store: each episode's last; some adds all of 1 in 16 episodes."),
    ] = "some"
    settle_ms: Annotated[int, tuning("Limits the wait for a desktop to settle after an action, in ms.", ge=0)] = 1500
    apis: Annotated[
        list[str], key("Adds functions that `apis build` made, each folder as DIR@DIGEST (`apis accept` prints it).")
    ] = []
    memo: Annotated[
        desktop.MemoUse,
        key(
            "Chooses whether what desktops have shown after the same task and actions is remembered. on boots one where"
            " the memo knows no further, only never does."
        ),
    ] = "off"
    memo_file: Annotated[
        str, key("Names the memo's .parquet file. Runs share it. Empty: memo.parquet next to the runs.")
    ] = ""
    network: desktop.NetworkConfig | None = None  # that desktops reach by a proxy
    screen: Annotated[str, tuning("Sets the desktops' screen, WIDTHxHEIGHT in pixels.")] = "x".join(map(str, SCREEN))

    def __post_init__(self) -> None:
        super().__post_init__()
        desktop.screen_of(self.screen)
        if self.memo != "off" and isinstance(self.provider, desktop.RemoteConfig | desktop.QemuConfig):
            raise ConfigError(
                f"desktops.memo is {self.memo} and desktops.provider is remote: nothing says what desktops there"
                " are made of; set desktops.memo to off"
            )
        if self.network is not None and (self.memo != "off" or isinstance(self.provider, desktop.RemoteConfig)):
            raise ConfigError(
                "desktops.network goes with desktops.memo: off, since pages change, and with a provider of this machine"
            )
        if self.memo_file and not self.memo_file.endswith(".parquet"):
            raise ConfigError(f"desktops.memo_file is {self.memo_file}: it is a .parquet file")
        if self.processes > self.count:
            raise ConfigError(
                f"desktops.processes is {self.processes}: more processes than desktops.count ({self.count})"
            )
        for index in range(self.processes):
            if isinstance(self.provider, desktop.RemoteConfig):
                self._refuse_too_few(self.provider, index)

    def _refuse_too_few(self, provider: desktop.RemoteConfig, index: int) -> None:
        seats = self.seats_of(index)
        if (there := provider.share(index, self.processes).desktops) < seats + self.warm_pool:
            raise ConfigError(
                f"desktops.provider: of its {provider.desktops} desktops, process {index} has {there}, and"
                f" keeps {seats} busy and {self.warm_pool} ready: allow more, or lower desktops.count or .warm_pool"
            )

    def host_of(self, seat: int) -> int:
        """The host process that a seat belongs to: in turn, so that another count moves none."""
        return seat % self.processes

    def seats_of(self, index: int) -> int:
        """How many seats belong to host process `index`."""
        return self.count // self.processes + (index < self.count % self.processes)

    @property
    def ready(self) -> int:
        """Desktops booted ahead, of all processes."""
        return self.warm_pool * self.processes

    def within(self, room: Room, key: str = "desktops.count") -> SeatsConfig:
        """The same with limits of a desktop that the machine has `room` for. Raises ConfigError, which names `key`.

        Desktops that are placed elsewhere get theirs where they are.
        """
        if isinstance(self.provider, desktop.RemoteConfig) or self.place:
            return self
        provider = fitted(self.provider, self.count, self.ready, room, key=key)
        if isinstance(self.provider, desktop.QemuConfig):  # a stored machine has the memory that it was stored with
            provider = msgspec.structs.replace(provider, memory_mib=self.provider.memory_mib)
        return msgspec.structs.replace(self, provider=provider)

    def of_one_host(self, lease_s: float = 900.0, index: int = 0) -> desktop.DesktopsConfig:
        """The desktops of host process `index`, each leased for as long as an episode is reserved (seconds)."""
        provider = self.provider
        if isinstance(provider, desktop.RemoteConfig):
            provider = provider.share(index, self.processes)
        pool = desktop.PoolConfig(
            warm_pool=self.warm_pool, boots_at_once=self.boots_at_once, processes=self.processes, lease_s=lease_s
        )
        if isinstance(provider, desktop.QemuConfig):
            pool = msgspec.structs.replace(pool, boot_timeout_s=pool.boot_timeout_s * provider.PATIENCE)
        width, height = desktop.screen_of(self.screen)
        screen = desktop.ScreenConfig(width=width, height=height)
        return desktop.DesktopsConfig(provider=provider, pool=pool, screen=screen, network=self.network)

    def seat(self, prompt: desktop.PromptConfig) -> desktop.SeatConfig:
        seat = desktop.SeatConfig(
            format=prompt.format,
            action_space=prompt.action_space,
            sight=prompt.sight,
            screenshots=self.screenshots,
            settle_ms=self.settle_ms,
            memo=self.memo,
            memo_file=self.memo_file,
        )
        return seat.slower(self.provider.PATIENCE) if isinstance(self.provider, desktop.QemuConfig) else seat


class DemonstrationsConfig(DemosConfig, frozen=True, kw_only=True):
    """Where demonstrations come from and how they are played."""

    noise: Annotated[
        float, tuning("Sets the share of steps before which an oracle takes a harmless wrong step.", ge=0, lt=1)
    ] = 0.0
    routes: Annotated[
        list[Literal["gui", "api", "mixed"]],
        tuning("Lists the routes that oracles take in turn. Empty takes all of prompt.action_space."),
    ] = []
    demonstrators: Annotated[
        list[desktop.OracleMember | desktop.EndpointMember],
        key("Lists who demonstrates. Empty takes the tasks' oracles, by every route."),
    ] = []

    def ledger(self) -> DemosConfig:
        return DemosConfig(**{name: getattr(self, name) for name in DemosConfig.__struct_fields__})


class Deploy(Section, frozen=True, kw_only=True):
    """The settings of one run."""

    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    prompt: desktop.PromptConfig = desktop.PromptConfig()
    tasks: TasksConfig = TasksConfig()
    demos: DemonstrationsConfig = DemonstrationsConfig()
    desktops: SeatsConfig = SeatsConfig()
    samplers: SamplersConfig = SamplersConfig()
    sampling: SamplingConfig = SamplingConfig()
    weight_sync: WeightSyncConfig = WeightSyncConfig()
    replay: ReplayConfig = ReplayConfig()
    learner: LearnerConfig = LearnerConfig()
    entropulse: EntropulseConfig = EntropulseConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    cluster: ClusterConfig = ClusterConfig()

    def __post_init__(self) -> None:
        for where, place in self.places.items():
            if place and self.cluster.engine == "none":
                raise ConfigError(f"{where} asks for machines, and cluster.engine is none: set it to ray")
            for name, amount in place.items():
                if not 0 < amount < math.inf or (name not in ("CPU", "GPU") and amount != int(amount) and amount > 1):
                    raise ConfigError(f"{where}.{name} is {amount:g}: a whole number, or a share of one below 1")
        self._refuse_sight()
        self.samplers.refuse_unreachable(self.weight_sync)
        if self.weight_sync.transport == "adapter" and not self.learner.lora.rank:
            raise ConfigError("weight_sync.transport is adapter, and learner.lora.rank is 0: set it to disk")
        transport = self.weight_sync.transport
        if self.learner.place and transport in ("collective", "shared"):
            raise ConfigError(f"weight_sync.transport is {transport}: with learner.place weights go by disk")
        learned = self.demos.count or self.entropulse.bc_steps or self.entropulse.total_rl_steps
        if self.evaluation.published_metrics and learned:
            raise ConfigError(
                "evaluation.published_metrics is of `eval` alone: nothing may learn from those metrics; leave it out or"
                " set demos.count, entropulse.bc_steps and entropulse.total_rl_steps to 0"
            )
        if self.evaluation.published_metrics and self.desktops.place:
            raise ConfigError(
                "evaluation.published_metrics is on and desktops.place is set: the published package is known to be on"
                " this machine alone; leave one of them out"
            )
        if self.sampling.eval_temperature == 0 and self.evaluation.episodes > 1:
            episodes = self.evaluation.episodes
            raise ConfigError(
                f"evaluation.episodes is {episodes}: at sampling.eval_temperature 0 they would repeat each other"
            )

    def _refuse_sight(self) -> None:
        prompt, memo = self.prompt, self.desktops.memo
        if self.model.endpoint is not None and prompt.format == "compact" and prompt.sight != USUAL:
            raise ConfigError(
                "prompt.observation and prompt.coordinates change what a model at a URL gets in the published form"
                " alone, and prompt.format is compact: set it to published"
            )
        if (trained := self.learner.vision) != "frozen":
            if not prompt.sight.picture:
                raise ConfigError(
                    f"learner.vision is {trained}, and prompt.observation is {prompt.observation}: set it to picture"
                )
            if not isinstance(self.samplers.engine, EmbeddedConfig) or self.weight_sync.transport != "disk":
                raise ConfigError(
                    f"learner.vision is {trained}: new towers go to embedded engines by disk alone; set"
                    " samplers.engine.type to embedded and weight_sync.transport to disk"
                )
        if memo != "off" and prompt.format != "compact":
            raise ConfigError(
                f"desktops.memo is {memo} and prompt.format is {prompt.format}: it shows numbers of windows, which"
                " differ from desktop to desktop; set desktops.memo to off"
            )
        for name, value in (("demos.source", self.demos.source), ("learner.probe_every", self.learner.probe_every)):
            if prompt.sight.picture and value:
                raise ConfigError(
                    f"{name} is {value} and prompt.observation is {prompt.observation}: it keeps prompts of text alone;"
                    " leave it out"
                )
        if prompt.sight != USUAL and any(isinstance(one, desktop.EndpointMember) for one in self.demos.demonstrators):
            raise ConfigError(
                "demos.demonstrators has an endpoint, which is shown text and pixels: leave it out, or leave"
                " prompt.observation and prompt.coordinates out"
            )

    @property
    def places(self) -> dict[str, dict[str, float]]:
        """By key what each process that may be elsewhere needs of its machine."""
        return {
            "desktops.place": self.desktops.place,
            "samplers.place": self.samplers.place,
            "samplers.router_place": self.samplers.router_place,
            "learner.place": self.learner.place,
            "learner.actor_place": self.learner.actor_place,
        }


class DeployFile(Deploy, frozen=True, kw_only=True):
    """A deploy file: the settings of a run, laid over another file."""

    extends: Annotated[
        str, key("Lays this file over another: its path from this file's folder, or a bundled name. Lists replace.")
    ] = ""
