"""The bodies of /generate and of /v1/chat/completions, typed, and what this engine does not do of them. Pure.

Invariant: a field that would change what is drawn or answered is carried out, or refused with its name. Only fields
without influence on the result are ignored.
"""

# ruff: noqa: SIM905 - a list of names reads best as words

from __future__ import annotations

import base64
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import msgspec

from policy.errors import EngineError


class BadRequest(EngineError):  # noqa: N818 - named after its HTTP status
    """The request can't be carried out; `body` is the JSON answer with status 400."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body))
        self.body = body


# --- /generate -----------------------------------------------------------------------------------------------


def refuse(message: str) -> BadRequest:
    """An error in SGLang's usual form."""
    return BadRequest({"error": {"message": message}})


# Parameters that are taken at these values only, None for whatever asks for nothing.
_NEUTRAL_PARAMS: dict[str, Any] = {
    **dict.fromkeys("frequency_penalty presence_penalty".split(), 0.0),
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
    "n": 1,
    "top_k": -1,
    "min_p": 0.0,
    **dict.fromkeys("stop stop_regex beam_width json_schema regex ebnf structural_tag logit_bias watermark".split()),
}


class SamplingParams(msgspec.Struct, kw_only=True):
    """`sampling_params`: SGLang's names."""

    max_new_tokens: int | None = 128
    temperature: float = 1.0
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    sampling_seed: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True  # no influence on ids
    no_stop_trim: bool = False  # no influence on ids
    stream_interval: int | None = None
    custom_params: Any = None
    top_p: float = 1.0


# Fields of SGLang's that ask for another prompt, draw or answer.
_REFUSED = (
    "text input_embeds positional_embed_overrides video_data audio_data session_params lora_path lora_id"
    " custom_logit_processor watermark max_thinking_tokens require_reasoning top_logprobs_num token_ids_logprob"
    " return_hidden_states return_sampling_mask return_text_in_logprobs return_flat_raw_top_logprobs"
    " return_flat_raw_output_top_logprobs return_flat_raw_top_logprobs_b64 return_routed_experts return_indexer_topk"
    " return_bytes return_entropy return_prompt_token_ids multi_item_delimiter_indices token_indices_to_pool"
).split()


MOST_PICTURES = 64  # of a request
PNG_URL = "data:image/png;base64,"


class GenerateBody(msgspec.Struct, kw_only=True):
    """Body of /generate with one prompt; keys but `_REFUSED` are ignored, as SGLang does.

    `weight_version` is this engine's extension.
    """

    input_ids: list[int]
    rid: str | None = None
    sampling_params: msgspec.Raw = msgspec.Raw(b"{}")
    return_logprob: bool | None = False
    logprob_start_len: int | None = -1
    stream: bool = False
    weight_version: str | None = None
    image_data: str | Annotated[list[str], msgspec.Meta(max_length=MOST_PICTURES)] | None = None

    @property
    def pictures(self) -> list[bytes]:
        """PNGs in the order of their pads. Raises BadRequest for what is no base64; SGLang takes addresses as well."""
        texts = [self.image_data] if isinstance(self.image_data, str) else self.image_data or []
        try:
            return [base64.b64decode(text.removeprefix(PNG_URL), validate=True) for text in texts]
        except ValueError as error:
            raise refuse(f"image_data: pictures are base64: {error}") from error


_body_decoder = msgspec.json.Decoder(GenerateBody)
_refused_decoder = msgspec.json.Decoder(msgspec.defstruct("Refused", [(name, Any, None) for name in _REFUSED]))
_any_decoder = msgspec.json.Decoder()


def read_body(raw: bytes) -> GenerateBody:
    """Decode a /generate body. Raises BadRequest."""
    try:
        body, asked = _body_decoder.decode(raw), _refused_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest({"object": "error", "message": str(error), "code": 400}) from error
    for name in _REFUSED:
        if getattr(asked, name):
            raise refuse(f"{name} is not supported by this engine")
    return body


