"""The samplers' settings.

Invariant: importing it loads no tensor library, and what an engine can't be started with is refused here.
"""

from __future__ import annotations

import math
import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from runtime.errors import ConfigError
from runtime.messaging.message import Version
from runtime.supervision import RestartPolicy
from runtime.urls import refuse_bad_url

LOOPBACK = "127.0.0.1"
COUNT_MOST = 1024  # engines: each is a process that holds the whole model
# SGLang's options by which a file that is not the deploy file's author's would run code or set others of them.
REFUSED = {
    "trust-remote-code": "a model folder's programs are never run; use a model that SGLang knows",
    "config": "it names a file of options; write them here",
}
SPREAD = ("dp-size", "data-parallel-size", "pp-size", "pipeline-parallel-size")


class EmbeddedConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="embedded"
):
    """The engine that comes with the program, on this machine."""


class SglangConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="sglang"
):
    """Real SGLang servers: started here, in an environment of their own, or running somewhere (`samplers.attach`)."""

    python: str = ""  # interpreter of SGLang's environment; "" is that of .venv-sglang beside the program
    dtype: Literal["float32", "bfloat16"] = "float32"  # of weights and computation
    options: dict[str, str | int | float | bool] = {}  # SGLang's own, without the dashes: {tp-size: 2}

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


class SamplersConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The deploy file's `samplers`."""

    engine: EmbeddedConfig | SglangConfig = EmbeddedConfig()
    count: int = 1  # engines; ignored where `attach` names servers
    attach: list[str] = []  # URLs of running SGLang servers: http://host:port
    device: Literal["cpu", "cuda"] = "cpu"  # where engines compute
    gpus: list[str] = []  # what each started engine sees of this machine's GPUs: ["1", "2,3"]; empty: all, one engine
    threads: int = 1  # of each engine's process
    nice: int = 0  # added to the niceness of each engine
    max_running: int = 32  # responses computed in one forward pass
    max_waiting: int = 256  # responses in an engine's line
    cache_tokens: int = 32_768  # prompt tokens kept for requests that share a prefix
    # What becomes of responses that are being drawn when newer weights come. null: drain with SGLang, else retract.
    update: Literal["drain", "retract", "in_place"] | None = None
    canary_tolerance: float = 1e-3  # of log-probabilities: an engine that is off by more is not trusted
    generate_timeout_s: float = 120.0  # for one answer
    publish: Literal["disk", "collective"] = "disk"  # how new weights reach SGLang; what fails goes by disk
    publish_unit: Literal["bucket", "tensor"] = "bucket"  # what one broadcast carries
    publish_address: str = LOOPBACK  # of the learner's rank, as the servers reach it
    publish_join_s: float = 10.0  # a server that is ready waits so long for the others

    def __post_init__(self) -> None:
        for name in ("count", "threads", "max_running", "max_waiting", "cache_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"samplers.{name} is {getattr(self, name)}: it counts from 1")
        if self.count > COUNT_MOST:
            raise ConfigError(f"samplers.count is {self.count}: it counts from 1 to {COUNT_MOST}")
        for name in ("generate_timeout_s", "canary_tolerance", "publish_join_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"samplers.{name} is {getattr(self, name)}: it is above 0, and finite")
        for url in self.attach:
            refuse_bad_url(url, "samplers.attach", "attach servers that ask for none")
        self._refuse_shared_gpus()
        if self.publish == "collective":
            self._refuse_no_collective()

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

    def _refuse_no_collective(self) -> None:
        if not self.sglang:
            raise ConfigError(
                "samplers.publish is collective, which the embedded engine can't take: "
                "leave it at disk, or set samplers.engine.kind to sglang"
            )
        far = [url for url in self.attach if not _local(urlsplit(url).hostname or "")]
        if far and _local(self.publish_address):
            raise ConfigError(
                f"samplers.publish_address is {self.publish_address}, where {far[0]} can't reach the learner's rank"
            )
        options = self.engine.options if isinstance(self.engine, SglangConfig) and not self.attach else {}
        for name, value in options.items():
            if name.replace("_", "-") in SPREAD and value != 1:
                raise ConfigError(
                    f"samplers.engine.options.{name} is {value}, and SGLang takes weights by samplers.publish: "
                    "collective at 1 alone"
                )

    @property
    def sglang(self) -> bool:
        """Whether SGLang's servers are behind the samplers."""
        return bool(self.attach) or isinstance(self.engine, SglangConfig)

    def actors(self) -> int:
        """How many sampler actors there are."""
        return len(self.attach) or self.count


def _local(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


class SamplerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one sampler actor is started with."""

    samplers: SamplersConfig
    model: str  # Hugging Face folder: the first weights, and what the vocabulary is read from
    gpus: str = ""  # that a started engine sees, as in CUDA_VISIBLE_DEVICES; empty: what this program sees
    attach: str = ""  # URL of the server behind this actor; empty: it starts an embedded engine
    version: Version = Version(lineage=0, step=0)  # of the weights in `model`
    replay: str = "replay"  # who is told what is served; empty: nobody
    stop_ids: list[int] = []  # beside the end-of-sequence ids that the model folder names
    start_timeout_s: float = 240.0  # until a started engine has generated its first token
    load_timeout_s: float = 120.0
    hung_after_s: float = 20.0  # without an answer for so long: the engine is asked whether it still generates
    restart: RestartPolicy = RestartPolicy(max_restarts=10, window_s=300.0)  # of the engine
    answers_kept: int = 256  # answers remembered for repeated requests
    log_bytes: int = 1 << 20  # of an engine's output kept on disk, twice

    @property
    def sglang(self) -> bool:
        """Whether SGLang's server is behind this sampler."""
        return bool(self.attach) or self.samplers.sglang

    @property
    def updating(self) -> Literal["drain", "retract", "in_place"]:
        """What becomes of responses that are being drawn when newer weights come."""
        return self.samplers.update or ("drain" if self.sglang else "retract")
