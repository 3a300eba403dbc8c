"""OpenAI's `/v1/chat/completions`: a conversation through the model's own chat template.

Invariant: a field that would change what is drawn is carried out, or refused with its name. Contents are data: no
special token comes out of them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from policy.engine.generate import GenerateHandler, json_response
from policy.engine.protocol import BadRequest, GenerateBody, refuse
from policy.engine.said import AnswerText
from policy.errors import EngineError
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError

_FINISH = {"stop": "stop", "length": "length"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # fields that are taken at these values only
    "n": (None, 1), "logprobs": (None, False), "frequency_penalty": (None, 0), "presence_penalty": (None, 0),
    "logit_bias": (None, {}), "tools": (None, []), "response_format": (None, {"type": "text"}), "functions": (None, []),
}  # fmt: skip
_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Stops = Annotated[list[_Stop], msgspec.Meta(max_length=16)]


class _Part(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _ChatBody(msgspec.Struct):
    messages: list[_Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: _Stop | _Stops | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class _Piece(NamedTuple):
    """What an answer has grown by; `finish` once it has ended."""

    text: str
    finish: str | None
    usage: dict[str, int]


class ChatHandler:
    """Handler of /v1/chat/completions; the tokenizer is read when the first request comes."""

    def __init__(self, generate: GenerateHandler, folder: Path) -> None:
        self._generate, self._folder = generate, folder
        self._tokenizer: Tokenizer | None = None

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = _read(await request.read())
        asked = await self._asked(body)
        head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": str(self._folder),
        }
        async with aclosing(self._pieces(asked, AnswerText(body.stops))) as pieces:
            if body.stream:
                usage = body.stream_options is not None and body.stream_options.include_usage
                return await _stream(request, pieces, head, usage=usage)
            found = [piece async for piece in pieces]
        text = "".join(piece.text for piece in found)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": found[-1].finish}
        return json_response(head | {"choices": [choice], "usage": found[-1].usage})

    async def _asked(self, body: _ChatBody) -> GenerateBody:
        """The same of /generate. Raises BadRequest."""
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
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "sampling_seed": body.seed,
            "stop_token_ids": tokenizer.stop_ids,
        }
        encoded = msgspec.Raw(msgspec.json.encode(params))
        return GenerateBody(input_ids=list(ids), sampling_params=encoded, stream=bool(body.stream or body.stops))

    async def _pieces(self, asked: GenerateBody, said: AnswerText) -> AsyncGenerator[_Piece, None]:
        """The answer piece by piece; a text to stop at ends it before its tokens are all drawn."""
        async with aclosing(self._generate.growing(asked)) as growing:
            async for answer in growing:
                meta = answer["meta_info"]
                ended = meta["finish_reason"]
                text = said.grown(answer["text"], ended=ended is not None)
                finish = "stop" if said.stopped else ended and _FINISH.get(ended["type"], "stop")
                counted = {name: meta[name] for name in ("prompt_tokens", "completion_tokens")}
                yield _Piece(text, finish, counted | {"total_tokens": sum(counted.values())})
                if said.stopped:
                    return


async def _stream(
    request: web.Request, pieces: AsyncIterator[_Piece], head: dict[str, Any], *, usage: bool
) -> web.StreamResponse:
    """Write the answer as server-sent events; an error after the first is an event as well. Raises EngineError."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    last: _Piece | None = None
    try:
        async for piece in pieces:
            delta: dict[str, str] = {"content": piece.text}
            if last is None:
                await response.prepare(request)
                delta["role"] = "assistant"
            last = piece
            if piece.text or piece.finish:
                await response.write(_event(head, [{"index": 0, "delta": delta, "finish_reason": piece.finish}]))
    except EngineError as error:
        if last is None:
            raise
        await response.write(b"data: " + msgspec.json.encode({"error": {"message": str(error)}}) + b"\n\n")
    else:
        if usage and last is not None:
            await response.write(_event(head | {"usage": last.usage}, []))
        await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _event(head: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
    return b"data: " + msgspec.json.encode(head | {"choices": choices}) + b"\n\n"


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
