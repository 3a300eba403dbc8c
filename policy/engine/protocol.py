"""The bodies of /generate and of /v1/chat/completions, typed, and what this engine does not do of them. Pure.

Invariant: a field that would change what is drawn or answered is carried out, or refused with its name. Only fields
without influence on the result are ignored.
"""

# ruff: noqa: SIM905 - a list of names reads best as words

from __future__ import annotations

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
    top_k: int = -1
    min_p: float = 0.0


class _Refused(msgspec.Struct, kw_only=True):
    """Fields that are refused unless absent."""

    text: Any = None
    top_logprobs_num: int | None = 0
    token_ids_logprob: list[Any] | None = None
    lora_path: Any = None
    custom_logit_processor: Any = None
    return_hidden_states: bool = False
    image_data: Any = None
    input_embeds: Any = None


class GenerateBody(_Refused, kw_only=True):
    """Body of /generate with one prompt; unknown keys are ignored, as SGLang does.

    `weight_version` is this engine's extension.
    """

    input_ids: list[int]
    rid: str | None = None
    sampling_params: msgspec.Raw = msgspec.Raw(b"{}")
    return_logprob: bool | None = False
    logprob_start_len: int | None = -1
    stream: bool = False
    weight_version: str | None = None


_body_decoder = msgspec.json.Decoder(GenerateBody)
_any_decoder = msgspec.json.Decoder()


def read_body(raw: bytes) -> GenerateBody:
    """Decode a /generate body. Raises BadRequest."""
    try:
        body = _body_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise BadRequest({"object": "error", "message": str(error), "code": 400}) from error
    for name in _Refused.__struct_fields__:
        if getattr(body, name):
            raise refuse(f"{name} is not supported by this engine")
    return body


def read_params(raw: bytes) -> SamplingParams:
    """`sampling_params`. Raises BadRequest for unknown keys and for values without an equal here."""
    try:
        plain = _any_decoder.decode(raw or b"{}") or {}
    except msgspec.MsgspecError as error:
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
    if params.top_k < 1 and params.top_k not in (-1, 0):
        raise refuse(f"top_k must be -1 (all tokens) or at least 1, got {params.top_k}.")
    if not 0.0 <= params.min_p <= 1.0:
        raise refuse(f"min_p must be in [0, 1], got {params.min_p}.")
    return params


_PARAMS = (*SamplingParams.__struct_fields__, *_NEUTRAL_PARAMS)

# --- /v1/chat/completions: OpenAI's fields, and those that vLLM and SGLang have added --------------------------

_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Stops = Annotated[list[_Stop], msgspec.Meta(max_length=16)]

