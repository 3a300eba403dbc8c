"""OpenAI's `/v1/chat/completions`: a conversation through the model's own chat template.

Invariant: contents are data: no special token comes out of them. A refusal has OpenAI's form.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from policy.engine.chat_fields import ChatBody, known_fields, refused
from policy.engine.generate import GenerateHandler, json_response
from policy.engine.protocol import BadRequest, GenerateBody
from policy.engine.said import AnswerText
from policy.errors import EngineError
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError

_FINISH = {"stop": "stop", "length": "length"}
_SAMPLED = ("temperature", "top_p", "top_k", "min_p", "ignore_eos", "skip_special_tokens")  # by one name on both routes


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
        try:
            return await self._answered(request)
        except BadRequest as error:  # of /generate, in SGLang's form
            said = error.body.get("error", error.body)
            message = said["message"] if isinstance(said, dict) else str(said)
            raise refused(message, said.get("param") if isinstance(said, dict) else None) from error

    async def _answered(self, request: web.Request) -> web.StreamResponse:
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
                usage = body.stream_options is not None and bool(body.stream_options.include_usage)
                return await _stream(request, pieces, head, usage=usage)
            found = [piece async for piece in pieces]
        text = "".join(piece.text for piece in found)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": found[-1].finish}
        return json_response(head | {"choices": [choice], "usage": found[-1].usage})

    async def _asked(self, body: ChatBody) -> GenerateBody:
        """The same of /generate. Raises BadRequest."""
        try:
            if self._tokenizer is None:
                self._tokenizer = await asyncio.to_thread(Tokenizer.load, self._folder)
            tokenizer: Tokenizer = self._tokenizer
            messages = [(message.role, message.text) for message in body.messages]
            ids = await asyncio.to_thread(tokenizer.chat_ids, messages, body.template)
        except ConfigError as error:
            raise refused(str(error)) from error
        params = {
            "max_new_tokens": body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
            "sampling_seed": body.seed,
            "stop_token_ids": [*tokenizer.stop_ids, *(body.stop_token_ids or [])],
        }
        params |= {name: value for name in _SAMPLED if (value := getattr(body, name)) is not None}
        return GenerateBody(
            rid=body.rid or body.request_id,
            input_ids=list(ids),
            sampling_params=msgspec.Raw(msgspec.json.encode(params)),
            stream=bool(body.stream or body.stops),
        )

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


def _read(raw: bytes) -> ChatBody:
    """The request in `raw`. Raises BadRequest."""
    body = known_fields(raw)
    if body.continue_final_message and body.add_generation_prompt:
        name = "add_generation_prompt"
        raise refused(f"{name}: an answer can't begin where continue_final_message lets the last one go on", name)
    if body.stream_options is not None and not body.stream:
        raise refused("stream_options: it goes with stream=true", "stream_options")
    return body
