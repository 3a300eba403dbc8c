"""A server that answers nonsense is refused by one error, and one that is busy is neither refused nor given up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from actors.sampler.client import EngineClient
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.engine import AttachedEngine
from actors.sampler.messages import Weights
from policy.errors import EngineError
from runtime.clock import RealClock
from runtime.messaging.message import Version

DRAWN = {"output_ids": [1], "meta_info": {"finish_reason": {"type": "length"}, "prompt_tokens": 1}}


class Server:
    """Says what it is told to, one answer after the other, the last one for ever."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes]]] = {}
        self.asked: list[str] = []
        self.url = ""

    def say(self, path: str, *answers: tuple[int, object]) -> None:
        """What `path` answers from now on: a status each, and bytes or what becomes JSON."""
        encoded = [(status, body if isinstance(body, bytes) else msgspec.json.encode(body)) for status, body in answers]
        self.answers[path] = encoded

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        answers = self.answers.get(request.path, [(200, b'{"success": true, "message": ""}')])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        return web.Response(status=status, body=body)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    async with TestServer(app) as listening:
        made.url = str(listening.make_url("/"))
        yield made


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[EngineClient]:
    made = EngineClient(server.url, aiohttp.TCPConnector())
    yield made
    await made.close()


async def test_what_is_no_answer_is_an_engines_error(server: Server, client: EngineClient) -> None:
    server.say("/model_info", (200, b"<html>"))
    with pytest.raises(EngineError, match="/model_info: the engine's answer is not as agreed"):
        await client.model_info()
    meta = {**DRAWN["meta_info"], "input_token_logprobs": [[None, 4, None], [-0.5, 5, None], [None, 6, None]]}
    server.say("/generate", (200, {**DRAWN, "meta_info": meta}))
    first, second = await client.score([4, 5, 6], 5.0)
    assert first == -0.5
    assert math.isnan(second), "a canary that is scored so is off by infinity"
    with pytest.raises(EngineError, match="not those of the prompt"):
        await client.score([4, 5], 5.0)


async def test_an_attached_server_that_is_busy_is_asked_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.sampler.engine._KNOCK_S", 0.01)
    monkeypatch.setattr("actors.sampler.engine._PROBE_PERIOD_S", 0.01)
    settings = SamplerSettings(samplers=SamplersConfig(), model="", attach=server.url)
    engine = AttachedEngine(settings, RealClock())
    server.say("/generate", (503, b"starting"), (429, b"full"), (200, DRAWN))
    await engine.up(Weights(version=Version(lineage=0, step=0), location=""))
    assert server.asked.count("/generate") == 3
    server.say("/model_info", (503, b""), (429, b""), (400, b"no"))
    assert "status 400: no" in await asyncio.wait_for(engine.lost(), 10)
    assert server.asked.count("/model_info") == 3
    await engine.down()
