"""Asks a model behind a server that speaks the OpenAI chat completions protocol.

Invariant: every try has a deadline and every answer a size limit. No more requests are open than the endpoint allows.
The key goes into one header and nowhere else. A request that fails for good raises `EndpointDown` with its cause and
without the key.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from actors.desktop.endpoints.completion import Completed, NoCompletionError, completed
from actors.desktop.endpoints.config import EndpointConfig
from runtime.backoff import Backoff
from runtime.http import AnswerTooLongError, NoAnswerError, request_json

Message = Mapping[str, Any]  # role and content, a text or parts

MAX_ANSWER_BYTES = 1 << 20
MAX_SAID = 200  # characters of a refusal's body that an error repeats
LIMITED = 429
# The server may answer later; 520 to 529 are what proxies and crowded services say of it.
AGAIN = frozenset({408, 409, 425, LIMITED, 500, 502, 503, 504, *range(520, 530)})
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


def backoff_s(endpoint: EndpointConfig, tried: int, draw: float) -> float:
    """Seconds to wait after `tried` failures: doubling up to the longest, times 0.5 to 1 by `draw` (0 to 1)."""
    backoff = Backoff(first_s=endpoint.first_backoff_s, longest_s=endpoint.longest_backoff_s)
    return backoff.delay_s(tried) * (0.5 + 0.5 * draw)


class Endpoint:
    """One server, called `name` in errors. Usable from any task of one event loop."""

    def __init__(self, config: EndpointConfig, key: str, name: str = "") -> None:
        self._config = config
        self._key = key
        self._name = name or config.model
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session = aiohttp.ClientSession(headers=headers, auto_decompress=False)
        self._free = asyncio.Semaphore(config.concurrent)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

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
        for tried in range(1, config.retries + 2):
            try:
                async with self._free:
                    return await self._try(body, max_tokens)
            except _AgainError as error:
                if tried > config.retries:
                    raise EndpointDown(error.cause, f"{self._name}: {error}, {tried} tries") from error
                await asyncio.sleep(
                    min(config.longest_backoff_s, max(error.after_s, backoff_s(config, tried, jitter.random())))
                )
        raise AssertionError("the loop returns or raises")

    async def models(self) -> list[str]:
        """Names of the models that the server lists; none where it lists none."""
        url = self._config.url.rstrip("/") + "/models"
        try:
            reply = await request_json(
                self._session, "GET", url, None, timeout_s=self._config.timeout_s, most=MAX_ANSWER_BYTES
            )
            return [one.id for one in msgspec.json.decode(reply.body, type=_Models).data]
        except (NoAnswerError, AnswerTooLongError, msgspec.DecodeError, UnicodeDecodeError):
            return []

    async def _try(self, body: bytes, max_tokens: int) -> Completed:
        config = self._config
        url = config.url.rstrip("/") + "/chat/completions"
        try:
            reply = await request_json(
                self._session, "POST", url, body, timeout_s=config.timeout_s, most=MAX_ANSWER_BYTES
            )
        except AnswerTooLongError as error:
            raise EndpointDown("endpoint_oversized", f"{self._name}: {error}") from error
        except NoAnswerError as error:  # without its detail, which may hold what was sent
            raise _AgainError("endpoint_silent", str(error)) from error
        if reply.status in AGAIN:
            cause = "endpoint_limited" if reply.status == LIMITED else "endpoint_broken"
            raise _AgainError(cause, f"status {reply.status}", _retry_after_s(reply.headers))
        if reply.status != 200:
            text = reply.body.decode("utf-8", "replace")  # some servers repeat the key that they refuse
            said = ascii((text.replace(self._key, "***") if self._key else text)[:MAX_SAID])
            context = reply.status == TOO_LARGE or any(word in text.lower() for word in _CONTEXT)
            kind = PromptRefused if context else EndpointDown
            raise kind("endpoint_refused", f"{self._name}: status {reply.status}: {said}", reply.status)
        try:
            return completed(reply.body, max_tokens)
        except NoCompletionError as error:
            raise _AgainError("endpoint_malformed", f"no chat completion: {ascii(str(error))[:MAX_SAID]}") from error


def _retry_after_s(headers: Mapping[str, Any]) -> float:
    text = str(headers.get("Retry-After", ""))
    return float(text) if text.isdecimal() and len(text) < 6 else 0.0
