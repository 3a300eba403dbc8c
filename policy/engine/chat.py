"""OpenAI's `/v1/chat/completions`: a conversation through the model's own chat template.

Contents are data: no special token comes out of them. A refusal has OpenAI's form. What was given out of an answer is
never taken back, and no text to stop at, nor a part of one, is given out.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from policy.engine.generate import GenerateHandler, json_response
from policy.engine.protocol import BadRequest, ChatBody, GenerateBody, read_chat, refuse_chat
from policy.errors import EngineError, PictureError
from policy.pictures import picture_size
from policy.tokenizer import PromptPicture, Tokenizer
from runtime.errors import ConfigError

_UNFINISHED = "\ufffd"  # bytes of a character that has not come as a whole


class AnswerText:
    """One answer's text. `stopped` says that it has ended at one of `stops`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._given = 0
        self.stopped = False

    def grown(self, text: str, *, ended: bool) -> str:
        """The next piece of `text` that can be given out; all that is left once the answer has `ended`."""
        stops = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        self.stopped = bool(stops)  # at the one that is whole first
        until = min(stops)[1] if stops else len(text) if ended else len(text) - self._unsure(text)
        piece = text[self._given : until]
        self._given += len(piece)
        return piece

    def _unsure(self, text: str) -> int:
        """How many characters at the end may become others, or the beginning of a text to stop at."""
        unsure = len(text) - len(text.rstrip(_UNFINISHED))
        for stop in self._stops:
            unsure = max(unsure, next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0))
        return unsure


_FINISH = {"stop": "stop", "length": "length"}
_SAMPLED = ("temperature", "top_p", "ignore_eos")  # by one name on both routes


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
            cause = error.body.get("error", error.body)
            if not isinstance(cause, dict):
                cause = {"message": str(cause)}
            raise refuse_chat(cause["message"], cause.get("param")) from error

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        body = read_chat(await request.read())
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
            whole = [piece async for piece in pieces]
        text = "".join(piece.text for piece in whole)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": whole[-1].finish}
        return json_response(head | {"choices": [choice], "usage": whole[-1].usage})

    async def _asked(self, body: ChatBody) -> GenerateBody:
        """The same of /generate. Raises BadRequest."""
        try:
            if self._tokenizer is None:
                self._tokenizer = await asyncio.to_thread(Tokenizer.load, self._folder)
            tokenizer: Tokenizer = self._tokenizer
            messages = [(message.role, message.text) for message in body.messages]
            seen, image = None, body.picture
            if image is not None:
                png = base64.b64decode(image[0], validate=True)
                seen = PromptPicture(picture_size(png), first=image[1])
            ids = await asyncio.to_thread(tokenizer.chat_ids, messages, seen)
        except (ConfigError, PictureError, ValueError) as error:
            raise refuse_chat(str(error)) from error
        params = {
            "max_new_tokens": body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
            "sampling_seed": body.seed,
            "stop_token_ids": [*tokenizer.stop_ids, *(body.stop_token_ids or [])],
        }
        params |= {name: value for name in _SAMPLED if (value := getattr(body, name)) is not None}
        return GenerateBody(
            input_ids=ids,
            sampling_params=msgspec.Raw(msgspec.json.encode(params)),
            stream=bool(body.stream or body.stops),
            image_data=None if image is None else image[0],
        )

    async def _pieces(self, asked: GenerateBody, shown: AnswerText) -> AsyncGenerator[_Piece, None]:
        """The answer piece by piece; a text to stop at ends it before its tokens are all drawn."""
        async with aclosing(self._generate.growing(asked)) as growing:
            async for answer in growing:
                meta = answer["meta_info"]
                ended = meta["finish_reason"]
                text = shown.grown(answer["text"], ended=ended is not None)
                finish = "stop" if shown.stopped else ended and _FINISH.get(ended["type"], "stop")
                counted = {name: meta[name] for name in ("prompt_tokens", "completion_tokens")}
                yield _Piece(text, finish, counted | {"total_tokens": sum(counted.values())})
                if shown.stopped:
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
