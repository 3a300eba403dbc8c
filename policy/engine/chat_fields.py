"""The fields of a request to `/v1/chat/completions`: OpenAI's, and those that vLLM and SGLang have added. Pure.

Invariant: a field that would change what is drawn or answered is carried out, or refused with its name.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

import msgspec

from policy.engine.protocol import BadRequest

_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Stops = Annotated[list[_Stop], msgspec.Meta(max_length=16)]

# Without influence on an answer, whatever they are.
_IGNORED = frozenset({
    "model", "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "parallel_tool_calls", "spaces_between_special_tokens", "stream_interval",
    "separate_reasoning", "stream_reasoning",
})  # fmt: skip
# Taken at these values only, which ask for nothing; null is always one.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # OpenAI
    "n": (1,), "logprobs": (False,), "top_logprobs": (0,), "frequency_penalty": (0,), "presence_penalty": (0,),
    "logit_bias": ({},), "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],),
    "function_call": ("none", "auto"), "response_format": ({"type": "text"},), "modalities": (["text"],),
    "store": (False,), "audio": (), "prediction": (), "reasoning_effort": (), "verbosity": (), "web_search_options": (),
    "moderation": (),
    # vLLM and SGLang
    "repetition_penalty": (1,), "min_tokens": (0,), "min_new_tokens": (0,), "length_penalty": (1,), "best_of": (1,),
    "use_beam_search": (False,), "beam_width": (), "bad_words": ([],), "allowed_token_ids": (), "stop_regex": ([],),
    "include_stop_str_in_output": (False,), "no_stop_trim": (False,), "logits_processors": ([],),
    "custom_logit_processor": (), "custom_params": (), "vllm_xargs": (), "watermark": (),
    "structured_outputs": (), "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    "guided_decoding_backend": (), "structural_tag": (), "json_schema": (), "regex": (), "ebnf": (),
    "chat_template": (), "documents": ([],), "echo": (False,), "add_special_tokens": (False,), "tool_reference": (),
    "truncate_prompt_tokens": (), "prompt_logprobs": (), "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,), "return_hidden_states": (False,), "return_prompt_token_ids": (False,),
    "return_routed_experts": (False,), "return_cached_tokens_details": (False,), "return_meta_info": (False,),
    "include_reasoning": (True,), "reasoning": (), "thinking_token_budget": (), "repetition_detection": (),
    "mm_processor_kwargs": (), "media_io_kwargs": (), "input_ids": (), "priority": (0,), "cache_salt": (),
    "extra_key": (), "lora_path": (), "session_params": (), "kv_transfer_params": (), "data_parallel_rank": (),
    "routed_dp_rank": (), "bootstrap_host": (), "bootstrap_port": (), "bootstrap_room": (),
}  # fmt: skip
_OF_MESSAGE: dict[str, tuple[Any, ...]] = {
    "name": (), "refusal": (), "audio": (), "annotations": ([],), "tool_calls": ([],), "tool_call_id": (),
    "function_call": (), "reasoning": (), "reasoning_content": (), "reasoning_details": (), "prefix": (False,),
}  # fmt: skip
_OF_OPTIONS: dict[str, tuple[Any, ...]] = {"include_obfuscation": (False,), "continuous_usage_stats": (False,)}


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
        """The texts that end an answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def template(self) -> dict[str, Any]:
        """The same for the chat template."""
        last = bool(self.continue_final_message)
        begins = not last if self.add_generation_prompt is None else self.add_generation_prompt
        found: dict[str, Any] = {"add_generation_prompt": begins}
        if last:
            found["continue_final_message"] = True
        if self.chat_template_kwargs:
            found["chat_template_kwargs"] = self.chat_template_kwargs
        return found


def refused(message: str, name: str | None = None) -> BadRequest:
    """A refusal in OpenAI's form; `name` is the field's."""
    return BadRequest({"error": {"message": message, "type": "invalid_request_error", "param": name, "code": None}})


def known_fields(raw: bytes) -> ChatBody:
    """The request in `raw`, each field typed by itself. Raises BadRequest."""
    try:
        plain = msgspec.json.decode(raw, type=dict[str, Any])
        _look(plain, (*ChatBody.__struct_fields__, *_IGNORED), _NEUTRAL, "")
        for number, message in enumerate(plain.get("messages") or []):
            if isinstance(message, dict):
                _look(message, _Message.__struct_fields__, _OF_MESSAGE, f"messages[{number}].")
        if isinstance(options := plain.get("stream_options"), dict):
            _look(options, _StreamOptions.__struct_fields__, _OF_OPTIONS, "stream_options.")
        return msgspec.convert(plain, ChatBody)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise refused(str(error)) from error


def _look(plain: dict[str, Any], carried: tuple[str, ...], neutral: dict[str, tuple[Any, ...]], at: str) -> None:
    """Raise BadRequest for a field that is neither carried out nor without influence."""
    for name, value in plain.items():
        if name in carried:
            continue
        if name not in neutral:
            near = get_close_matches(name[:80], [*carried, *neutral], 1)
            hint = f": did you mean {near[0]}?" if near else ""
            shown = at + ascii(name[:80])[1:-1]
            raise refused(f"{shown} is no field of a chat completion{hint}", shown)
        # Python takes False for 0: of another type it is another value.
        if value is not None and not any(value == one and _same(value, one) for one in neutral[name]):
            asked = ", ".join(msgspec.json.encode(one).decode() for one in neutral[name])
            only = f" other than {asked}" if asked else ""
            raise refused(f"{at}{name}{only} is not supported by this engine", f"{at}{name}")


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool)
