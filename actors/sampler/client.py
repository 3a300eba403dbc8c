"""HTTP client of one engine, embedded or SGLang's own.

Invariant: every call has a deadline, and every answer a size limit and a type. A failure is EngineGone (ask again),
EngineBusy (ask later) or EngineError (don't ask that). An answer is taken only when ids, log-probabilities and version
spans agree with each other.
"""

from __future__ import annotations

import asyncio
import math
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from actors.errors import EngineGone, SamplerError
from actors.replay.messages import Sampling, VersionSpan
from actors.sampler.messages import Generated
from policy.architecture import read_architecture
from policy.errors import EngineBusy, EngineError, PictureError
from policy.pictures import PicturePlace, PictureStyle, placed_in, style_of
from runtime.http import AnswerTooLongError, NoAnswerError, bearer, request_json
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
    prompt_tokens: int | None = None
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
    """Answer of /server_info: over how many processes the engine is spread, and whether it takes adapters."""

    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    enable_lora: bool | None = True  # where it doesn't say, its first load does
    max_lora_rank: int | None = None


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of /v1/models."""

    id: str = ""
    max_model_len: int | None = None  # an adapter has none of its own


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
    adapter: str = "",
    pictures: Sequence[bytes] = (),
) -> dict[str, Any]:
    """Body of /generate. `cache` names the part of SGLang's prefix cache that may be used; None: all of it.

    `adapter` names the one that SGLang draws with. `pictures` are PNG, in the order of their pads in `ids`.

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
    if adapter:
        body["lora_path"] = adapter
    if pictures:
        body["image_data"] = [b64encode(png).decode() for png in pictures]
    return body if pin is None else body | {"weight_version": pin}


def drawn_with(answer: GenerateAnswer, adapter: str) -> GenerateAnswer:
    """`answer`, whose tokens are all of the adapter that was asked for: SGLang names the version of its base alone."""
    span = AnsweredSpan(version=adapter, start=0, end=len(answer.output_ids))
    spans = [span] if answer.output_ids else []
    return msgspec.structs.replace(answer, meta_info=msgspec.structs.replace(answer.meta_info, weight_versions=spans))


def refuse_retokenised(answer: GenerateAnswer, ids: list[int]) -> None:
    """Raise SamplerError where the engine drew after another prompt than `ids`.

    SGLang makes a text of a prompt with pictures, and ids of that text again.
    """
    if (counted := answer.meta_info.prompt_tokens) not in (None, len(ids)):
        raise SamplerError(f"engine_retokenised: the prompt has {len(ids)} tokens, the engine made {counted} of it")


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
    if not ids or [token for _, token, _ in meta.output_token_logprobs] != ids:
        raise SamplerError("the engine's log-probabilities are not those of its tokens, or it drew none")
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


class Limits(msgspec.Struct, frozen=True):
    """Vocabulary size and context length (prompt and response together) in tokens, and how pictures are taken."""

    vocabulary: int
    context: int
    style: PictureStyle | None = None

    def places(self, ids: list[int], pictures: Sequence[bytes]) -> tuple[PicturePlace, ...]:
        """Where `pictures` lie in a prompt. Raises PictureError unless they and its pads belong together."""
        if self.style is None:
            if pictures:
                raise PictureError("the model reads text alone")
            return ()
        return placed_in(ids, pictures, self.style)

    def refusal(self, ids: list[int], sampling: Sampling, pictures: Sequence[bytes] = ()) -> str | None:
        try:
            self.places(ids, pictures)
        except PictureError as error:
            return f"the prompt's pictures: {error}"
        if not ids:
            return "the prompt is empty"
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.vocabulary:
            return f"token id {low if low < 0 else high} is outside the vocabulary of {self.vocabulary}"
        if sampling.max_new_tokens < 1:
            return f"max_new_tokens is {sampling.max_new_tokens}"
        if not 0.0 <= sampling.temperature < float("inf"):
            return f"temperature is {sampling.temperature}"
        total = len(ids) + sampling.max_new_tokens
        if total > self.context:
            return (
                f"{len(ids)} prompt and {sampling.max_new_tokens} response tokens exceed the context of {self.context}"
            )
        return None


T = TypeVar("T")
MAX_ANSWER_BYTES = 32 << 20
CONTROL_TIMEOUT_S = 20.0
RELEASED = ["kv_cache", "weights"]  # SGLang's tags; its CUDA graphs stay


