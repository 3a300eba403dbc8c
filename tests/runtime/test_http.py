"""One bounded request, and who may ask a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import ConfigError
from runtime.http import (
    MOST_BODY,
    MOST_OF_ADDRESS,
    TOKEN_ENV,
    AnswerTooLongError,
    Guard,
    NoAnswerError,
    bearer,
    joined,
    request_json,
    served,
    server_token,
)
from runtime.program import passed


class Pieces:
    """Gives one piece after the other, and counts them."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.given = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            self.given += 1
            yield piece


@given(st.lists(st.binary(max_size=5), max_size=9), st.integers(0, 30))
async def test_all_or_nothing(pieces: list[bytes], most: int) -> None:
    source = Pieces(pieces)
    whole = b"".join(pieces)
    assert await joined(source, most) == (whole if len(whole) <= most else None)
    assert sum(map(len, pieces[: source.given - 1])) <= most


async def answer(request: web.Request) -> web.StreamResponse:
    match request.path:
        case "/silent":
            await asyncio.sleep(30)
        case "/long":
            return web.Response(body=b"x" * 1001)
        case "/moved":
            raise web.HTTPFound("/echo")
    return web.Response(status=418, body=await request.read(), headers={"Packed": request.headers["Accept-Encoding"]})


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    app = web.Application()
    app.router.add_route("*", "/{path}", answer)
    async with TestServer(app) as running:
        yield running


async def asked(server: TestServer, path: str, timeout_s: float = 10.0) -> tuple[int, str, bytes]:
    async with aiohttp.ClientSession() as session:
        url = str(server.make_url(path))
        got = await request_json(session, "POST", url, b"{}", timeout_s=timeout_s, most=1000)
        return got.status, got.headers.get("Packed", ""), got.body


async def test_an_answer_is_whole_and_unpacked_and_no_redirect_is_followed(server: TestServer) -> None:
    assert await asked(server, "/echo") == (418, "identity", b"{}")
    assert (await asked(server, "/moved"))[0] == 302


async def test_what_has_no_end_in_time_or_in_size_is_given_up(server: TestServer) -> None:
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.1 s"):
        await asked(server, "/silent", 0.1)
    with pytest.raises(AnswerTooLongError, match="more than 1000 bytes"):
        await asked(server, "/long")


async def test_a_connection_that_fails_is_told_apart_from_its_detail(server: TestServer) -> None:
    url = str(server.make_url("/echo"))
    await server.close()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(NoAnswerError, match="connection failed") as failed:
            await request_json(session, "POST", url, b"{}", timeout_s=10.0, most=1000)
    assert failed.value.detail
    assert failed.value.detail not in str(failed.value)


