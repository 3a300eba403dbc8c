"""Asks a model behind a server that speaks the OpenAI chat completions protocol.

Invariant: every try has a deadline, and no more of an answer is ever held than its bound. No more requests are open
than the endpoint allows. The key goes into one header and nowhere else. A request that fails for good raises
`EndpointDown` with its cause and without the key.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec

from actors.desktop.endpoints.completion import (
    AnswerReader,
    Completed,
    GivenUpError,
    NoCompletionError,
    TooLongError,
    event_stream,
    is_document,
)
from actors.desktop.endpoints.config import EndpointConfig
from actors.desktop.endpoints.retrying import AGAIN, LIMITED, backoff_s, retry_after_s

Message = Mapping[str, Any]  # role and content, a text or parts

MAX_ANSWER_BYTES = 1 << 20  # of a body, and of an event of a stream
MAX_STREAM_BYTES = 32 << 20  # of a whole stream, a few hundred bytes a token; only its text is kept
MAX_BLANK = 1024  # bytes before an answer begins that are looked through for it
MAX_SAID = 200  # characters of a refusal's body that an error repeats
TOO_LARGE = 413
_CONTEXT = ("context length", "context_length", "context window", "longer than the model", "maximum context")


class EndpointDown(Exception):  # noqa: N818 - becomes a fault of the infrastructure where the episode is known
    """No answer within the tries allowed, or one that no later try will better; `cause` is the fault's.

    `status` is that of the server's answer where it refused, else 0.
    """

    def __init__(self, cause: str, said: str, status: int = 0) -> None:
        super().__init__(said)
        self.cause = cause
        self.status = status


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named]


class PromptRefused(EndpointDown):
    """The server takes no prompt as long as this."""


class _AgainError(Exception):
    """This try failed; the next may not."""

    def __init__(self, cause: str, said: str, after_s: float = 0.0) -> None:
        super().__init__(said)
        self.cause = cause
        self.after_s = after_s


class Endpoint:
    """One server, called `name` in errors. Usable from any task of one event loop."""

    def __init__(self, config: EndpointConfig, key: str, name: str = "") -> None:
        self._config = config
        self._key = key
        self._name = name or config.model
        # An answer that is packed could be larger than it seems.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.concurrent)
        self._client = httpx2.AsyncClient(headers=headers, timeout=None, limits=limits, trust_env=False)
        self._free = asyncio.Semaphore(config.concurrent)
        self._not_before = 0.0  # time.monotonic() until which the server asked to be left alone

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def complete(
        self, messages: Sequence[Message], seed: int, *, temperature: float, max_tokens: int
    ) -> Completed:
        """The model's answer to chat `messages`; `seed` is passed on and draws the back-off. Raises EndpointDown."""
        config = self._config
        body = msgspec.json.encode(
            {
                "model": config.model,
                "messages": list(messages),
                "temperature": temperature,
                config.length_key: max_tokens,
                "seed": seed % 2**31,
                **({"top_p": config.top_p} if config.top_p is not None else {}),
                **({"stop": config.stop} if config.stop else {}),
                **({"stream": True} if config.stream else {}),
            }
        )
        jitter = random.Random(seed)  # noqa: S311 - spreads retries, nothing secret
        deadline = time.monotonic() + config.answer_s
        for tried in range(1, config.retries + 2):
            try:
                async with self._free:
                    await self._let_alone(deadline)
                    return await self._try(body, max_tokens)
            except _AgainError as error:
                if tried > config.retries:
                    raise EndpointDown(error.cause, f"{self._name}: {error}, {tried} tries") from error
                self._not_before = max(self._not_before, time.monotonic() + error.after_s)
                if self._not_before <= deadline:
                    await asyncio.sleep(backoff_s(config, tried, jitter.random()))
        raise AssertionError("the loop returns or raises")

    async def models(self) -> list[str]:
        """Names of the models that the server lists; none where it lists none."""
        try:
            async with asyncio.timeout(self._config.timeout_s), self._client.stream("GET", self._at("models")) as reply:
                raw = await _whole(_bounded(reply, MAX_ANSWER_BYTES))
            return [one.id for one in msgspec.json.decode(raw, type=_Models).data]
        except (TimeoutError, httpx2.HTTPError, TooLongError, msgspec.DecodeError, UnicodeDecodeError):
            return []

    async def _let_alone(self, deadline: float) -> None:
        """Wait as long as the server asked any request to. Raises EndpointDown where that ends past `deadline`."""
        wait_s = self._not_before - time.monotonic()
        if self._not_before > deadline:
            said = f"{self._name}: it asks to wait {wait_s:.0f} s more, longer than an answer may take"
            raise EndpointDown("endpoint_limited", said)
        await asyncio.sleep(max(0.0, wait_s))

    def _at(self, path: str) -> str:
        return f"{self._config.url.rstrip('/')}/{path}"

    async def _try(self, body: bytes, max_tokens: int) -> Completed:
        config, url = self._config, self._at("chat/completions")
        try:
            async with asyncio.timeout(config.timeout_s), self._client.stream("POST", url, content=body) as reply:
                if reply.status_code != 200:
                    raise await self._failed(reply)
                return (await _read(reply)).completed(max_tokens)
        except TimeoutError as error:
            raise _AgainError("endpoint_silent", f"no answer within {config.timeout_s:g} s") from error
        except TooLongError as error:
            raise EndpointDown("endpoint_oversized", f"{self._name}: {error}") from error
        except (httpx2.HTTPError, OSError) as error:  # without its text, which may hold what was sent
            raise _AgainError("endpoint_silent", f"connection failed ({type(error).__name__})") from error
        except GivenUpError as error:
            raise _AgainError("endpoint_gave_up", self._shown(str(error))) from error
        except NoCompletionError as error:
            raise _AgainError("endpoint_malformed", f"no chat completion: {self._shown(str(error))}") from error

    async def _failed(self, reply: httpx2.Response) -> Exception:
        """What a status other than 200 means."""
        status = reply.status_code
        if status in AGAIN:
            cause = "endpoint_limited" if status == LIMITED else "endpoint_broken"
            return _AgainError(cause, f"status {status}", retry_after_s(reply.headers, time.time()))
        text = (await _whole(_bounded(reply, MAX_ANSWER_BYTES))).decode("utf-8", "replace")
        context = status == TOO_LARGE or any(word in text.lower() for word in _CONTEXT)
        kind = PromptRefused if context else EndpointDown
        return kind("endpoint_refused", f"{self._name}: status {status}: {self._shown(text)}", status)

    def _shown(self, text: str) -> str:
        """The beginning of a server's words on one line; some servers repeat the key that they refuse."""
        return ascii((text.replace(self._key, "***") if self._key else text)[:MAX_SAID])


