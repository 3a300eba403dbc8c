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
from endpoint_stand_in import PAPER, StandIn, completion
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
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return completion(PAPER)

    async with StandIn(script) as server:
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
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return completion("<answer>Agent.wait()</answer>")

    sight = Sight(observed="picture", unit="thousandths")
    async with StandIn(script) as server:
        turns = [Turn(answer="x", line="Agent.wait()", result="done")]
        await answered(config(server), turns, sight=sight, picture=b"\x89PNG")
        _, *earlier, now = server.bodies[0]["messages"]
    assert all(isinstance(one["content"], str) for one in earlier)
    image, text = now["content"]
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
    return web.Response(status=401, text="no\x1b[2J such key sesame")


async def _elsewhere(_body: dict[str, Any], _number: int) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


async def _crowded(_body: dict[str, Any], number: int) -> web.StreamResponse:
    return web.Response(status=520 if number == 1 else 529)


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
        (_elsewhere, "endpoint_refused", 1),
        (_crowded, "endpoint_broken", 2),
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


@pytest.mark.parametrize("finish", ["stop", "STOP", "eos", "end_turn", "COMPLETE", None, ""])
def test_a_reason_that_means_whole_or_none_is_a_whole_answer(finish: str | None) -> None:
    assert completed(bytes(completion("x", finish).body), 9).cut == ""  # type: ignore[arg-type]


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
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return web.Response(text=body)

    async with StandIn(script) as server:
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


def test_what_a_model_thinks_in_parts_is_no_answer() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Agent.wait()"},
    ]
    assert completed(bytes(completion(parts).body), 9).text == "Agent.wait()"  # type: ignore[arg-type]


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
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "86400"})

    async with StandIn(script) as server:
        with pytest.raises(DesktopFault, match=r"asks to wait 86\d+ s") as caught:
            await answered(config(server))
        assert (caught.value.cause, len(server.bodies)) == ("endpoint_limited", 1)


async def _written(server: StandIn, pieces: Iterable[bytes], **headers: str) -> web.StreamResponse:
    reply = web.StreamResponse(headers=headers)
    await reply.prepare(server.requests[-1])
    for piece in pieces:
        await reply.write(piece)
    return reply


async def test_a_stream_is_read_however_its_bytes_come() -> None:
    stream = "\ufeffid: 1\nretry: 5\n\n" + EVENT % ("caf\u00e9 \u65e5\u2028", "null") + EVENT % (SIGN, '"stop"')
    raw = (stream + "data: [DONE]\n\n").encode()

    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return await _written(server, (raw[at : at + 1] for at in range(len(raw))))

    async with StandIn(script) as server:
        found = await answered(config(server, stream=True))
    assert found.text == f"caf\u00e9 \u65e5\u2028{SIGN}"
    assert server.bodies[0]["stream"] is True


async def test_a_long_answer_may_come_in_many_events() -> None:
    events = [(EVENT % ("word ", "null")).encode() * 200] * 100  # 1.5 MB of events, 100 kB of text

    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return await _written(server, [*events, (EVENT % ("end", '"stop"')).encode(), b"data: [DONE]\n\n"])

    async with StandIn(script) as server:
        assert (await answered(config(server, stream=True))).text == "word " * 20_000 + "end"


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
    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b" " * (8 << 20)), headers={"Content-Encoding": "gzip"})

    async with StandIn(script) as server:
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
