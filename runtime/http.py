"""One request over HTTP, with a deadline and a bound on its answer.

Invariant: a request ends by its deadline, and no more of an answer than the bound and one piece is ever held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Mapping
from typing import NamedTuple

import aiohttp

from runtime.errors import ComputerRLError


class NoAnswerError(ComputerRLError):
    """No answer came whole: in time, or at all. `detail` is a library's text, which may hold what was sent."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(cause)
        self.detail = detail


class AnswerTooLongError(ComputerRLError):
    """An answer passed its bound; the rest was not asked for."""


class HttpResponse(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def request_json(
    session: aiohttp.ClientSession, method: str, url: str, body: bytes | None, *, timeout_s: float, most: int
) -> HttpResponse:
    """The answer to a request of JSON, at most `most` bytes; redirects are not followed.

    Raises NoAnswerError after `timeout_s` seconds and where the connection fails, and AnswerTooLongError.
    """
    # An answer that is packed could be larger than it seems.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    no_limit = aiohttp.ClientTimeout(total=None)
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.request(method, url, data=body, headers=headers, allow_redirects=False, timeout=no_limit) as reply,
        ):
            raw = await joined(reply.content.iter_any(), most)
    except TimeoutError as error:
        raise NoAnswerError(f"no answer within {timeout_s:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswerError(f"connection failed ({type(error).__name__})", str(error)) from error
    if raw is None:
        raise AnswerTooLongError(f"an answer of more than {most} bytes")
    return HttpResponse(reply.status, reply.headers, raw)


async def joined(pieces: AsyncIterable[bytes], most: int) -> bytes | None:
    """All pieces as one; None once they are more than `most` bytes, and then the rest is not asked for."""
    parts: list[bytes] = []
    size = 0
    async for part in pieces:
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)
