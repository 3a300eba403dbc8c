"""What a sampler understands: prompts in, tokens with log-probabilities and weight versions out."""

from __future__ import annotations

from pathlib import Path

from actors.replay.messages import Sampling, VersionSpan
from runtime.messaging.message import Done, Message, Request, Value, Version

BEGIN = Version(lineage=0, step=0)  # of the weights that a run begins with


class Generated(Message):
    """A drawn response; `logprobs[i]` is the natural log-probability of `output_ids[i]` at the asked temperature."""

    output_ids: list[int]
    logprobs: list[float]
    spans: list[VersionSpan]
    finish: str  # "stop" or "length"
    cached_tokens: int


class Refused(Message):
    """The request can never succeed as asked (too long, out of vocabulary)."""

    reason: str


class Generate(Request[Generated | Refused]):
    """Draw one response. Ids are checked against the vocabulary and the context length before any engine sees them."""

    rid: str  # idempotency key
    prompt_ids: list[int]
    sampling: Sampling
    pin: Version | None = None  # evaluation: sample from exactly these weights
    affinity: str = ""  # requests with equal affinity prefer the same engine (an episode's prefix)
    seed: int | None = None  # evaluation: what the draw is made from; None: chance
    pictures: list[bytes] = []  # PNG, in the order of their pads in `prompt_ids`
    elsewhere: bool = False  # the caller can ask another sampler, so an engine that is down is an error at once


class Canary(Value):
    """A prompt, and what the learner's model makes of it.

    `logprobs[i]` is the natural log-probability of `ids[i + 1]` after `ids[: i + 1]`, at temperature 1.
    """

    ids: list[int]
    logprobs: list[float]
    dtype: str = "float32"  # that the learner computes in


class Weights(Message):
    """Announced by the learner: newer weights exist. A sampler loads the newest and skips the others."""

    version: Version
    location: str  # a Hugging Face folder
    # SHA-256 of the safetensors file, hex; empty: the group's owner writes the folder when it is asked to
    digest: str = ""
    canary: Canary | None = None  # an engine that computes something else has other weights
    group_owner: str = ""  # the actor that forms the group for these weights; empty: from disk alone
    adapter: str = ""  # a folder of PEFT's form: these weights are the run's first with it
    adapter_digest: str = ""


class Pin(Request[Done]):
    """Keep `version` loadable for an evaluation round until `Unpin`."""

    version: Version
    location: str


class Unpin(Request[Done]):
    """No round needs the version now: it is over, or is deferred while RL draws."""

    version: Version


class FallAsleep(Request[Done]):
    """The learner's `turn` on the card begins. Answered once the engine holds no memory of it."""

    turn: str


class WakeUp(Request[Done]):
    """The learner's `turn` is over. Answered at once; the engine then loads what was announced last."""

    turn: str


def weights_exist(location: str) -> bool:
    """Whether a folder with weights lies at `location`: it appears complete."""
    return (Path(location) / "config.json").exists()
