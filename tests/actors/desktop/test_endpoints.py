"""A model behind a URL: what it is asked, how it fails, and that its failures are faults and no outcomes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from endpoint_stand_in import PAPER, StandIn, completion
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.answers import Prompt
from actors.desktop.config import SeatConfig
from actors.desktop.endpoints.answers import EndpointAnswers
from actors.desktop.endpoints.client import MAX_ANSWER_BYTES, Endpoint
from actors.desktop.endpoints.completion import NoCompletionError, completed
from actors.desktop.endpoints.config import EndpointConfig
from actors.errors import DesktopFault
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling
from apis.observation import Observation, from_guest
from apis.prompts import USUAL, Sight
from apis.prompts.text import Turn
from runtime.errors import ConfigError
from runtime.messaging.message import Version

PIN = Version(lineage=0, step=0)
WORK = Reservation(
    token=1, lane=Lane.EVAL, task="text_editor/held-out/1", group="", slot=0, seed=3, max_turns=9, pin=PIN,
    sampling=Sampling(temperature=0.5, max_new_tokens=77), phase=PhaseRef(phase=Phase.DEMO, index=0),
)  # fmt: skip
EVENT = 'data: {"choices": [{"delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'


def seen() -> Observation:
    window = {"id": 8, "class": "Pcmanfm", "title": "Rename", "active": True}
    return from_guest({"windows": [window], "elements": [], "cut": False}, (1920, 1080))


def config(server: StandIn | None, **more: Any) -> EndpointConfig:
    usual = {"url": server.url if server else "http://127.0.0.1:1/v1", "model": "m", "retries": 1, "timeout_s": 0.3}
    return EndpointConfig(**{**usual, "first_backoff_s": 0.0, **more})


async def answered(
    wanted: EndpointConfig, history: list[Turn] | None = None, key: str = "", sight: Sight = USUAL, picture: bytes = b""
) -> Any:
    endpoint = Endpoint(wanted, key)
    try:
        answers = EndpointAnswers(endpoint, WORK, SeatConfig(format="published", sight=sight))
        turns = history or []
        return await answers.answer(len(turns), Prompt(user="p", picture=picture), seen(), turns, None)
    finally:
        await endpoint.close()


async def test_an_evaluation_is_drawn_as_its_round_says() -> None:
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return completion(PAPER)

    async with StandIn(script) as server:
        turns = [Turn(answer="<think>far</think>x", line="Agent.wait()", result=f"done {n}") for n in range(3)]
        answer = await answered(config(server, top_p=0.9, stop=["</answer>"], key_env="K"), turns, key="sesame")
    sent = server.bodies[0]
    assert {name: sent[name] for name in ("model", "temperature", "top_p", "stop", "max_tokens")} == {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "stop": ["</answer>"], "max_tokens": 77,
    }  # fmt: skip
    assert [one["role"] for one in sent["messages"]] == ["system", *["user", "assistant"] * 3, "user"]
    assert "done 0" in sent["messages"][3]["content"]
    assert (answer.text, answer.cut, [span.version for span in answer.spans]) == (PAPER, "", [PIN])
    assert server.keys == ["Bearer sesame"]


async def test_only_the_newest_turn_has_the_picture() -> None:
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return completion("<answer>Agent.wait()</answer>")

    sight = Sight(observed="picture", unit="thousandths")
    async with StandIn(script) as server:
        turns = [Turn(answer="x", line="Agent.wait()", result="done")]
        await answered(config(server), turns, sight=sight, picture=b"\x89PNG")
        _, *earlier, now = server.bodies[0]["messages"]
    assert all(isinstance(one["content"], str) for one in earlier)
    text, image = now["content"]
    assert (text["type"], "A11y" in text["text"]) == ("text", False)
    assert image == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


async def _limited(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(status=429, headers={"Retry-After": "0"})


async def _broken(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(status=503)


async def _silent(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    await asyncio.sleep(30)
    raise AssertionError("never asked for so long")


async def _malformed(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(text='{"choices": []}')


async def _oversized(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(body=b" " * (MAX_ANSWER_BYTES + 2))


async def _refused(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(status=401, text="no such key sesame")


async def _cut(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(text=EVENT % ("Agent.exit(success=True)", "null"))


@pytest.mark.parametrize(
    ("script", "cause", "tries"),
    [
        (_limited, "endpoint_limited", 2),
        (_broken, "endpoint_broken", 2),
        (_silent, "endpoint_silent", 2),
        (_malformed, "endpoint_malformed", 2),
        (_cut, "endpoint_malformed", 2),
        (_oversized, "endpoint_oversized", 1),
        (_refused, "endpoint_refused", 1),
    ],
)
async def test_what_an_endpoint_fails_at_is_a_named_fault(script: Any, cause: str, tries: int) -> None:
    async with StandIn(script) as server:
        with pytest.raises(DesktopFault) as caught:
            await answered(config(server), key="sesame")
        assert (caught.value.cause, caught.value.culprit, len(server.bodies)) == (cause, "sampler", tries)
    assert "sesame" not in str(caught.value)


async def test_a_connection_that_is_cut_is_a_fault_too() -> None:
    async def script(_body: dict[str, Any], number: int) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Length": "9000"})
        request = server.requests[-1]
        await reply.prepare(request)
        await reply.write(b'{"choices": [')
        assert request.transport is not None
        request.transport.abort()
        return reply

    async with StandIn(script) as server:
        with pytest.raises(DesktopFault, match="connection failed"):
            await answered(config(server))


async def test_turns_that_the_model_has_no_room_for_are_left_out() -> None:
    async def script(body: dict[str, Any], _number: int) -> web.StreamResponse:
        if len(body["messages"]) > 4:
            return web.Response(status=400, text="This model's maximum context length is 9 tokens")
        return completion(PAPER)

    async with StandIn(script) as server:
        turns = [Turn(answer="x", line="Agent.wait()", result=f"done {n}") for n in range(5)]
        await answered(config(server), turns)
        assert [len(body["messages"]) for body in server.bodies] == [12, 6, 4]
        assert "Previous Action Result: None" in server.bodies[-1]["messages"][1]["content"]


def test_a_stream_is_read_as_one_answer() -> None:
    stream = ": hello\n\n" + EVENT % ("Agent.", "null") + EVENT % ("wait()", '"length"') + "data: [DONE]\n\n"
    found = completed(stream.encode(), 9)
    assert (found.text, found.cut) == ("Agent.wait()", "it was cut at 9 tokens")


@given(
    st.binary(max_size=200) | st.sampled_from([b"data: 1\n", b"data: {}\n", b'{"choices": [{}]}', b"[]", b"data:\xff"])
)
def test_any_body_is_an_answer_or_none(raw: bytes) -> None:
    with suppress(NoCompletionError):
        assert isinstance(completed(raw, 5).text, str)


def test_an_endpoint_is_checked_where_it_is_declared() -> None:
    for more, said in (
        ({"url": "ftp://x"}, "model.endpoint: url"),
        ({"url": "http://me:secret@host/v1"}, "key_env"),
        ({"stop": [""]}, "stop lists"),
        ({"first_backoff_s": 99.0}, "first_backoff_s"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            config(None, **more)
        assert "secret" not in str(caught.value)