TOKEN = "a-token-of-the-tests"
HERE = {"host": "127.0.0.1:8600"}
SHOWN = HERE | {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json; charset=utf-8", "content-length": "2"}


def status_of(
    headers: dict[str, str], target: str = "/", method: str = "GET", *, host: str = "127.0.0.1", pages: bool = True
) -> int:
    """The status of what a request gets from the guard; 200 for an answer of the server's own."""
    turned = Guard(host, token=TOKEN, pages=pages).turned(method, target, headers)
    return 200 if turned is None else turned.status


COOKIE = {"cookie": f"other=1; {Guard(token=TOKEN).cookie}={TOKEN}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (SHOWN, 200),
        (HERE | COOKIE, 200),
        (SHOWN | {"host": "localhost:9"}, 200),
        (SHOWN | {"host": "[::1]:9"}, 200),
        (HERE | {"authorization": "Basic dG9rZW46YS10b2tlbi1vZi10aGUtdGVzdHM="}, 200),
        (HERE, 401),
        (HERE | {"authorization": f"Bearer {TOKEN}x"}, 401),
        (HERE | {"authorization": "Bearer \udcff"}, 401),
        (HERE | {"authorization": "Basic ????"}, 401),
        (HERE | {"authorization": f"Bearer {TOKEN}, Bearer {TOKEN}"}, 401),
        (HERE | {"cookie": f"computerrl={TOKEN}"}, 401),
        (HERE | {"cookie": COOKIE["cookie"][:-1]}, 401),
        ({"authorization": f"Bearer {TOKEN}"}, 403),
        (SHOWN | {"host": "rebound.example:8600"}, 403),
        (SHOWN | {"host": "127.0.0.1.example"}, 403),
        (SHOWN | {"host": "[::1"}, 403),
        (SHOWN | {"origin": "http://127.0.0.1:8600"}, 200),
        (SHOWN | {"origin": "http://127.0.0.1:8601"}, 403),
        (SHOWN | {"origin": "https://evil.example"}, 403),
        (SHOWN | {"origin": "null"}, 403),
        (HERE | COOKIE | {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, 403),
        (HERE | COOKIE | {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        (HERE | COOKIE | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
    ],
)
def test_who_is_answered(headers: dict[str, str], status: int) -> None:
    assert status_of(headers) == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_what_changes_something_is_json(method: str) -> None:
    for shown in (SHOWN, HERE | COOKIE):
        assert status_of(shown | JSON, method=method) == 200
        assert status_of(shown, method=method) == 200, "no body"
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            assert status_of(shown | {"content-type": kind, "content-length": "2"}, method=method) == 415
        assert status_of(shown | {"transfer-encoding": "chunked"}, method=method) == 415
        assert status_of(shown | JSON | {"origin": "https://evil.example"}, method=method) == 403
    assert status_of(HERE | JSON, f"/?token={TOKEN}", method) == 401


def test_the_address_with_the_token_gives_browsers_a_cookie_and_programs_nothing() -> None:
    guard = Guard(token=TOKEN, pages=True)
    assert guard.turned("GET", f"/runs/one?level=error&token={TOKEN}", HERE) == (303, "/runs/one?level=error")
    assert guard.turned("GET", f"//evil.example/?token={TOKEN}", HERE) == (303, "/evil.example/")
    assert status_of(HERE, "/?token=another-of-the-tests") == 401
    assert status_of(HERE, f"/?token={TOKEN}", pages=False) == 401
    assert status_of(HERE | COOKIE, pages=False) == 401
    assert guard.address(8600, "/runs/one") == f"http://127.0.0.1:8600/runs/one?token={TOKEN}"
    assert Guard("::1", token=TOKEN).address(1) == f"http://token:{TOKEN}@[::1]:1"
    assert Guard(token=f"{TOKEN}2").cookie != guard.cookie, "two servers of one machine share its cookies"


def test_off_loopback_a_browser_names_this_machine_and_a_program_any_name() -> None:
    name = os.uname().nodename
    for host in ("192.0.2.7:8600", name, "gpu-box:1", "localhost"):
        assert status_of(COOKIE | {"host": host}, host="gpu-box") == 200
    assert status_of(COOKIE | {"host": "rebound.example"}, host="0.0.0.0") == 403
    assert status_of(SHOWN | {"host": "engine-0.svc"}, host="0.0.0.0") == 200


@given(st.dictionaries(st.sampled_from(["host", "cookie", "authorization", "origin", "sec-fetch-site"]), st.text()))
def test_no_header_breaks_the_guard_or_opens_it(headers: dict[str, str]) -> None:
    assert status_of(headers) in (401, 403)


def test_a_token_comes_by_the_environment_and_reaches_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    assert Guard().token != Guard().token
    monkeypatch.setenv(TOKEN_ENV, TOKEN)
    assert Guard().token == TOKEN
    assert passed({TOKEN_ENV: TOKEN, "COMPUTERRL_X": "1"}) == {"COMPUTERRL_X": "1"}
    for bad in ("short", "a token with spaces", "x" * 257):
        monkeypatch.setenv(TOKEN_ENV, bad)
        with pytest.raises(ConfigError, match=f"^{TOKEN_ENV}: a token has 16 to 256"):
            server_token()


async def test_a_guarded_application_answers_and_refuses_and_marks_what_it_sends() -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Cache-Control": "private"})
        await answer.prepare(request)
        await answer.write(b"begun")
        return answer

    async def change(_: web.Request) -> web.Response:
        return web.Response(text="done")

    app = web.Application()
    app.add_routes([web.get("/stream", stream), web.post("/", change)])
    guard = Guard(token=TOKEN, pages=True)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        served(app, guard, 0, flag="--port", end_s=0.1) as port,
        aiohttp.ClientSession(cookie_jar=jar) as browser,
        aiohttp.ClientSession() as stranger,
    ):
        at = f"http://127.0.0.1:{port}"
        async with stranger.get(f"{at}/nothing") as answer:
            assert answer.status == 401, "nor does a stranger learn which paths there are"
        async with browser.get(f"{at}/stream?token={TOKEN}", allow_redirects=False) as answer:
            assert answer.status == 303
            said = answer.headers["Set-Cookie"]
            assert "HttpOnly" in said
            assert "SameSite=Strict" in said
        async with browser.get(guard.address(port, "/stream")) as answer:
            assert await answer.text() == "begun"
            assert answer.headers["Cache-Control"] == "private"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with stranger.post(at, json={}, headers=bearer(TOKEN)) as answer:
            assert await answer.text() == "done"
        async with browser.post(at, data={"a": "b"}) as answer:
            assert answer.status == 415
        with pytest.raises(ConfigError, match=f"^--port {port}: can't be served: Address already in use"):
            async with served(web.Application(), guard, port, flag=f"--port {port}", end_s=0.1):
                pass


async def asked_asgi(
    headers: Iterable[tuple[str, str]], kind: str, **scope: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """What reached a guarded ASGI application of a start and a request, and what was sent."""
    reached, sent = list[str](), list[dict[str, Any]]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    async def nothing() -> dict[str, Any]:
        return {"type": "http.request"}

    guarded = Guard(token=TOKEN).asgi(app)
    await guarded({"type": "lifespan"}, None, send)
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await guarded({"type": kind, "headers": pairs, **scope}, nothing, send)
    return reached, sent


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("shown", [True, False])
async def test_an_asgi_application_is_guarded_and_may_begin_and_end(kind: str, shown: bool) -> None:
    reached, sent = await asked_asgi((SHOWN if shown else HERE).items(), kind, path="/ws")
    assert reached == ["lifespan", *[kind] * shown]
    if not shown:
        assert sent[0].get("status") == 401 or sent[0]["type"] == "websocket.close"


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: "])
async def test_a_connection_without_a_whole_request_is_closed(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.http.SILENT_S", 0.2)
    async with served(web.Application(), Guard(), 0, flag="--port", end_s=1.0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


NO_REQUESTS = {
    "no HTTP": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "a header that comes twice": b"POST / HTTP/1.1\r\nContent-Type: a/b\r\nContent-Type: a/b\r\n\r\n",
    "no length": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000,
}


@pytest.mark.parametrize("sent", NO_REQUESTS.values(), ids=NO_REQUESTS)
async def test_bytes_that_are_no_request_fill_no_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served(web.Application(), Guard(), 0, flag="--port", end_s=1.0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await asyncio.wait_for(reader.read(), 20)).startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
        writer.close()
    assert not caplog.records


@pytest.mark.parametrize("count", [64, 400])
@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
async def test_connections_without_the_token_shut_no_client_out(count: int, begun: bytes) -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app, guard = web.Application(), Guard(token=TOKEN)
    app.router.add_get("/", hello)
    async with (
        served(app, guard, 0, flag="--port", end_s=1.0) as port,
        aiohttp.ClientSession(headers=bearer(TOKEN)) as client,
    ):
        at = f"http://127.0.0.1:{port}"
        async with client.get(at) as answer:  # the connection stays, and has shown the token
            assert await answer.text() == "hello"
        before = len(os.listdir("/proc/self/fd"))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
        for _, writer in silent:
            writer.write(begun)
        for session in (client, aiohttp.ClientSession(headers=bearer(TOKEN))):
            async with session, session.get(at) as answer:
                assert await answer.text() == "hello"
        assert len(os.listdir("/proc/self/fd")) - before - count <= MOST_OF_ADDRESS + 1
        if count > MOST_OF_ADDRESS and not begun:
            assert await asyncio.wait_for(silent[0][0].read(), 60) == b"", "the oldest goes first"
        for _, writer in silent:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ([("x", "y")] * 10_000, 431),
        ([("content-length", str(MOST_BODY + 1))], 413),
        ([("content-length", "9" * 5000)], 413),
        ([("content-length", "-1")], 413),
        ([("transfer-encoding", "chunked")], 413),
        ([("content-length", str(MOST_BODY))], 200),
    ],
)
async def test_an_asgi_application_gets_requests_within_bounds(more: list[tuple[str, str]], status: int) -> None:
    headers = [*SHOWN.items(), ("content-type", "application/json"), *more]
    _, sent = await asked_asgi(headers, "http", method="POST", path="/")
    assert sent[0]["status"] == status
