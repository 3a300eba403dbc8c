"""Asks a model behind a server that speaks the OpenAI chat completions protocol.

Invariant: every try has a deadline and every answer a size limit. No more requests are open than the member allows. The
key goes into one header and nowhere else. A request that fails for good raises `EndpointDown` with its cause and
without the key.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from actors.desktop.demonstrators.config import EndpointMember
from runtime.backoff import Backoff
from runtime.errors import ConfigError
from runtime.http import AnswerTooLongError, NoAnswerError, request_json

MAX_ANSWER_BYTES = 1 << 20
MAX_SAID = 200  # characters of a refusal's body that an error repeats
# The server may answer later; 520 to 529 are what proxies and crowded services say of it.
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, *range(520, 530)})
CUT = {
    "length": "it was cut at {} tokens",
    "max_tokens": "it was cut at {} tokens",
    "model_length": "it was cut at the model's own length",
    "content_filter": "the endpoint withheld the rest",
}  # by finish_reason, why an answer is not whole


class EndpointDown(Exception):  # noqa: N818 - becomes a fault of the infrastructure where the episode is known
    """No answer within the tries allowed, or one that no later try will better."""


class Completed(msgspec.Struct, frozen=True):
    """An answer; `cut` says why it is not whole, where it is not."""

    text: str
    cut: str = ""


class _Part(msgspec.Struct, frozen=True):
    type: str = "text"
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]


class _AgainError(Exception):
    """This try failed; the next may not."""

    def __init__(self, cause: str, after_s: float = 0.0) -> None:
        super().__init__(cause)
        self.after_s = after_s


def key_of(member: EndpointMember, environment: Mapping[str, str]) -> str:
    """The member's key, "" when it needs none. Raises ConfigError naming the variable that is not set."""
    if not member.key_env:
        return ""
    key = environment.get(member.key_env, "")
    if not key:
        raise ConfigError(f"demos.demonstrators: {member.name}: key_env names {member.key_env}, which is not set")
    return key


def backoff_s(member: EndpointMember, tried: int, draw: float) -> float:
    """Seconds to wait after `tried` failures: doubling up to the longest, times 0.5 to 1 by `draw` (0 to 1)."""
    backoff = Backoff(first_s=member.first_backoff_s, longest_s=member.longest_backoff_s)
    return backoff.delay_s(tried) * (0.5 + 0.5 * draw)


class Endpoint:
    """One member of the pool. Usable from any task of one event loop."""

    def __init__(self, member: EndpointMember, key: str) -> None:
        self._member = member
        self._key = key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session = aiohttp.ClientSession(headers=headers, auto_decompress=False)
        self._free = asyncio.Semaphore(member.concurrent)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def complete(self, messages: Sequence[Mapping[str, str]], seed: int) -> Completed:
        """The model's answer to chat `messages`; `seed` is passed on and draws the back-off. Raises EndpointDown."""
        member = self._member
        body = msgspec.json.encode(
            {
                "model": member.model,
                "messages": list(messages),
                "temperature": member.temperature,
                member.length_key: member.max_tokens,
                "seed": seed % 2**31,
            }
        )
        jitter = random.Random(seed)  # noqa: S311 - spreads retries, nothing secret
        for tried in range(1, member.retries + 2):
            try:
                async with self._free:
                    return await self._try(body)
            except _AgainError as error:
                if tried > member.retries:
                    raise EndpointDown(f"{member.name}: {error}, {tried} tries") from error
                await asyncio.sleep(
                    min(member.longest_backoff_s, max(error.after_s, backoff_s(member, tried, jitter.random())))
                )
        raise AssertionError("the loop returns or raises")

    async def _try(self, body: bytes) -> Completed:
        member = self._member
        url = member.url.rstrip("/") + "/chat/completions"
        try:
            reply = await request_json(
                self._session, "POST", url, body, timeout_s=member.timeout_s, most=MAX_ANSWER_BYTES
            )
        except AnswerTooLongError as error:
            raise EndpointDown(str(error)) from error
        except NoAnswerError as error:
            raise _AgainError(str(error)) from error  # without its detail, which may hold what was sent
        if reply.status in AGAIN:
            raise _AgainError(f"status {reply.status}", _retry_after_s(reply.headers))
        if reply.status != 200:
            text = reply.body.decode("utf-8", "replace")  # some servers repeat the key that they refuse
            said = ascii((text.replace(self._key, "***") if self._key else text)[:MAX_SAID])
            raise EndpointDown(f"{member.name}: status {reply.status}: {said}")
        return _completed(reply.body, member)


def _retry_after_s(headers: Mapping[str, Any]) -> float:
    text = str(headers.get("Retry-After", ""))
    return float(text) if text.isdecimal() and len(text) < 6 else 0.0


def _completed(raw: bytes, member: EndpointMember) -> Completed:
    try:
        found = msgspec.json.decode(raw, type=_Completion)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _AgainError(f"no chat completion: {ascii(str(error))[:MAX_SAID]}") from error
    if not found.choices:
        raise _AgainError("no choice in the completion")
    choice = found.choices[0]
    content = choice.message.content or ""
    if not isinstance(content, str):  # in parts; a part that thinks has another type
        content = "".join(part.text for part in content if part.type in ("text", "output_text"))
    return Completed(content, CUT.get(choice.finish_reason or "", "").format(member.max_tokens))