# Without influence on an answer, whatever they are.
_IGNORED = frozenset(
    """model user metadata service_tier safety_identifier prompt_cache_key prompt_cache_retention prompt_cache_options
    parallel_tool_calls spaces_between_special_tokens stream_interval separate_reasoning stream_reasoning""".split()
)
# Known, and not carried out: taken at the values that ask for nothing, which are null, false, 0 and what is empty.
_REFUSED = frozenset(
    """audio prediction reasoning_effort verbosity web_search_options moderation n logprobs store logit_bias tool_choice
    function_call response_format modalities include_reasoning length_penalty repetition_penalty best_of
    beam_width allowed_token_ids custom_logit_processor custom_params vllm_xargs watermark structured_outputs
    guided_json guided_regex guided_choice guided_grammar guided_decoding_backend structural_tag json_schema regex ebnf
    chat_template tool_reference truncate_prompt_tokens prompt_logprobs reasoning thinking_token_budget
    repetition_detection mm_processor_kwargs media_io_kwargs input_ids cache_salt extra_key lora_path session_params
    kv_transfer_params data_parallel_rank routed_dp_rank bootstrap_host bootstrap_port bootstrap_room
    use_beam_search include_stop_str_in_output no_stop_trim echo add_special_tokens return_tokens_as_token_ids
    return_token_ids return_hidden_states return_prompt_token_ids return_routed_experts return_cached_tokens_details
    return_meta_info top_logprobs frequency_penalty presence_penalty min_tokens min_new_tokens priority
    tools functions bad_words stop_regex logits_processors documents""".split()
)
_REFUSED_IN_MESSAGE = frozenset(
    """name refusal audio tool_call_id function_call reasoning reasoning_content reasoning_details annotations
    tool_calls prefix""".split()
)
_REFUSED_IN_STREAM = frozenset(("include_obfuscation", "continuous_usage_stats"))
# The values that ask for nothing of those for which what is empty asks for something.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        """prompt_logprobs thinking_token_budget truncate_prompt_tokens reasoning chat_template structured_outputs
        guided_json guided_regex guided_choice json_schema regex ebnf""".split(),
        (None,),
    ),
    **dict.fromkeys("n repetition_penalty length_penalty best_of".split(), (1,)),
    **dict.fromkeys("tool_choice function_call".split(), ("none", "auto")),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "include_reasoning": (True,),
}
_NOTHING: tuple[Any, ...] = (False, 0, "", [], {})


class _Part(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]  # a template makes control tokens of it
    content: str | list[_Part]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """What is carried out of a request."""

    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: _Stop | _Stops | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    rid: str | None = None
    request_id: str | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def template(self) -> dict[str, Any]:
        continues = bool(self.continue_final_message)
        begins = not continues if self.add_generation_prompt is None else self.add_generation_prompt
        options: dict[str, Any] = {"add_generation_prompt": begins}
        if continues:
            options["continue_final_message"] = True
        if self.chat_template_kwargs:
            options["chat_template_kwargs"] = self.chat_template_kwargs
        return options


def refuse_chat(message: str, name: str | None = None) -> BadRequest:
    """A refusal in OpenAI's form; `name` is the field's."""
    return BadRequest({"error": {"message": message, "type": "invalid_request_error", "param": name, "code": None}})


def read_chat(raw: bytes) -> ChatBody:
    """The request in `raw`, each field typed by itself. Raises BadRequest."""
    try:
        plain = msgspec.json.decode(raw, type=dict[str, Any])
        _check_names(plain, (*ChatBody.__struct_fields__, *_IGNORED), _REFUSED, "")
        for number, message in enumerate(plain.get("messages") or []):
            if isinstance(message, dict):
                _check_names(message, _Message.__struct_fields__, _REFUSED_IN_MESSAGE, f"messages[{number}].")
        if isinstance(options := plain.get("stream_options"), dict):
            _check_names(options, _StreamOptions.__struct_fields__, _REFUSED_IN_STREAM, "stream_options.")
        body = msgspec.convert(plain, ChatBody)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise refuse_chat(str(error)) from error
    if body.continue_final_message and body.add_generation_prompt:
        name = "add_generation_prompt"
        raise refuse_chat(f"{name}: an answer can't begin where continue_final_message lets the last one go on", name)
    if body.stream_options is not None and not body.stream:
        raise refuse_chat("stream_options: it goes with stream=true", "stream_options")
    return body


def _check_names(plain: dict[str, Any], carried: tuple[str, ...], refused: frozenset[str], at: str) -> None:
    """Raise BadRequest for a field that is neither carried out nor without influence."""
    for name, value in plain.items():
        if name in carried:
            continue
        if name not in refused:
            near = get_close_matches(name[:80], [*carried, *sorted(refused)], 1)
            hint = f": did you mean {near[0]}?" if near else ""
            shown = at + ascii(name[:80])[1:-1]
            raise refuse_chat(f"{shown} is no field of a chat completion{hint}", shown)
        neutral = _NEUTRAL.get(name, _NOTHING)
        # Python takes False for 0: of another type it is another value.
        same = (isinstance(value, bool) == isinstance(ours, bool) and value == ours for ours in neutral)
        if value is not None and not any(same):
            only = "" if neutral is _NOTHING else f" other than {msgspec.json.encode(neutral[0]).decode()}"
            raise refuse_chat(f"{at}{name}{only} is not supported by this engine", f"{at}{name}")
