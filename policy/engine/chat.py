"""OpenAI's `/v1/chat/completions`: a conversation through the model's own chat template.

Invariant: a field that would change what is drawn is carried out, or refused with its name. Contents are data: no
special token comes out of them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from policy.engine.generate import GenerateHandler, json_response
from policy.engine.protocol import BadRequest, GenerateBody, refuse
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError

_FINISH = {"stop": "stop", "length": "length"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # fields that are taken at these values only
    "n": (None, 1), "stream": (None, False), "top_p": (None, 1, 1.0), "stop": (None, []), "logprobs": (None, False),
    "frequency_penalty": (None, 0), "presence_penalty": (None, 0), "logit_bias": (None, {}), "tools": (None, []),
    "response_format": (None, {"type": "text"}), "functions": (None, []),
}  # fmt: skip


class _Part(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _ChatBody(msgspec.Struct):
    messages: list[_Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None


class ChatHandler:
    """Handler of /v1/chat/completions; the tokenizer is read when the first request comes."""

    def __init__(self, generate: GenerateHandler, folder: Path) -> None:
        self._generate, self._folder = generate, folder
        self._tokenizer: Tokenizer | None = None

    async def __call__(self, request: web.Request) -> web.Response:
        raw = await request.read()
        body = _read(raw)
        try:
            if self._tokenizer is None:
                self._tokenizer = await asyncio.to_thread(Tokenizer.load, self._folder)
            tokenizer: Tokenizer = self._tokenizer
            ids = await asyncio.to_thread(_prompt, tokenizer, body.messages)
        except ConfigError as error:
            raise refuse(str(error)) from error
        params = {
            "max_new_tokens": body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "sampling_seed": body.seed,
            "stop_token_ids": tokenizer.stop_ids,
        }
        found = await self._generate.complete(
            GenerateBody(input_ids=list(ids), sampling_params=msgspec.Raw(msgspec.json.encode(params)))
        )
        meta = found["meta_info"]
        counted = {"prompt_tokens": meta["prompt_tokens"], "completion_tokens": meta["completion_tokens"]}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": found["text"]},
            "finish_reason": _FINISH.get(meta["finish_reason"]["type"], "stop"),
        }
        return json_response(
            {
                "id": f"chatcmpl-{secrets.token_hex(12)}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": str(self._folder),
                "choices": [choice],
                "usage": counted | {"total_tokens": sum(counted.values())},
            }
        )


def _read(raw: bytes) -> _ChatBody:
    try:
        plain = msgspec.json.decode(raw, type=dict[str, Any])
        for name, allowed in _NEUTRAL.items():
            if plain.get(name) not in allowed:
                raise refuse(f"{name} is not supported by this engine")
        return msgspec.convert(plain, _ChatBody)
    except msgspec.MsgspecError as error:
        raise BadRequest({"object": "error", "message": str(error), "code": 400}) from error


def _prompt(tokenizer: Tokenizer, messages: list[_Message]) -> list[int]:
    """The ids of a system message, if any, and of turns of user and assistant, the user's last."""
    system, turns = (messages[0].text, messages[1:]) if messages and messages[0].role == "system" else (None, messages)
    for number, message in enumerate(turns):
        if message.role != ("assistant" if number % 2 else "user"):
            raise refuse(f"messages: a {message.role} message stands where user and assistant take turns")
    if len(turns) % 2 == 0:
        raise refuse("messages: the last one is the user's")
    texts = [message.text for message in turns]
    return tokenizer.prompt_ids(texts[-1], system, list(zip(texts[:-1:2], texts[1::2], strict=True)))
