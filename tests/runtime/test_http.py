"""A request ends by its deadline, and its answer is joined up to a bound, beyond which no piece is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from runtime.http import AnswerTooLongError, NoAnswerError, joined, request_json


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


async def test_an_answer_is_whole_and_unpacked_whatever_its_status(server: TestServer) -> None:
    assert await asked(server, "/echo") == (418, "identity", b"{}")


async def test_no_redirect_is_followed(server: TestServer) -> None:
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
