"""How an engine is asked, and what of its answers is taken."""

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
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import EngineGone, SamplerError
from actors.replay.messages import Sampling
from actors.sampler.client import (
    EngineClient,
    GenerateAnswer,
    Limits,
    generate_body,
    read_generated,
    refuse_retokenised,
)
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.engine import AttachedEngine
from actors.sampler.messages import Weights
from policy.errors import EngineError
from policy.pictures import picture_ids, style_of
from runtime.clock import RealClock
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from tests.policy.test_pictures import folder_of
from tests.policy.vision_model import png_of

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


async def test_an_attached_server_without_adapters_is_refused_where_each_version_is_one(server: Server) -> None:
    settings = SamplerSettings(
        samplers=SamplersConfig(), model="", attach=server.url, adapter_rank=32, adapter_targets=["q_proj"]
    )
    server.say("/generate", (200, DRAWN))
    for about in ({"enable_lora": None}, {"enable_lora": True, "max_lora_rank": 16}):
        server.say("/server_info", (200, about))
        engine = AttachedEngine(settings, RealClock())
        with pytest.raises(ConfigError, match=r"--max-lora-rank 32 --lora-target-modules q_proj"):
            await engine.up(Weights(version=Version(lineage=0, step=0), location=""))
        await engine.down()
    for status, about in ((200, {"enable_lora": True, "max_lora_rank": 32}), (404, {})):
        server.say("/server_info", (status, about))
        engine = AttachedEngine(settings, RealClock())
        await engine.up(Weights(version=Version(lineage=0, step=0), location=""))
        await engine.down()


def answer(ids=(4, 5, 6), logprobs=None, spans=(("0.1", 0, 2), ("0.2", 2, 3)), finish="stop") -> GenerateAnswer:
    pairs = logprobs if logprobs is not None else [(-0.5, token) for token in ids]
    meta = {
        "finish_reason": {"type": finish, "matched": 6},
        "weight_versions": [dict(zip(("version", "start", "end"), span, strict=True)) for span in spans],
        "cached_tokens": 2,
        "output_token_logprobs": [[logprob, token, None] for logprob, token in pairs],
        "something_new": 1,
    }
    return msgspec.convert({"text": "", "output_ids": list(ids), "meta_info": meta}, GenerateAnswer)


def test_a_sound_answer():
    found = read_generated(answer())
    assert found.output_ids == [4, 5, 6]
    assert [(str(span.version), span.start, span.end) for span in found.spans] == [("0.1", 0, 2), ("0.2", 2, 3)]
    assert (found.finish, found.cached_tokens, found.logprobs) == ("stop", 2, [-0.5] * 3)


def test_an_answer_to_another_prompt_is_refused():
    counted = msgspec.structs.replace(answer().meta_info, prompt_tokens=12)
    for meta in (answer().meta_info, counted):
        refuse_retokenised(msgspec.structs.replace(answer(), meta_info=meta), [1] * 12)
    with pytest.raises(SamplerError, match="engine_retokenised"):
        refuse_retokenised(msgspec.structs.replace(answer(), meta_info=counted), [1] * 11)


def test_pictures_and_their_pads_belong_together(tmp_path):
    style = style_of(folder_of(tmp_path))
    ids, png = [1, *picture_ids(56, 84, style), 2], png_of(56, 84)
    seeing, blind = Limits(vocabulary=20, context=200, style=style), Limits(vocabulary=20, context=200)
    asked = Sampling(temperature=1.0, max_new_tokens=4)
    assert seeing.refusal(ids, asked, [png]) is None
    assert [place.at for place in seeing.places(ids, [png])] == [2]
    for limits, pictures in ((seeing, []), (seeing, [png, png]), (seeing, [png_of(56, 112)]), (blind, [png])):
        assert "picture" in str(limits.refusal(ids, asked, pictures))
    assert blind.refusal([1, 2], asked) is None


def test_a_request_leaves_no_preference_to_the_server():
    body = generate_body("r", [1], Sampling(temperature=0.5, max_new_tokens=7), [3], pin=None, cache=None)
    neutral = {"top_p": 1.0, "top_k": -1, "min_p": 0.0}
    penalties = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
    asked = {"temperature": 0.5, "max_new_tokens": 7, "stop_token_ids": [3]}
    assert body["sampling_params"] == neutral | penalties | asked


@pytest.mark.parametrize(
    "broken",
    [
        {"logprobs": [(-0.5, 4), (-0.5, 5)]},
        {"logprobs": [(-0.5, 4), (-0.5, 5), (-0.5, 7)]},
        {"logprobs": [(0.5, 4), (-0.5, 5), (-0.5, 6)]},
        {"spans": [("0.1", 0, 2)]},
        {"spans": [("0.1", 0, 2), ("0.2", 1, 3)]},
        {"spans": [("0.1", 0, 0), ("0.2", 0, 3)]},
        {"spans": [("default", 0, 3)]},
        {"ids": (), "spans": ()},
    ],
)
def test_contradictions_are_refused(broken):
    with pytest.raises(SamplerError) as caught:
        read_generated(answer(**broken))
    assert not isinstance(caught.value, EngineGone)


@given(
    ids=st.lists(st.integers(-3, 12), max_size=12),
    tokens=st.integers(-1, 12),
    temperature=st.sampled_from([0.0, 1.0, -1.0, float("inf"), float("nan")]),
)
def test_what_an_engine_could_not_take_is_refused(ids, tokens, temperature):
    sampling = Sampling(temperature=temperature, max_new_tokens=tokens)
    sound = bool(ids) and all(0 <= token < 10 for token in ids) and tokens > 0 and len(ids) + tokens <= 16
    sound = sound and temperature in (0.0, 1.0)
    assert (Limits(vocabulary=10, context=16).refusal(ids, sampling) is None) == sound
