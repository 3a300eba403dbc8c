"""The link against agents of every kind, honest, slow, silent and hostile.

Whatever a guest says, a call ends in a value within the declared bounds or in one of the declared errors.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncssh
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.desktop.faults import LinkState
from actors.desktop.link import MAX_FRAME_BYTES, RESULTS, GuestLink, LinkDown, evidence_of
from actors.desktop.provider import Desktop, DesktopHealth, SshAddress
from actors.errors import GuestRefused
from apis.observation import MAX_ELEMENTS, MAX_INFO, MAX_TEXT, MAX_WINDOWS, Frame, Observation, from_guest
from apis.prompts.compact import render_compact
from runtime.errors import ProtocolError

Process = asyncssh.SSHServerProcess
Agent = Callable[[Process, dict], Awaitable[None]]


def frame(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body


async def requests(process: Process) -> AsyncIterator[dict]:
    while True:
        try:
            (size,) = struct.unpack(">I", await process.stdin.readexactly(4))
            yield msgspec.msgpack.decode(await process.stdin.readexactly(size))
        except asyncio.IncompleteReadError:
            return


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Agent], Awaitable[Desktop]]]:
    """Makes a desktop whose agent is a function of each request; `ready` is answered honestly."""
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    acceptors: list[asyncssh.SSHAcceptor] = []

    async def start(agent: Agent) -> Desktop:
        async def handle(process: Process) -> None:
            async for request in requests(process):
                if request["m"] == "ready":
                    process.stdout.write(frame({"i": request["i"], "r": True}))
                else:
                    await agent(process, request)
            process.exit(0)

        authorized = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
        acceptor = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=authorized,
            process_factory=handle, encoding=None, reuse_address=True,
        )  # fmt: skip
        acceptors.append(acceptor)
        return Desktop(
            name="test",
            provider="test",
            address=SshAddress(host="127.0.0.1", port=acceptor.get_port()),
            username="agent",
            host_key=host_key.export_public_key(),
            client_key=client_key.export_private_key(),
            agent=("agent", "it's"),
            home="/home/agent",
        )

    yield start
    for acceptor in acceptors:
        acceptor.close()
        await acceptor.wait_closed()


async def down_by(serve, agent: Agent, method: str = "ping", timeout_s: float = 5) -> LinkDown:
    """How the link goes down at the first call."""
    link = await GuestLink.open(await serve(agent), timeout_s=10)
    try:
        with pytest.raises(LinkDown) as down:
            await link.call(method, timeout_s=timeout_s)
        with pytest.raises(LinkDown) as again:
            await link.call("ping", timeout_s=30)
        assert again.value is down.value
        return down.value
    finally:
        await link.close()
        await link.close()


async def test_calls_are_answered_each_by_its_own_reply(serve):
    kept: list[dict] = []

    async def agent(process: Process, request: dict) -> None:
        kept.append(request)
        if len(kept) == 3:
            for one in reversed(kept):
                process.stdout.write(frame({"i": one["i"], "r": one["a"]["argv"][0]}))

    link = await GuestLink.open(await serve(agent), timeout_s=10)
    results = await asyncio.gather(*(link.call("launch", argv=[n], timeout_s=30) for n in (7, 8, 9)))
    assert results == [7, 8, 9]
    assert kept[0] == {"i": 2, "m": "launch", "a": {"argv": [7]}}
    await link.close()


async def test_an_error_reply_leaves_the_link_up(serve):
    async def agent(process: Process, request: dict) -> None:
        answer = {"e": ["no_window", "none"]} if request["m"] == "close" else {"r": "pong"}
        process.stdout.write(frame({"i": request["i"], **answer}))

    link = await GuestLink.open(await serve(agent), timeout_s=10)
    with pytest.raises(GuestRefused) as refused:
        await link.call("close", number=1, timeout_s=30)
    assert refused.value.kind == "no_window"
    assert await link.call("ping", timeout_s=30) == "pong"
    with pytest.raises(ProtocolError, match="no method"):
        await link.call("__class__", timeout_s=30)
    with pytest.raises(ProtocolError, match="a request of"):
        await link.call("write_file", path="x", data=b"x" * MAX_FRAME_BYTES, timeout_s=30)
    assert await link.call("ping", timeout_s=30) == "pong"
    await link.close()


async def test_a_result_of_another_type_is_the_guests_doing(serve):
    for said in (frame({"i": 2, "r": 5}), struct.pack(">I", 8) + b"\x82\xa1i\x02\xa1r\xa1\xff"):

        async def agent(process: Process, _: dict, said: bytes = said) -> None:
            process.stdout.write(said)

        assert (await down_by(serve, agent)).state is LinkState.NONSENSE


async def test_a_silent_agent_ends_at_the_deadline(serve):
    async def agent(process: Process, request: dict) -> None:
        process.stdout.write(frame({"i": request["i"] + 1000, "r": "pong"}))  # nobody waits for that one

    down = await down_by(serve, agent, timeout_s=0.2)
    assert down.state is LinkState.SILENT
    assert 0 <= down.late_s < 60
    assert evidence_of(DesktopHealth(alive=True), down, acted=True).loop_lag_s == down.late_s


async def test_a_host_that_stood_still_until_the_deadline_says_how_long(serve, monkeypatch):
    """The call ends in time, though nobody here could read an answer."""
    monkeypatch.setattr("actors.desktop.link._TICK_S", 0.01)

    async def agent(_process: Process, _request: dict) -> None:
        asyncio.get_running_loop().call_later(0.1, time.sleep, 0.8)

    down = await down_by(serve, agent, timeout_s=1.0)
    assert down.state is LinkState.SILENT
    assert down.late_s > 0.7


async def test_an_agent_that_ends_is_a_lost_link_with_its_last_words(serve):
    async def agent(process: Process, _: dict) -> None:
        process.stderr.write(b"Traceback\nMemoryError: none left\x1b[2J\n")
        process.exit(1)

    down = await down_by(serve, agent)
    assert down.state is LinkState.LOST
    assert "MemoryError" in down.detail


async def test_nobody_there_is_a_lost_link(serve):
    async def agent(_: Process, __: dict) -> None:
        return

    desktop = await serve(agent)
    nowhere = msgspec.structs.replace(desktop, address=SshAddress(socket="/nonexistent/ssh"))
    with pytest.raises(LinkDown) as down:
        await GuestLink.open(nowhere, timeout_s=30)
    assert down.value.state is LinkState.LOST


WAIT_S = 20.0  # a call that gets no answer is ended by the stream's end, not by time


class Output(asyncio.StreamReader):
    """What an agent says, which then ends."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self.feed_data(said)
        self.feed_eof()


