"""What of SGLang's HTTP contract a sampler sends and reads.

Invariant: an answer is taken only when ids, log-probabilities and version spans agree with each other. Servers may
add fields and may not leave these out.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from actors.errors import EngineGone, SamplerError
from actors.replay.messages import Sampling, VersionSpan
from actors.sampler.messages import Generated
from runtime.messaging.message import Version


class FinishReason(msgspec.Struct, frozen=True):
    """Why generation ended."""

    type: str  # "stop", "length" or "abort"
    message: str | None = None


class AnsweredSpan(msgspec.Struct, frozen=True):
    """Half-open range of output tokens drawn from one version."""

    version: str
    start: int
    end: int


class Meta(msgspec.Struct, frozen=True):
    """The part of `meta_info` that is used."""

    finish_reason: FinishReason
    weight_versions: list[AnsweredSpan] = []
    cached_tokens: int = 0
    input_token_logprobs: list[tuple[float | None, int, str | None]] = []
    output_token_logprobs: list[tuple[float, int, str | None]] = []


class GenerateAnswer(msgspec.Struct, frozen=True):
    """Answer of /generate for one prompt."""

    output_ids: list[int]
    meta_info: Meta


class ModelInfo(msgspec.Struct, frozen=True):
    """Answer of /model_info."""

    model_path: str
    weight_version: str


class ControlAnswer(msgspec.Struct, frozen=True):
    """Answer of the control endpoints."""

    success: bool = True
    message: str = ""


class ServerInfo(msgspec.Struct, frozen=True):
    """Answer of /server_info: over how many processes the engine is spread, and how."""

    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1


class RankChecksums(msgspec.Struct, frozen=True):
    """One rank's checksums in the answer of /weights_checker, by SGLang's own names."""

    checksums: dict[str, str] = {}


class CheckedWeights(msgspec.Struct, frozen=True):
    """Answer of /weights_checker."""

    success: bool
    message: str = ""
    ranks: list[RankChecksums] = []


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of /v1/models."""

    max_model_len: int


class Models(msgspec.Struct, frozen=True):
    """Answer of /v1/models."""

    data: list[ModelCard]


# Said in every request, for a server may have been started with other preferences, and a policy that draws by those is
# not the one that the learner computes probabilities of.
NEUTRAL: dict[str, float] = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}


def generate_body(
    rid: str,
    ids: list[int],
    sampling: Sampling,
    stop_ids: list[int],
    *,
    pin: str | None,
    cache: str | None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Body of /generate. `cache` names the part of SGLang's prefix cache that may be used; None: all of it.

    A `seed` repeats a draw of the same weights on the embedded engine; SGLang heeds it in its deterministic mode only.
    """
    params: dict[str, Any] = {**NEUTRAL, "temperature": sampling.temperature, "max_new_tokens": sampling.max_new_tokens}
    if seed is not None:
        params["sampling_seed"] = seed
    if stop_ids:
        params["stop_token_ids"] = stop_ids
    body: dict[str, Any] = {"rid": rid, "input_ids": ids, "sampling_params": params, "return_logprob": True}
    if cache is not None:
        body["extra_key"] = cache
    return body if pin is None else body | {"weight_version": pin}


def read_generated(answer: GenerateAnswer) -> Generated:
    """The typed answer.

    Raises:
        EngineGone: the engine gave the request up; it may be asked again.
        SamplerError: the parts of the answer contradict each other.
    """
    meta = answer.meta_info
    if meta.finish_reason.type == "abort":
        raise EngineGone(f"the engine aborted the request: {meta.finish_reason.message}")
    ids = answer.output_ids
    if [token for _, token, _ in meta.output_token_logprobs] != ids:
        raise SamplerError("the engine's log-probabilities are not those of its tokens")
    logprobs = [logprob for logprob, _, _ in meta.output_token_logprobs]
    if not all(math.isfinite(logprob) and logprob <= 0.0 for logprob in logprobs):
        raise SamplerError("the engine's log-probabilities are not finite numbers up to 0")
    spans = [VersionSpan(version=_version(span), start=span.start, end=span.end) for span in meta.weight_versions]
    edges = [0, *(span.end for span in spans)]
    if [span.start for span in spans] != edges[:-1] or edges[-1] != len(ids) or sorted(set(edges)) != edges:
        raise SamplerError(f"the engine's version spans {meta.weight_versions} don't cover {len(ids)} tokens")
    return Generated(
        output_ids=ids, logprobs=logprobs, spans=spans, finish=meta.finish_reason.type, cached_tokens=meta.cached_tokens
    )


def _version(span: AnsweredSpan) -> Version:
    try:
        return Version.parse(span.version)
    except ValueError as error:
        raise SamplerError(f"the engine drew from weights called {span.version!r}: {error}") from error