def read_params(raw: bytes) -> SamplingParams:
    """`sampling_params`. Raises BadRequest for unknown keys and for values without an equal here."""
    try:
        plain = _any_decoder.decode(raw or b"{}") or {}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest({"error": str(error)}) from error
    if isinstance(plain, dict) and (unknown := next((name for name in plain if name not in _PARAMS), None)):
        known = ", ".join(f"`{name}`" for name in _PARAMS)
        raise BadRequest({"error": f"unknown field `{unknown}`, expected one of {known}"})
    try:
        params = msgspec.convert(plain, SamplingParams)
    except msgspec.ValidationError as error:
        raise BadRequest({"error": str(error)}) from error
    for name, neutral in _NEUTRAL_PARAMS.items():
        value = plain.get(name, neutral)
        if value != neutral and (value or neutral is not None):
            only = "" if neutral is None else f" other than {neutral}"
            raise refuse(f"{name}{only} is not supported by this engine")
    if params.max_new_tokens is not None and params.max_new_tokens < 0:
        raise refuse(f"max_new_tokens must be at least 0, got {params.max_new_tokens}.")
    if not 0.0 <= params.temperature < float("inf"):
        raise refuse(f"temperature must be a non-negative finite number, got {params.temperature}.")
    if not 0.0 < params.top_p <= 1.0:
        raise refuse(f"top_p must be in (0, 1], got {params.top_p}.")
    return params


_PARAMS = (*SamplingParams.__struct_fields__, *_NEUTRAL_PARAMS)

# --- /v1/chat/completions ----------------------------------------------------------------------------------------

_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Stops = Annotated[list[_Stop], msgspec.Meta(max_length=16)]

# Without influence on an answer, whatever they are.
_IGNORED = ("model", "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls")
# Fields that are not carried out, and the values that ask for nothing. Any other field may be null alone.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "store": (False,),
}


class _Part(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Address(msgspec.Struct):
    url: Annotated[str, msgspec.Meta(pattern=f"^{PNG_URL}")]
    detail: str | None = None  # without influence


class _ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: _Address


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]  # a template makes control tokens of it
    content: str | list[_Part | _ImagePart]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, _Part))


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """What is carried out of a request."""

    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: _Stop | _Stops | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def picture(self) -> tuple[str, bool] | None:
        """The PNG of the last message in base64, and whether it comes before the text.

        Raises BadRequest for a picture elsewhere: earlier turns are text.
        """
        seen: list[tuple[str, bool]] = []
        for message in self.messages:
            parts = [] if isinstance(message.content, str) else message.content
            for place, part in enumerate(parts):
                if not isinstance(part, _ImagePart):
                    continue
                if message is not self.messages[-1] or seen or (place and place != len(parts) - 1):
                    raise refuse_chat("messages: one image_url is taken, first or last in the last message", "messages")
                seen.append((part.image_url.url.removeprefix(PNG_URL), place == 0))
        return seen[0] if seen else None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


def refuse_chat(message: str, name: str | None = None) -> BadRequest:
    """A refusal in OpenAI's form; `name` is the field's."""
    return BadRequest({"error": {"message": message, "type": "invalid_request_error", "param": name, "code": None}})


def read_chat(raw: bytes) -> ChatBody:
    """The request in `raw`, each field typed by itself. Raises BadRequest."""
    try:
        plain = msgspec.json.decode(raw, type=dict[str, Any])
        _check_names(plain, (*ChatBody.__struct_fields__, *_IGNORED), "")
        for number, message in enumerate(plain.get("messages") or []):
            if isinstance(message, dict):
                _check_names(message, _Message.__struct_fields__, f"messages[{number}].")
                for part in message["content"] if isinstance(message.get("content"), list) else ():
                    if isinstance(part, dict):
                        kind = "image_url" if part.get("type") == "image_url" else "text"
                        _check_names(part, ("type", kind), f"messages[{number}].content.")
        if isinstance(options := plain.get("stream_options"), dict):
            _check_names(options, _StreamOptions.__struct_fields__, "stream_options.")
        body = msgspec.convert(plain, ChatBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refuse_chat(str(error)) from error
    if body.stream_options is not None and not body.stream:
        raise refuse_chat("stream_options: it goes with stream=true", "stream_options")
    return body


def _check_names(plain: dict[str, Any], carried: tuple[str, ...], at: str) -> None:
    """Raise BadRequest for a field that asks for something and is not carried out."""
    for name, value in plain.items():
        neutral = () if at else _NEUTRAL.get(name, ())
        # Python takes False for 0: of another type it is another value.
        same = (isinstance(value, bool) == isinstance(ours, bool) and value == ours for ours in neutral)
        if name in carried or value is None or any(same):
            continue
        shown = at + ascii(name[:80])[1:-1]
        near = get_close_matches(name[:80], carried, 1)
        only = f" other than {msgspec.json.encode(neutral[0]).decode()}" if neutral else ""
        hint = f": did you mean {near[0]}?" if near and not neutral else ""
        raise refuse_chat(f"{shown}{only} is not supported by this engine{hint}", shown)