async def _read(reply: httpx2.Response) -> AnswerReader:
    """The answer of a reply with status 200. Raises NoCompletionError and httpx2.HTTPError."""
    reader = AnswerReader()
    async with aclosing(_bounded(reply, MAX_STREAM_BYTES)) as pieces:
        start = b""
        async for piece in pieces:
            start += piece
            if len(start) > MAX_BLANK or (len(start) > 3 and start.strip()):  # more than a byte order mark
                break
        if is_document(start):
            reader.body(start + await _whole(pieces, MAX_ANSWER_BYTES - len(start)))
            return reader
        events = httpx2.EventSource(event_stream(_joined(start, pieces)), max_event_size=MAX_ANSWER_BYTES)
        try:
            async for event in events:
                reader.event(event)
                if reader.ended:
                    break
        except httpx2.SSEError as error:
            raise TooLongError(f"an event of more than {MAX_ANSWER_BYTES} bytes") from error
    return reader


async def _bounded(reply: httpx2.Response, most: int) -> AsyncGenerator[bytes, None]:
    """The bytes of a reply as they came, `most` of them. Raises TooLongError where there are more."""
    size = 0
    async for piece in reply.aiter_raw():
        size += len(piece)
        if size > most:
            raise TooLongError(f"an answer of more than {most} bytes")
        yield piece


async def _joined(start: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start.removeprefix(b"\xef\xbb\xbf")
    async for piece in pieces:
        yield piece


async def _whole(pieces: AsyncIterator[bytes], most: int = MAX_ANSWER_BYTES) -> bytes:
    """All pieces as one. Raises TooLongError where they are more than `most` bytes."""
    found = bytearray()
    async for piece in pieces:
        found += piece
        if len(found) > most:
            raise TooLongError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(found)
