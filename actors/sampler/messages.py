"""What a sampler understands and logs: prompts in, tokens with log-probabilities and weight versions out."""

from __future__ import annotations

from pathlib import Path

from actors.replay.messages import Sampling, VersionSpan
from runtime.logs.events import declare
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


# --- what a sampler logs -------------------------------------------------------------------------------------------


SAMPLER_READY = declare("sampler_ready", "info", engine=str, version=str, pid=int, start_s=float, restarts=int)
# `off_by`: mean difference of a canary's log-probabilities from the learner's, `p99` and `largest` of single ones; none
# where there was no canary.
WEIGHTS_LOADED = declare(
    "weights_loaded", "info",
    version=str, load_s=float, skipped=int, location=str, way=str,
    off_by=float | None, p99=float | None, largest=float | None,
)  # fmt: skip
# There was no group in time, or the engine did not get the weights from it: they are loaded from disk.
WEIGHTS_NOT_RECEIVED = declare("weights_not_received", "info", version=str, cause=str)
WEIGHTS_SUSPECT = declare(
    "weights_suspect", "error",
    version=str, off_by=float | None, p99=float | None, largest=float | None, tolerance=float, when=str,
)  # fmt: skip
WEIGHTS_REFUSED = declare("weights_refused", "error", version=str, location=str, cause=str, served=str)
# The load broke, and the engine may well be alive: it is tried again.
WEIGHTS_NOT_LOADED = declare("weights_not_loaded", "warning", version=str, attempt=int, cause=str)
SERVING_NOT_REPORTED = declare("serving_not_reported", "warning", version=str, cause=str)
ENGINE_TURN = declare("engine_turn", "info", card=str)  # what the engine has of a card that the learner has in turn
ENGINE_STARTING = declare("engine_starting", "info", waited_s=float, last_output=str)
ENGINE_SILENT = declare("engine_silent", "warning", rid=str, waited_s=float, pid=int)
ENGINE_DIED = declare("engine_died", "warning", cause=str, exit_code=int | None, last_output=list)
ENGINE_NOT_BACK = declare("engine_not_back", "warning", attempt=int, cause=str)
ENGINE_RESTARTED = declare("engine_restarted", "info", version=str, pid=int, down_s=float, restarts=int)
GENERATE_RETRIED = declare("generate_retried", "warning", rid=str, attempt=int, cause=str)
# t0 and t1 are seconds of the run's clock.
GENERATE = declare(
    "generate", "debug",
    rid=str, t0=float, t1=float, prompt_tokens=int, tokens=int, cached_tokens=int, versions=list[str], finish=str,
    attempts=int,
)  # fmt: skip
REQUEST_MOVED = declare("request_moved", "warning", rid=str, sampler=str, attempt=int, cause=str)
# Of the last `span_s`: first requests of an episode, later ones that went to the same engine and to another, and the
# tokens that each sampler drew.
ROUTED = declare(
    "routed", "info",
    span_s=float, new=int, hits=int, moved=int, hit_rate=float | None, retries=int, outstanding=dict[str, int],
    drawn=dict[str, int],
)  # fmt: skip
