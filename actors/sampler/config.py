"""The samplers' settings, and what an engine can't be started with. Importing them loads no tensor library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from runtime.errors import ConfigError
from runtime.messaging.message import Version
from runtime.settings import Section, is_loopback, key, refuse_bad_url, tuning
from runtime.supervision import RestartPolicy

LOOPBACK = "127.0.0.1"
TURN_S = 900.0  # a step of the learner's, and what is written after it; else answers are drawn again
LOADED_PER_S = 100e6  # bytes, of a slow disk
COUNT_MOST = 1024  # engines: each is a process that holds the whole model
# SGLang's options by which a file that is not the deploy file's author's would run code or set others of them.
REFUSED = {
    "trust-remote-code": "a model folder's programs are never run; use a model that SGLang knows",
    "config": "it names a file of options; write them here",
    "api-key": "the server gets a key of its own, which only this program knows",
    "admin-api-key": "the server gets a key of its own, which only this program knows",
    "tokenizer-worker-num": "with several SGLang takes no key, and any user of the machine could load other weights",
}
TENSOR_PARALLEL = {"tp", "tp-size", "tensor-parallel-size"}
SPREAD = ("dp-size", "data-parallel-size", "pp-size", "pipeline-parallel-size")


class EmbeddedConfig(Section, frozen=True, kw_only=True, tag="embedded"):
    """The engine that comes with the program, on this machine."""

    AT: ClassVar[str] = "samplers.engine"

    dtype: Annotated[Literal["float32", "bfloat16"], tuning("Chooses the type of weights and computation.")] = "float32"
    context_tokens: Annotated[
        int,
        tuning(
            "Limits prompt and answer together, in tokens, and so the engine's memory. 0 is the model's limit.", ge=0
        ),
    ] = 0


class SglangConfig(Section, frozen=True, kw_only=True, tag="sglang"):
    """Real SGLang servers: started here, in an environment of their own, or running somewhere (`samplers.attach`)."""

    AT: ClassVar[str] = "samplers.engine"

    python: Annotated[
        str, tuning("Names the interpreter of SGLang's environment. Empty is .venv-sglang next to the program.")
    ] = ""
    dtype: Annotated[Literal["float32", "bfloat16"], tuning("Chooses the type of weights and computation.")] = "float32"
    options: Annotated[
        dict[str, str | int | float | bool], tuning("Gives SGLang's own options, without the dashes: {tp-size: 2}.")
    ] = {}

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            self._refuse_option(f"samplers.engine.options.{name}", name.replace("_", "-"), value)

    def _refuse_option(self, key: str, option: str, value: str | int | float | bool) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", option, re.ASCII):
            raise ConfigError(f"{key}: an option is named in small letters and without its dashes, like tp-size")
        if isinstance(value, str) and value.startswith("-"):
            raise ConfigError(f"{key} is {value!r}, which SGLang would take for an option of its own")
        for refused, why in REFUSED.items():
            if refused.startswith(option) and value is not False:  # SGLang takes the beginning of a name for the name
                raise ConfigError(f"{key}: {refused} is refused: {why}")


class WeightSyncConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `weight_sync`: how new weights reach the samplers' engines."""

    AT: ClassVar[str] = "weight_sync"

    transport: Annotated[
        Literal["disk", "collective", "shared", "adapter"],
        key(
            "Chooses how new weights reach engines: as folders, by collective (SGLang), as memory that learner and one"
            " SGLang of this machine share, or as LoRA adapters alone."
        ),
    ] = "disk"
    in_flight: Annotated[
        Literal["drain", "retract", "in_place"] | None,
        tuning("Chooses what happens to unfinished answers at an update. null drains with SGLang, else retracts."),
    ] = None
    address: Annotated[str, tuning("Gives the address of the learner's rank, as the servers reach it.")] = LOOPBACK
    join_s: Annotated[float, tuning("Lets a ready server wait this long for the others, in seconds.", gt=0)] = 10.0


class SamplersConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `samplers`."""

    AT: ClassVar[str] = "samplers"

    engine: EmbeddedConfig | SglangConfig = EmbeddedConfig()
    count: Annotated[
        int, key("Sets the number of engines. Servers named by attach replace it.", ge=1, le=COUNT_MOST)
    ] = 1
    attach: Annotated[list[str], key("Lists URLs of running SGLang servers, as in http://host:port.")] = []
    api_key_env: Annotated[
        str, tuning("Names the environment variable that holds the key of attached servers. Empty sends none.")
    ] = ""
    place: Annotated[
        dict[str, float],
        tuning(
            "Puts each engine on a machine of the cluster that has so much free: {GPU: 2, CPU: 4}. Empty keeps them on"
            " this machine."
        ),
    ] = {}
    router_place: Annotated[
        dict[str, float],
        tuning(
            "Puts the router, which all answers pass through, on a machine of the cluster that has so much free:"
            " {CPU: 1}. Empty keeps it on this machine."
        ),
    ] = {}
    device: Annotated[Literal["cpu", "cuda"], key("Chooses where engines compute.")] = "cpu"
    gpus: Annotated[
        list[str], tuning('Lists the GPUs of each started engine, as in ["1", "2,3"]. Empty gives one engine all.')
    ] = []
    threads: Annotated[int, tuning("Sets the CPU threads of each engine.", ge=1)] = 1
    max_running_requests: Annotated[int, tuning("Limits the answers computed in one forward pass.", ge=1)] = 32
    max_queued_requests: Annotated[int, tuning("Limits the answers that wait in an engine's line.", ge=1)] = 256
    turns: Annotated[
        bool,
        tuning(
            "Lets SGLang give up its memory on the one card while the learner computes, so that each has it in turn."
            " Nothing is drawn meanwhile."
        ),
    ] = False
    cache_tokens: Annotated[int, tuning("Limits the prompt tokens kept for requests that share a prefix.", ge=1)] = (
        32_768
    )
    canary_tolerance: Annotated[
        float,
        tuning(
            "Distrusts an engine whose log-probabilities are off by more than this on average. 0 goes by the type of"
            " the weights and by the first load.",
            ge=0,
        ),
    ] = 0.0
    generate_timeout_s: Annotated[float, tuning("Limits one answer, in seconds.", gt=0)] = 120.0
    start_timeout_s: Annotated[
        float,
        tuning(
            "Gives a starting engine up once it has neither written nor computed for so long, in seconds. Loading, CUDA"
            " graphs and compilers are no silence.",
            gt=0,
        ),
    ] = 240.0
    load_timeout_s: Annotated[
        float, tuning("Limits one load of weights, in seconds, to this and a second for each 100 MB.", gt=0)
    ] = 120.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for url in self.attach:
            refuse_bad_url(url, "samplers.attach", "samplers.api_key_env names the variable of a key")
        if self.turns:
            self._refuse_turns()
        if self.place:
            self._refuse_misplaced()
        else:
            self._refuse_shared_gpus()

    def _refuse_misplaced(self) -> None:
        if self.attach:
            raise ConfigError("samplers.attach names servers that run already, and samplers.place is for started ones")
        if self.gpus:
            raise ConfigError("samplers.gpus is of this machine: with samplers.place the cluster says which GPUs")
        if self.device == "cuda" and not self.place.get("GPU"):
            raise ConfigError("samplers.device is cuda, and samplers.place asks for no GPU: add GPU")

    def _refuse_turns(self) -> None:
        options = self.engine.options if isinstance(self.engine, SglangConfig) else {}
        wide = [f"engine.options.{name}" for name in options if name.replace("_", "-") in (*TENSOR_PARALLEL, *SPREAD)]
        wide += [name for name in ("gpus", "place") if getattr(self, name)] + ["count"] * (self.count > 1)
        if not isinstance(self.engine, SglangConfig):
            why = "the embedded engine keeps its memory: set samplers.engine.type to sglang"
        elif self.attach:
            why = "a server named by samplers.attach would sleep on after a run that was killed: start one here"
        elif wide:
            why = f"one card has one engine, and samplers.{wide[0]} asks for more: leave it out"
        else:
            return
        raise ConfigError(f"samplers.turns is true, and {why}")

    def _refuse_shared_gpus(self) -> None:
        started = 0 if self.attach or self.device == "cpu" else self.count
        if self.gpus and len(self.gpus) != started:
            raise ConfigError(
                f"samplers.gpus names GPUs for {len(self.gpus)} engines, and {started} are started on GPUs here:"
                " one entry for each of samplers.count on samplers.device cuda"
            )
        if started > 1 and not self.gpus:
            raise ConfigError(
                f"samplers.count is {started} on GPUs, and all engines would take the first: say in samplers.gpus which"
                ' GPUs each sees, like ["1", "2,3"]'
            )
        for entry in self.gpus:
            if not re.fullmatch(r"\d+(,\d+)*", entry, re.ASCII):
                raise ConfigError(f"samplers.gpus holds {entry!r}: an engine's GPUs are numbers like '1' or '2,3'")

    def refuse_unreachable(self, sync: WeightSyncConfig) -> None:
        """Raise ConfigError where engines can't take weights as `sync` sends them."""
        if sync.transport not in ("collective", "shared"):
            return
        if not self.sglang:
            raise ConfigError(
                f"weight_sync.transport is {sync.transport}, which the embedded engine can't take: "
                "leave it at disk, or set samplers.engine.type to sglang"
            )
        if self.place:
            raise ConfigError(f"weight_sync.transport is {sync.transport}: with samplers.place weights go by disk")
        far = [url for url in self.attach if not is_loopback(urlsplit(url).hostname or "")]
        if sync.transport == "shared":
            if elsewhere := far or self.gpus:
                raise ConfigError(
                    f"weight_sync.transport is shared, and {elsewhere[0]} has other memory: set it to disk"
                )
            return
        if far and is_loopback(sync.address):
            raise ConfigError(f"weight_sync.address is {sync.address}, where {far[0]} can't reach the learner's rank")
        if self.device == "cuda" and not self.attach and not self.gpus:
            raise ConfigError(
                "weight_sync.transport is collective, and NCCL has no two ranks on one GPU: say in samplers.gpus which"
                " GPUs next to the learner's the engines see, or leave it at disk"
            )
        options = self.engine.options if isinstance(self.engine, SglangConfig) and not self.attach else {}
        for name, value in options.items():
            if name.replace("_", "-") in TENSOR_PARALLEL and value != 1 and sync.in_flight == "in_place":
                raise ConfigError(
                    f"weight_sync.in_flight is in_place, and samplers.engine.options.{name} is {value}: a broadcast"
                    " between the parts of a forward pass stops both; set it to retract or drain"
                )
            if name.replace("_", "-") in SPREAD and value != 1:
                raise ConfigError(
                    f"samplers.engine.options.{name} is {value}, and SGLang takes weights by weight_sync.transport: "
                    "collective at 1 alone"
                )

    @property
    def single_version(self) -> bool:
        """Whether engines hold one version of the weights: they serve RL or an evaluation round, not both."""
        return self.sglang

    @property
    def answer_limit_s(self) -> float:
        """Seconds that an answer may take, a turn of the learner's included."""
        return self.generate_timeout_s + TURN_S * self.turns

    @property
    def sglang(self) -> bool:
        return bool(self.attach) or isinstance(self.engine, SglangConfig)

    def of_one(self) -> SamplersConfig:
        return msgspec.structs.replace(self, count=1, attach=[], gpus=[])

    def actors(self) -> int:
        return len(self.attach) or self.count