class EngineClient:
    """Speaks to `base`; `connector` decides what lies under it (TCP or a Unix socket), `token` is what it asks for."""

    def __init__(self, base: str, connector: aiohttp.BaseConnector, token: str = "") -> None:
        self._base = base.rstrip("/")
        self._session = aiohttp.ClientSession(connector=connector, headers=bearer(token))

    async def close(self) -> None:
        await self._session.close()

    async def generate(self, body: dict[str, Any], timeout_s: float) -> GenerateAnswer:
        return await self._call("POST", "/generate", body, GenerateAnswer, timeout_s)

    async def first_token(self, token: int, timeout_s: float) -> None:
        body = {"input_ids": [token], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
        await self._call("POST", "/generate", body, dict[str, Any], timeout_s)

    async def model_info(self) -> ModelInfo:
        return await self._call("GET", "/model_info", None, ModelInfo, CONTROL_TIMEOUT_S)

    async def context_length(self) -> int:
        models = await self._call("GET", "/v1/models", None, Models, CONTROL_TIMEOUT_S)
        if not models.data or models.data[0].max_model_len is None:
            raise EngineError("the engine serves no model")
        return models.data[0].max_model_len

    async def adapters(self) -> list[str]:
        models = await self._call("GET", "/v1/models", None, Models, CONTROL_TIMEOUT_S)
        return [card.id for card in models.data[1:]]

    async def load_adapter(self, location: str, version: str, timeout_s: float) -> None:
        """Load an adapter into SGLang, again where it has it. What runs with others goes on with those."""
        if version in await self.adapters():
            await self.control("/unload_lora_adapter", {"lora_name": version}, timeout_s)
        await self.control("/load_lora_adapter", {"lora_name": version, "lora_path": location}, timeout_s)

    async def limits(self, model: str) -> Limits:
        """What it can take: the context is its own word, the vocabulary that of the model folder."""
        shape = await asyncio.to_thread(read_architecture, Path(model))
        style = await asyncio.to_thread(style_of, Path(model))
        return Limits(vocabulary=shape.vocab, context=await self.context_length(), style=style)

    async def score(self, ids: list[int], timeout_s: float, adapter: str = "") -> list[float]:
        """Log-probabilities of `ids[1:]`, each after those before it, at temperature 1; NaN where it has no number."""
        params = {"max_new_tokens": 0, "temperature": 0.0}
        body = {"input_ids": ids, "sampling_params": params, "return_logprob": True, "logprob_start_len": 0}
        body |= {"lora_path": adapter} if adapter else {}
        answer = await self._call("POST", "/generate", body, GenerateAnswer, timeout_s)
        scored = answer.meta_info.input_token_logprobs
        if [token for _, token, _ in scored] != ids:
            raise EngineError("the engine's scores are not those of the prompt")
        return [math.nan if logprob is None else logprob for logprob, _, _ in scored[1:]]

    async def update(self, location: str, version: str, timeout_s: float, **how: str | bool) -> None:
        """Replace the weights. SGLang waits until all requests have ended unless it is paused.

        The embedded engine goes on generating while it loads, and compares the digest.
        """
        body = {"model_path": location, "weight_version": version, **how}
        await self.control("/update_weights_from_disk", body, timeout_s)

    async def pause(self, mode: str) -> None:
        """Stop generating: `retract` computes running responses again afterwards, `in_place` keeps their caches."""
        await self.control("/pause_generation", {"mode": mode}, CONTROL_TIMEOUT_S)

    async def resume(self) -> None:
        await self.control("/continue_generation", {}, CONTROL_TIMEOUT_S)

    async def release_memory(self, timeout_s: float) -> None:
        """Give up weights and cache on the card; SGLang ends where it is not paused, or has no memory to release."""
        await self._call("POST", "/release_memory_occupation", {"tags": RELEASED}, Any, timeout_s)

    async def resume_memory(self, timeout_s: float) -> None:
        """Take back what was released: the same weights, and an empty cache."""
        await self._call("POST", "/resume_memory_occupation", {"tags": RELEASED}, Any, timeout_s)

    async def server_info(self) -> ServerInfo:
        return await self._call("GET", "/server_info", None, ServerInfo, CONTROL_TIMEOUT_S)

    async def pin(self, version: str, location: str, timeout_s: float) -> None:
        """Keep a version resident (embedded engine only)."""
        await self.control("/pin_weights", {"weight_version": version, "model_path": location}, timeout_s)

    async def unpin(self, version: str) -> None:
        """Let a version go (embedded engine only)."""
        await self.control("/unpin_weights", {"weight_version": version}, CONTROL_TIMEOUT_S)

    async def control(self, path: str, body: dict[str, Any], timeout_s: float) -> None:
        """Any of the endpoints that answer with success and a message. Raises EngineError when it says no."""
        answer = await self._call("POST", path, body, ControlAnswer, timeout_s)
        if not answer.success:
            raise EngineError(f"{path}: {answer.message}")

    async def _call(self, method: str, path: str, body: Any, kind: type[T], timeout_s: float) -> T:
        if self._session.closed:
            raise EngineGone(f"{path}: the engine is down")
        data = None if body is None else msgspec.json.encode(body)
        try:
            response = await request_json(
                self._session, method, self._base + path, data, timeout_s=timeout_s, most=MAX_ANSWER_BYTES
            )
        except AnswerTooLongError as error:
            raise EngineError(f"{path}: {error}") from error
        except NoAnswerError as error:
            raise EngineGone(f"{path}: " + ": ".join(filter(None, (str(error), error.detail)))) from error
        if response.status == 200:
            return _decode(response.body, kind, path)
        text = f"{path}: status {response.status}: {response.body[:500].decode(errors='replace')}"
        if response.status in (429, 503):
            raise EngineBusy(text)
        raise EngineError(text) if response.status < 500 else EngineGone(text)


def _decode(raw: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EngineError(f"{path}: the engine's answer is not as agreed: {error}") from error
