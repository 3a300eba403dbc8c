"""HTTP: one bounded request, and who may ask a server of this program.

Invariant: nothing is answered to a request that lacks the server's token. A connection that has not shown it is closed
after `SILENT_S`, or earlier where there are more of them than `MOST_SILENT`: the oldest makes room for the next. At a
loopback address the request has to name that address, so no name that a stranger made to point here is served. No page
of another origin is answered, and what changes something is JSON.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import socket
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from runtime.errors import ComputerRLError, ConfigError
from runtime.program import TOKEN_ENV
from runtime.settings import is_loopback
from runtime.supervision import in_the_way


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
    headers = {"Accept-Encoding": "identity"} | ({} if body is None else {"Content-Type": "application/json"})
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


LOOPBACK = "127.0.0.1"
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SILENT_S = 75.0  # an idle connection is closed then; clients give one up earlier
MOST_SILENT = 384  # connections without the token; many of one client may come at once, just before their requests
MOST_OF_ADDRESS = 256  # of them
MOST_HEADERS = 128  # of a request; aiohttp's own bound as well
MOST_BODY = 1 << 20  # bytes of a request to an ASGI application
_BACKLOG = 128
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")


class Turned(NamedTuple):
    """What a request gets in place of an answer: a line, or with status 303 the path to go on to with the cookie."""

    status: int
    line: str


def server_token() -> str:
    """The token that COMPUTERRL_TOKEN gives, else a fresh one. Raises ConfigError where it gives none of use."""
    given = os.environ.get(TOKEN_ENV, "")
    if given and not _TOKEN.fullmatch(given):
        raise ConfigError(f"{TOKEN_ENV}: a token has 16 to 256 letters, digits, - and _")
    return given or secrets.token_urlsafe(24)


def bearer(token: str) -> dict[str, str]:
    """The header by which a program shows `token`; none for ""."""
    return {"Authorization": f"Bearer {token}"} if token else {}


class _Arriving(asyncio.Protocol):
    """A connection that counts before the server's own protocol takes it."""

    def __init__(self, came: Callable[[Any], None], protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self._came, self._protocol = came, protocol

    def connection_made(self, transport: Any) -> None:
        """Hand `transport` on: asyncio's, or one of another loop that does the same."""
        self._came(transport)
        protocol = self._protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class Guard:
    """The rules of one server, which listens at `host` (a Unix socket counts as loopback).

    `pages`: browsers are served too. The address with the token gives them a cookie.
    """

    def __init__(self, host: str = LOOPBACK, *, token: str = "", pages: bool = False) -> None:
        self.host, self.token = host, token or server_token()
        self._pages = pages
        self._silent: dict[tuple[str, int], tuple[Any, asyncio.TimerHandle]] = {}  # transports without the token
        # Browsers send a cookie to all ports of a host: servers with tokens of their own keep them apart by name.
        self.cookie = f"computerrl-{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"

    def address(self, port: int, path: str = "/") -> str:
        """The printed address, with the token as browsers or as programs take it."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        if self._pages:
            return f"http://{shown}:{port}{path}?token={self.token}"
        return f"http://token:{self.token}@{shown}:{port}"

    def turned(self, method: str, target: str, headers: Mapping[str, str]) -> Turned | None:
        """Why a request is not answered, None for one that is. Names of `headers` are in small letters. Pure."""
        shown = any(self._fits(given) for given in _tokens(headers.get("authorization", "")))
        host = headers.get("host", "")
        if not self._named(host, shown=shown):
            return Turned(403, "ask this server by its address")
        if self._foreign(headers, host):
            return Turned(403, "no page of another site is answered")
        if shown:
            return self._unchanging(method, headers)
        if not self._pages:
            return Turned(401, "this server wants its token: Authorization: Bearer TOKEN")
        path, _, query = target.partition("?")
        asked = parse_qsl(query, keep_blank_values=True)
        if method == "GET" and any(name == "token" and self._fits(value) for name, value in asked):
            rest = urlencode([(name, value) for name, value in asked if name != "token"])
            return Turned(303, f"/{path.lstrip('/')}" + (f"?{rest}" if rest else ""))
        if any(self._fits(value) for value in _cookies(headers.get("cookie", ""), self.cookie)):
            return self._unchanging(method, headers)
        return Turned(401, "open the address that was printed, with its token")

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="surrogateescape"), self.token.encode())

    def _named(self, host: str, *, shown: bool) -> bool:
        """Whether the Host header is a name that no stranger can have made to point here."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if is_loopback(name):
            return True
        if is_loopback(self.host):
            return False
        # Elsewhere a server may have any name. A program that knows the token is no page that was led here.
        return shown or name in (self.host.lower(), os.uname().nodename.lower()) or _is_ip(name)

    @staticmethod
    def _foreign(headers: Mapping[str, str], host: str) -> bool:
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return True
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
        return site not in ("none", "same-origin") and mode != "navigate"

    @staticmethod
    def _unchanging(method: str, headers: Mapping[str, str]) -> Turned | None:
        """None unless the request may change something and is not one that only a program or the own page sends."""
        if method in SAFE:
            return None
        empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        return None if empty or kind == "application/json" else Turned(415, "a request's body is application/json")

    # --- for the two kinds of servers ------------------------------------------------------------------------------

    def counted(self, protocol: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """The factory `protocol` of a server, whose connections count from the moment they are accepted."""
        return lambda: _Arriving(self._came, protocol)

    def _came(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        if not isinstance(peer, tuple):  # the file of a Unix socket has an owner
            return
        self._silent = {at: each for at, each in self._silent.items() if not each[0].is_closing()}
        waiting = {at: at[0] for at in self._silent}
        if (oldest := in_the_way(waiting, peer[0], most=MOST_SILENT, of_address=MOST_OF_ADDRESS)) is not None:
            self._silent[oldest][0].abort()
            self._proved(oldest)
        end = asyncio.get_running_loop().call_later(SILENT_S, transport.abort)
        self._silent[peer[:2]] = (transport, end)

    def _proved(self, peer: Any) -> None:
        """The connection of `peer` has shown the token, and counts no more."""
        if isinstance(peer, tuple) and (counted := self._silent.pop(peer[:2], None)):
            counted[1].cancel()

    def protect(self, app: web.Application) -> None:
        """Set this guard before all of an aiohttp application."""
        app.middlewares.insert(0, self._middleware)
        app.on_response_prepare.append(_add_headers)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        turned = self.turned(request.method, request.raw_path, joined_headers(request.headers.items()))
        if turned is None:
            self._proved(request.get_extra_info("peername"))
            return await handler(request)
        if turned.status != 303:
            return web.Response(status=turned.status, text=f"{turned.line}\n")
        answer = web.Response(status=303, headers={"Location": turned.line})
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict", path="/")
        return answer

    def asgi(self, app: Any) -> Any:
        """`app`, an ASGI application, behind this guard; requests have bounds that aiohttp's have by themselves."""

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            turned = None
            if scope["type"] != "lifespan":
                pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
                headers = joined_headers(pairs)
                turned = self.turned(scope.get("method", "GET"), scope["path"], headers)
                turned = turned or _too_much(len(scope["headers"]), headers)
                if turned is None:
                    self._proved(scope.get("client"))
            if turned is None:
                await app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await send({"type": "http.response.start", "status": turned.status, "headers": []})
                await send({"type": "http.response.body", "body": f"{turned.line}\n".encode()})

        return guarded


def _too_much(count: int, headers: Mapping[str, str]) -> Turned | None:
    """The refusal of a request with `count` headers, or whose body has no length or is too long."""
    if count > MOST_HEADERS:
        return Turned(431, f"a request has at most {MOST_HEADERS} headers")
    size = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not size.isdecimal() or len(size) > 9 or int(size) > MOST_BODY:
        return Turned(413, f"a request says the length of its body, at most {MOST_BODY} bytes")
    return None


@contextlib.asynccontextmanager
async def served(
    app: web.Application,
    guard: Guard,
    place: int | socket.socket,
    *,
    flag: str,
    end_s: float,
    cancels: bool = False,
) -> AsyncIterator[int]:
    """Serve an aiohttp application behind `guard`; yields the port, 0 for a Unix socket.

    `place` is a port of the guard's host, 0 for any free one, or a socket that listens. `end_s` is the time for answers
    under way at the end. `cancels`: an answer ends once its client is gone. Raises ConfigError, which names `flag`,
    where the address is taken.
    """
    guard.protect(app)
    logging.getLogger("aiohttp.server").addFilter(_of_ours)
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=end_s, keepalive_timeout=SILENT_S, handler_cancellation=cancels
    )
    await runner.setup()
    assert runner.server is not None
    loop, made = asyncio.get_running_loop(), guard.counted(runner.server)
    try:
        try:
            at: Any = {"sock": place} if isinstance(place, socket.socket) else {"host": guard.host, "port": place}
            listening = await loop.create_server(made, backlog=_BACKLOG, **at)
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConfigError(f"{flag}: can't be served: {cause}; port 0 is any free one") from None
        try:
            bound = listening.sockets[0].getsockname()
            yield bound[1] if isinstance(bound, tuple) else 0
        finally:
            listening.close()
    finally:
        await runner.cleanup()


def _of_ours(record: logging.LogRecord) -> bool:
    """Whether a line of aiohttp's log is about anything but bytes of a client that are no request."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def joined_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by their names in small letters; those that come twice are joined, and so fit nothing."""
    joined_by_name: dict[str, str] = {}
    for name, value in pairs:
        small = name.lower()
        joined_by_name[small] = f"{joined_by_name[small]}, {value}" if small in joined_by_name else value
    return joined_by_name


async def _add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)


def _tokens(authorization: str) -> list[str]:
    """What an Authorization header shows: a bearer's token, or the password of an address `http://token:TOKEN@HOST`."""
    kind, _, given = authorization.partition(" ")
    if kind.lower() == "bearer":
        return [given.strip()]
    if kind.lower() != "basic":
        return []
    with contextlib.suppress(binascii.Error, UnicodeDecodeError):
        return [base64.b64decode(given, validate=True).decode().partition(":")[2]]
    return []


def _cookies(header: str, name: str) -> list[str]:
    pairs = (pair.strip().partition("=") for pair in re.split("[;,]", header))
    return [value.strip('"') for key, _, value in pairs if key == name]


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