class Talker:
    """An agent that says `said` to whatever it is asked."""

    def __init__(self, said: bytes, last_words: bytes = b"") -> None:
        self.said, self.stdin, self.stdout, self.stderr = said, self, asyncio.StreamReader(), Output(last_words)

    def write(self, _: bytes) -> None:
        self.stdout.feed_data(self.said)
        self.stdout.feed_eof()

    async def drain(self) -> None:
        return


class Connection:
    """A connection that closes at once."""

    def close(self) -> None:
        return

    async def wait_closed(self) -> None:
        return


async def _call(said: bytes, method: str, last_words: bytes) -> Any:
    link = GuestLink(Connection(), Talker(said, last_words))  # type: ignore[arg-type]
    try:
        return await link.call(method, timeout_s=WAIT_S)
    except (GuestRefused, LinkDown) as error:
        return error
    finally:
        await link.close()
        assert not link._waiting
        assert link._reader.cancelled() or link._reader.exception() is None


def heard(said: bytes, method: str, last_words: bytes = b"") -> Any:
    """What a call comes to."""
    return asyncio.run(_call(said, method, last_words))


def framed(body: bytes, size: int | None = None) -> bytes:
    return struct.pack(">I", len(body) if size is None else size) + body


def answer(value: object) -> bytes:
    """The answer to the first call."""
    return framed(msgspec.msgpack.encode({"i": 1, "r": value}))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127).filter(lambda code: code != -1), st.binary(max_size=9))
    | st.datetimes(timezones=st.timezones())
)
ANY = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.text(max_size=6) | st.integers(-9, 9) | st.tuples(st.integers(0, 9)), inner, max_size=6)
    ),
    max_leaves=12,
)
WORD = st.sampled_from(["table-cell", "push-button", "", "a\nb", "\x1b]0;x\x07", "\u202e", "x" * 600, "<|end|>"])
SMALL = st.integers(-3, 40) | st.integers(-(2**40), 2**40)
ROW = st.tuples(WORD, WORD, WORD, SMALL, SMALL, SMALL, SMALL, st.lists(WORD, max_size=12), SMALL)
WINDOW = st.fixed_dictionaries({"id": SMALL, "class": WORD, "title": WORD | st.none(), "active": st.booleans() | ANY})
FRAME = st.fixed_dictionaries(
    {"windows": st.lists(WINDOW, max_size=40) | ANY, "elements": st.lists(ROW | ANY, max_size=30) | ANY},
    optional={"info": st.text(max_size=50) | st.just("i" * 6000) | ANY},
)
REPLY = st.fixed_dictionaries(
    {}, optional={"i": st.integers(0, 3) | ANY, "r": FRAME | ANY, "e": st.tuples(WORD, WORD) | ANY}
)
SAID = (
    st.binary(max_size=200)
    | st.builds(framed, st.binary(max_size=60), st.none() | st.integers(0, 2**32 - 1))
    | st.builds(framed, st.builds(msgspec.msgpack.encode, REPLY | ANY))
    | st.builds(answer, FRAME | ANY)
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(said=st.lists(SAID, max_size=4).map(b"".join), method=st.sampled_from(sorted(RESULTS)), last=st.binary())
def test_any_answer_ends_in_a_declared_way(said: bytes, method: str, last: bytes):
    result = heard(said, method, last)
    if isinstance(result, LinkDown):
        assert len(result.detail) <= 400
    elif isinstance(result, GuestRefused):
        assert len(str(result)) <= 3000
    elif method == "observe":
        assert isinstance(result, Frame)
        within_bounds(result)
    elif isinstance(result, str) and method in ("tool", "info"):
        assert len(result) <= MAX_INFO


def within_bounds(frame: Any) -> None:
    """`frame` becomes an observation within its bounds, or is refused."""
    try:
        seen: Observation = from_guest(frame)
    except ProtocolError:
        return
    assert len(seen.windows) <= MAX_WINDOWS
    assert len(seen.elements) <= MAX_ELEMENTS
    assert len(seen.info) <= MAX_INFO
    for element in seen.elements:
        assert max(map(len, (element.tag, element.name, element.text))) <= MAX_TEXT
        assert len(element.states) <= 8
    prompt = render_compact("do it", [], seen, None)
    assert len(prompt) < 100_000
    prompt.encode()


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(FRAME | ANY)
def test_any_observation_is_bounded_or_refused(frame: Any):
    within_bounds(frame)


NONSENSE = {
    "no MessagePack": framed(b"\xc1\xc1\xc1"),
    "a reply of another shape": framed(msgspec.msgpack.encode({"i": 1, "r": 1, "extra": 1})),
    "not a map": framed(msgspec.msgpack.encode([1, 2])),
    "an error of another shape": framed(msgspec.msgpack.encode({"i": 1, "e": "no"})),
    "an endless error": framed(msgspec.msgpack.encode({"i": 1, "e": ["failed", "x" * 3000]})),
}


def test_answers_that_cost_much():
    deep = b"\x82\xa1i\x01\xa1r\x81\xa1a" + b"\x91" * 3_000_000 + b"\xc0"
    claims = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
    for body in [deep, *(b"\x82\xa1i\x01\xa1r\x81\xa1a" + claim for claim in claims)]:
        assert heard(framed(body), "observe").state is LinkState.NONSENSE
    assert heard(framed(b"", MAX_FRAME_BYTES + 1), "observe").state is LinkState.NONSENSE
    nobody = framed(msgspec.msgpack.encode({"i": 7, "r": None})) * 100_000
    assert heard(nobody, "ping").state is LinkState.NONSENSE
    wide = {"windows": [], "elements": [["text", "x" * 500, "", 1, 1, 1, 1, [], 0]] * 1500}
    within_bounds(heard(answer(wide), "observe"))
    # What nobody asked for is passed by without being built: keys that hash alike, or, here, that have no hash.
    keys = b"".join(msgspec.msgpack.encode(key) + value for key, value in (("windows", b"\x90"), ("elements", b"\x90")))
    odd = b"\x82\xa1i\x01\xa1r\x83" + keys + b"\xa1x\x81\x91\x80\xc0"
    assert heard(framed(odd), "observe") == Frame(windows=[], elements=[])
    many = {"windows": [], "elements": [[]] * 3_000_000}  # a byte each, and as objects sixty
    assert isinstance(heard(answer(many), "observe"), LinkDown)