def attached_key(samplers: SamplersConfig, environment: Mapping[str, str]) -> str:
    """The key of attached servers; "" where none is sent. Raises ConfigError naming a variable that is not set."""
    name = samplers.api_key_env
    if name and not environment.get(name):
        raise ConfigError(f"samplers.api_key_env names {name}, which is not set: export it first")
    return environment[name] if name else ""


class SamplerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one sampler actor is started with."""

    samplers: SamplersConfig
    weight_sync: WeightSyncConfig = WeightSyncConfig()
    model: str  # Hugging Face folder: the first weights, and what the vocabulary is read from
    gpus: str = ""  # that a started engine sees, as in CUDA_VISIBLE_DEVICES; empty: what this program sees
    attach: str = ""  # URL of the server behind this actor; empty: it starts one of `samplers.engine`
    version: Version = Version(lineage=0, step=0)  # of the weights in `model`
    replay: str = "replay"  # the actor that gets serving reports; empty: none
    adapter_rank: int = 0  # of the adapters that the engine gets; 0: it gets whole weights
    adapter_targets: list[str] = []  # the projections that have one
    stop_ids: list[int] = []  # besides the end-of-sequence ids that the model folder names
    hung_after_s: float = 20.0  # without an answer for so long: the engine is asked whether it still generates
    restart: RestartPolicy = RestartPolicy(max_restarts=10, window_s=300.0)  # of the engine
    answers_kept: int = 256  # answers remembered for repeated requests
    log_bytes: int = 1 << 20  # of an engine's output kept on disk, twice

    def load_limit_s(self, location: str) -> float:
        """Seconds that a load of the weights at `location` may take."""
        files = Path(location).glob("*.safetensors")
        return self.samplers.load_timeout_s + sum(file.stat().st_size for file in files) / LOADED_PER_S

    @property
    def sglang(self) -> bool:
        return bool(self.attach) or self.samplers.sglang

    @property
    def sglang_adapters(self) -> bool:
        """Whether SGLang's server holds the first weights for good, and an adapter for each version."""
        return self.sglang and self.adapter_rank > 0

    @property
    def in_flight(self) -> Literal["drain", "retract", "in_place"]:
        """What becomes of responses that are being drawn when newer weights come."""
        return self.weight_sync.in_flight or ("drain" if self.sglang else "retract")
