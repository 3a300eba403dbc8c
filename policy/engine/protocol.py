"""SGLang's /generate body, typed, and what this engine does not do of it.

Invariant: a field that would change what is drawn is carried out, or refused with its name. Only fields without
influence on the result are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from policy.errors import EngineError


class BadRequest(EngineError):  # noqa: N818 - named after its HTTP status
    """The request can't be carried out; `body` is the JSON answer with status 400."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body))
        self.body = body


def refuse(message: str) -> BadRequest:
    """An error in SGLang's usual form."""
    return BadRequest({"error": {"message": message}})


class SamplingParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`sampling_params`: SGLang's names. Those below `neutral` are accepted at the value given here only."""

    max_new_tokens: int | None = 128
    temperature: float = 1.0
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    sampling_seed: int | None = None
    n: int = 1
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True  # no influence on ids
    no_stop_trim: bool = False  # no influence on ids
    stream_interval: int | None = None
    custom_params: Any = None
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    # neutral
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    stop: list[str] | str | None = None
    stop_regex: list[str] | str | None = None
    beam_width: int | None = None
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    logit_bias: dict[str, float] | None = None
    watermark: Any = None


_NEUTRAL = ("frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens")
_ABSENT = (
    "stop",
    "stop_regex",
    "beam_width",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "logit_bias",
    "watermark",
)
_DEFAULTS = SamplingParams()


class GenerateBody(msgspec.Struct, kw_only=True):
    """Body of /generate; unknown keys are ignored, as SGLang does. `weight_version` is this engine's extension."""

    rid: str | list[str] | None = None
    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    sampling_params: msgspec.Raw = msgspec.Raw(b"{}")
    return_logprob: bool | list[bool] | None = False
    logprob_start_len: int | list[int] | None = -1
    return_text_in_logprobs: bool = False
    stream: bool = False
    weight_version: str | None = None
    # refused unless absent
    top_logprobs_num: int | list[int] | None = 0
    token_ids_logprob: list[Any] | None = None
    lora_path: Any = None
    custom_logit_processor: Any = None
    return_hidden_states: bool | list[bool] = False
    image_data: Any = None
    input_embeds: Any = None


_REFUSED = (
    "top_logprobs_num",
    "token_ids_logprob",
    "lora_path",
    "custom_logit_processor",
    "return_hidden_states",
    "image_data",
    "input_embeds",
)

_body_decoder = msgspec.json.Decoder(GenerateBody)
_any_decoder = msgspec.json.Decoder()


def read_body(raw: bytes) -> GenerateBody:
    """Decode a /generate body. Raises BadRequest."""
    try:
        body = _body_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise BadRequest({"object": "error", "message": str(error), "code": 400}) from error
    for name in _REFUSED:
        if getattr(body, name):
            raise refuse(f"{name} is not supported by this engine")
    return body


def read_params(raw: bytes, count: int) -> list[SamplingParams]:
    """`sampling_params`, one per prompt. Raises BadRequest for unknown keys and for values without an equal here."""
    try:
        plain = _any_decoder.decode(raw or b"{}")
    except msgspec.MsgspecError as error:
        raise BadRequest({"error": str(error)}) from error
    each = plain if isinstance(plain, list) else [plain or {}] * count
    if len(each) != count:
        raise refuse(f"{len(each)} sampling_params for {count} prompts")
    return [_params(one) for one in each]


def _params(plain: Any) -> SamplingParams:
    if isinstance(plain, dict):
        for name in plain:
            if name not in SamplingParams.__struct_fields__:
                known = ", ".join(f"`{field}`" for field in SamplingParams.__struct_fields__)
                raise BadRequest({"error": f"unknown field `{name}`, expected one of {known}"})
    try:
        params = msgspec.convert(plain, SamplingParams)
    except msgspec.ValidationError as error:
        raise BadRequest({"error": str(error)}) from error
    for name in _NEUTRAL:
        if getattr(params, name) != getattr(_DEFAULTS, name):
            raise refuse(f"{name} other than {getattr(_DEFAULTS, name)} is not supported by this engine")
    for name in _ABSENT:
        if getattr(params, name):
            raise refuse(f"{name} is not supported by this engine")
    if params.max_new_tokens is not None and params.max_new_tokens < 0:
        raise refuse(f"max_new_tokens must be at least 0, got {params.max_new_tokens}.")
    if not 0.0 <= params.temperature < float("inf"):
        raise refuse(f"temperature must be a non-negative finite number, got {params.temperature}.")
    if not 0.0 < params.top_p <= 1.0:
        raise refuse(f"top_p must be in (0, 1], got {params.top_p}.")
    if params.top_k < 1 and params.top_k not in (-1, 0):
        raise refuse(f"top_k must be -1 (all tokens) or at least 1, got {params.top_k}.")
    if not 0.0 <= params.min_p <= 1.0:
        raise refuse(f"min_p must be in [0, 1], got {params.min_p}.")
    if params.n < 1:
        raise refuse(f"n must be at least 1, got {params.n}.")
    return params
