"""A model behind a URL: what it is asked, how it fails, and that its failures are faults and no outcomes."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import httpx2
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.answers import EndpointAnswers, Prompt
from actors.desktop.config import EndpointConfig, SeatConfig
from actors.desktop.endpoint import (
    MAX_ANSWER_BYTES,
    Completed,
    Endpoint,
    GivenUpError,
    NoCompletionError,
    completed,
    retry_after_s,
)
from actors.errors import DesktopFault
from actors.replay.messages import Lane, Sampling
from apis.observation import Observation, from_guest
from apis.prompts import USUAL, Sight
from apis.prompts.text import Turn
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from tests.actors.desktop.endpoint_stand_in import PAPER, StandIn, always, completion
from tests.actors.desktop.offices import reservation

PIN = Version(lineage=0, step=0)
SAMPLING = Sampling(temperature=0.5, max_new_tokens=77)
WORK = reservation("text_editor/held-out/1", lane=Lane.EVAL, seed=3, max_turns=9, pin=PIN, sampling=SAMPLING)
EVENT = 'data: {"choices": [{"delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'


def seen() -> Observation:
    window = {"id": 8, "class": "Pcmanfm", "title": "Rename", "active": True}
    return from_guest({"windows": [window], "elements": [], "cut": False}, (1920, 1080))


def config(server: StandIn | None, **more: Any) -> EndpointConfig:
    usual = {"url": server.url if server else "http://127.0.0.1:1/v1", "model": "m", "retries": 1, "timeout_s": 30.0}
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
    async with StandIn(always(lambda: completion(PAPER))) as server:
        turns = [Turn(answer="<think>far</think>x", line="Agent.wait()", result=f"done {n}") for n in range(3)]
        answer = await answered(config(server, top_p=0.9, stop=["</answer>"], key_env="K"), turns, key="sesame")
        await answered(config(server, length_key="max_completion_tokens"))
    sent, other = server.bodies
    assert (other["max_completion_tokens"], "max_tokens" in other) == (77, False)
    assert {name: sent[name] for name in ("model", "temperature", "top_p", "stop", "max_tokens")} == {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "stop": ["</answer>"], "max_tokens": 77,
    }  # fmt: skip
    assert [one["role"] for one in sent["messages"]] == ["system", *["user", "assistant"] * 3, "user"]
    assert "done 0" in sent["messages"][3]["content"]
    assert (answer.text, answer.cut, [span.version for span in answer.spans]) == (PAPER, "", [PIN])
    assert server.keys == ["Bearer sesame", ""]


async def test_only_the_newest_turn_has_the_picture() -> None:
    sight = Sight(observed="picture", unit="thousandths")
    async with StandIn(always(lambda: completion("<answer>Agent.wait()</answer>"))) as server:
        turns = [Turn(answer="x", line="Agent.wait()", result="done")]
        await answered(config(server), turns, sight=sight, picture=b"\x89PNG")
        _, *earlier, now = server.bodies[0]["messages"]
    assert all(isinstance(one["content"], str) for one in earlier)
    image, text = now["content"]
    assert (text["type"], "A11y" in text["text"]) == ("text", False)
    assert image == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


async def _silent(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    await asyncio.sleep(30)
    raise AssertionError("never asked for so long")


@pytest.mark.parametrize(
    ("script", "cause", "tries"),
    [
        (always(lambda: web.Response(status=429, headers={"Retry-After": "0"})), "endpoint_limited", 2),
        (always(lambda: web.Response(status=503)), "endpoint_broken", 2),
        (always(lambda: web.Response(status=529)), "endpoint_broken", 2),
        (_silent, "endpoint_silent", 2),
        (always(lambda: web.Response(text='{"choices": []}')), "endpoint_malformed", 2),
        (always(lambda: web.Response(text=EVENT % ("Agent.exit(success=True)", "null"))), "endpoint_malformed", 2),
        (always(lambda: web.Response(body=b" " * (MAX_ANSWER_BYTES + 2))), "endpoint_oversized", 1),
        (always(lambda: web.Response(status=401, text="no\x1b[2J such key sesame")), "endpoint_refused", 1),
        (always(lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})), "endpoint_refused", 1),
    ],
)
async def test_what_an_endpoint_fails_at_is_a_named_fault(script: Any, cause: str, tries: int) -> None:
    async with StandIn(script) as server:
        limit_s = 0.3 if script is _silent else 30.0
        with pytest.raises(DesktopFault) as caught:
            await answered(config(server, timeout_s=limit_s), key="sesame")
        assert (caught.value.cause, caught.value.culprit, len(server.bodies)) == (cause, "sampler", tries)
    assert "sesame" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


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


@pytest.mark.parametrize("start", [": hello\n\n", "retry: 3000\n\n", "id: 7\n", "\n\nevent: message\n", "\ufeff", ""])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_stream_is_read_as_one_answer(start: str, end: str) -> None:
    stream = start + EVENT % ("Agent.", "null") + EVENT % ("wait()", '"length"') + "data: [DONE]\n\n"
    found = completed(stream.replace("\n", end).encode(), 9)
    assert (found.text, found.cut) == ("Agent.wait()", "it was cut at 9 tokens")


SIGN = "\U0001f600"


def test_halves_of_a_pair_that_come_in_two_events_are_one_character() -> None:
    stream = EVENT % (r"\ud83d", "null") + EVENT % (r"\ude00", '"stop"')
    assert completed(stream.encode(), 9).text == SIGN
    assert completed((EVENT % (r"\ud83d", '"stop"')).encode(), 9).text == "\ufffd"
    first, second = ((EVENT % ("@", "null")).encode().replace(b"@", part) for part in (b"\xf0\x9f", b"\x98\x80"))
    assert completed(first + second + b"data: [DONE]\n\n", 9).text == SIGN


@pytest.mark.parametrize(
    "finish",
    ["abort", "error", "SAFETY", "content_filter", "tool_calls", "cancelled", 0, 3, True, {"type": "stop"}],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_reason_that_means_no_end_is_asked_again(finish: Any, streamed: bool) -> None:
    async def script(_body: dict[str, Any], number: int) -> web.StreamResponse:
        if number == 2:  # the first is asked again
            return completion(PAPER)
        if streamed:
            event = EVENT % ("Agent.exit(success=True)", msgspec.json.encode(finish).decode())
            return web.Response(text=event + "data: [DONE]\n\n", content_type="text/event-stream")
        return completion("Agent.exit(success=True)", finish)

    async with StandIn(script) as server:
        assert (await answered(config(server))).text == PAPER
        with pytest.raises(DesktopFault) as caught:
            await answered(config(server, retries=0))
    assert caught.value.cause == "endpoint_gave_up"
    assert "finish_reason" in str(caught.value)


def test_a_reason_that_means_no_end_is_none_though_another_follows() -> None:
    stream = EVENT % ("A", '"error"') + EVENT % ("", '"stop"') + "data: [DONE]\n\n"
    with pytest.raises(GivenUpError, match="finish_reason 'error'"):
        completed(stream.encode(), 9)


REPORTED = {
    "a body": '{"error": {"message": "out of memory, sesame"}}',
    "an event": 'data: {"error": {"message": "out of memory, sesame"}}\n\n',
    "an event of that name": "event: error\ndata: out of memory, sesame\n\n",
    "beside an answer": (
        '{"error": "out of memory, sesame", "choices": [{"message": {"content": "A"}, "finish_reason": "stop"}]}'
    ),
    "of a choice": 'data: {"choices": [{"delta": {}, "finish_reason": "stop", "error": "out of memory, sesame"}]}\n\n',
}


@pytest.mark.parametrize("body", REPORTED.values(), ids=REPORTED)
async def test_an_error_that_comes_with_status_200_is_a_fault(body: str) -> None:
    async with StandIn(always(lambda: web.Response(text=body))) as server:
        with pytest.raises(DesktopFault, match="out of memory") as caught:
            await answered(config(server), key="sesame")
    assert caught.value.cause == "endpoint_gave_up"
    assert "sesame" not in str(caught.value)


def test_the_first_of_several_choices_is_the_answer_whatever_their_order() -> None:
    choices = [{"index": at, "message": {"content": "ABC"[at]}, "finish_reason": "stop"} for at in (1, 2, 0)]
    assert completed(msgspec.json.encode({"choices": choices}), 9).text == "A"
    other = 'data: {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]}\n\n'
    with pytest.raises(NoCompletionError, match="the stream ended before"):
        completed((EVENT % ("A", "null") + other).encode(), 9)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_an_answer_that_the_server_took_for_reasoning_is_taken_from_there(name: str) -> None:
    for content in ("", None, "\n"):
        message = {"role": "assistant", "content": content, name: "Agent.wait()"}
        body = {"choices": [{"message": message, "finish_reason": "stop"}]}
        assert completed(msgspec.json.encode(body), 9).text == "Agent.wait()"
        cut = msgspec.json.encode({"choices": [{"message": message, "finish_reason": "length"}]})
        assert completed(cut, 9).cut == "it was cut at 9 tokens, all of them reasoning"
    message |= {"content": "Agent.exit(success=True)"}
    assert (
        completed(msgspec.json.encode({"choices": [{"message": message, "finish_reason": "stop"}]}), 9).text[-6:]
        == "=True)"
    )


NOW = 1_900_000_000.0
DATES = [formatdate(NOW + 7, usegmt=True), formatdate(NOW + 7, usegmt=True).replace(" GMT", " +0000")]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "3", "Retry-After-Ms": "1500"}, 1.5),
        *(({"Retry-After": "3", "Retry-After-Ms": text}, 3.0) for text in ("", "soon", "nan")),
        ({"Retry-After": DATES[0], "Retry-After-Ms": "soon"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        *(({"Retry-After": date}, 7.0) for date in DATES),
        ({"Retry-After": "Sunday, 06-Nov-94 08:49:37 GMT"}, 0.0),
        *(({"Retry-After": text}, 0.0) for text in ("", "-3", "nan", "inf", "soon", "9" * 400)),
    ],
)
def test_a_server_says_when_to_come_again(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(httpx2.Headers(headers), NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(("asked", "longest_s"), [("0.3", 9.0), ("0.3", 0.0)])
async def test_a_wait_that_is_asked_for_is_kept_by_every_request(asked: str, longest_s: float) -> None:
    came = []

    async def script(_body: dict[str, Any], number: int) -> web.StreamResponse:
        came.append(time.monotonic())
        if number == 1:
            return web.Response(status=503, headers={"Retry-After": asked})
        return completion(PAPER)

    async with StandIn(script) as server:
        endpoint = Endpoint(config(server, longest_backoff_s=longest_s, concurrent=1), "")
        try:  # the second one waits for its turn, and then for what the first was asked
            await asyncio.gather(*(endpoint.complete([], n, temperature=0.0, max_tokens=9) for n in range(2)))
        finally:
            await endpoint.close()
    assert len(came) == 3
    assert min(came[1:]) - came[0] >= float(asked)


async def test_a_wait_that_ends_too_late_is_a_fault_at_once() -> None:
    async with StandIn(always(lambda: web.Response(status=429, headers={"Retry-After": "86400"}))) as server:
        with pytest.raises(DesktopFault, match=r"asks to wait 86\d+ s") as caught:
            await answered(config(server))
        assert (caught.value.cause, len(server.bodies)) == ("endpoint_limited", 1)


async def _written(server: StandIn, pieces: Iterable[bytes], **headers: str) -> web.StreamResponse:
    reply = web.StreamResponse(headers=headers)
    await reply.prepare(server.requests[-1])
    for piece in pieces:
        await reply.write(piece)
    return reply


@pytest.mark.parametrize("end", [[b"data: [DONE]", b"\n\n"], [b"data:[DONE]\r\n\r\n"], [b"data: [DONE]\n\n: ping\n\n"]])
async def test_an_answer_ends_where_its_stream_says_though_the_connection_stays(end: list[bytes]) -> None:
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        reply = await _written(server, [(EVENT % (r"\ndata: [DONE]\n\n", "null")).encode()])
        for piece in end:
            await reply.write(piece)
            await asyncio.sleep(0.05)  # the next comes by itself
        await asyncio.sleep(30)
        return reply

    async with StandIn(script) as server:
        wanted = config(server, stream=True, timeout_s=5.0, retries=0)
        assert (await answered(wanted)).text == "\ndata: [DONE]\n\n"


async def test_a_stream_of_too_many_events_is_refused_and_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return await _written(server, [b"data: {}\n\n" * 20])

    def read(raw: bytes, max_tokens: int) -> Completed:
        assert threading.current_thread() is not threading.main_thread(), "the seats of a host share its loop"
        return completed(raw, max_tokens)

    monkeypatch.setattr("actors.desktop.endpoint.MAX_EVENTS", 10)
    monkeypatch.setattr("actors.desktop.endpoint.completed", read)
    async with StandIn(script) as server:
        with pytest.raises(DesktopFault, match="more than 10 events"):
            await answered(config(server, stream=True))


ENDLESS = {
    "an event": [b"data: " + b" " * 65_000],
    "a line of no event": [b"x" * 65_000],
    "a document": [b'{"choices": "' + b"x" * 65_000],
    "texts": [(EVENT % ("x" * 60_000, "null")).encode()],
    "blanks": [b"\n" * 65_000],
}


@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_without_an_end_is_not_kept(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.desktop.endpoint.MAX_STREAM_BYTES", 4 << 20)

    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return await _written(server, (pieces[min(at, len(pieces) - 1)] for at in range(2000)))

    async with StandIn(script) as server:
        with pytest.raises(DesktopFault) as caught:
            await answered(config(server))
        assert caught.value.cause == "endpoint_oversized"


async def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * (8 << 20))
    async with StandIn(always(lambda: web.Response(body=packed, headers={"Content-Encoding": "gzip"}))) as server:
        with pytest.raises(DesktopFault) as caught:
            await answered(config(server))
        assert caught.value.cause == "endpoint_malformed"


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


@pytest.mark.parametrize(
    "listing", [b"[" * 9000, b'{"data": [], "x": ' + b"[" * 9000, b"\xff", b"x" * (MAX_ANSWER_BYTES + 1)]
)
async def test_a_list_of_models_that_is_none_lists_none(listing: bytes) -> None:
    app = web.Application()

    async def models(_: web.Request) -> web.Response:
        return web.Response(body=listing)

    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        endpoint = Endpoint(EndpointConfig(url=str(server.make_url("/v1")), model="m"), "")
        assert await endpoint.models() == []
        await endpoint.close()
