"""What does not move is named."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import cell
from runtime.errors import ActorGone, DeadlineExceeded, MailboxFull, ProtocolError
from runtime.hosts import process
from runtime.logs.reader import read_logs
from runtime.system import (
    ActorSpec,
    ActorSystem,
    HostSpec,
    RestartPolicy,
)
from runtime.waits import GRACE_S, Busy, PendingWait, diagnose, waiting, waits_now
from tests.heard import logged
from tests.runtime.example_actors import Asked, Counter, Hold, Number, Total, seen


async def test_a_wait_is_registered_while_it_lasts():
    async with waiting("a", "b", "Ping", 5.0, trace="g1.0"):
        ((_, wait),) = waits_now()
        assert (wait.who, wait.whom, wait.what, wait.trace) == ("a", "b", "Ping", "g1.0")
        assert wait.deadline - wait.since == pytest.approx(5.0)
    assert waits_now() == []
    with pytest.raises(DeadlineExceeded, match=r"a waited 0.05 s for Ping from b"):
        async with waiting("a", "b", "Ping", 0.05):
            await asyncio.sleep(10)
    assert waits_now() == []


@pytest.mark.parametrize("forever", [math.inf, math.nan])
async def test_no_wait_without_a_deadline(forever):
    with pytest.raises(ProtocolError, match="without a deadline"):
        async with waiting("a", "b", "Ping", forever):
            pass
    with pytest.raises(DeadlineExceeded):
        async with waiting("a", "b", "Ping", 0.0):
            pass


async def test_another_timeout_inside_passes_through():
    with pytest.raises(TimeoutError):
        async with waiting("a", "b", "Ping", 5.0):
            raise TimeoutError("of something else")


times = st.floats(0, 1000)


@given(now=times, since=times, limit=st.floats(0.1, 100), left=st.floats(0.1, 100))
def test_exactly_what_is_overdue_or_busy_too_long_is_found(now, since, limit, left):
    wait = PendingWait(who="a", whom="b", what="Ping", since=since, deadline=since + left, trace=None)
    busy = Busy(id="1", actor="b", message="Ping", sender="a", since=since, trace="g0.0", limit_s=limit)
    found = {one.cause: one for one in diagnose(now, [(1, wait)], [busy], 1e9)}
    assert ("overdue" in found) == (now > since + left + GRACE_S)
    assert ("busy" in found) == (now - since > limit)
    for one in found.values():
        assert (one.who, one.what, one.whom, one.waited_s) == ("a", "Ping", "b", now - since)


@pytest.mark.parametrize("host", ["main", "one"])
async def test_a_busy_actor_is_reported_once(tmp_path, host):
    hosts = [HostSpec(name="one")]
    async with ActorSystem(tmp_path, hosts=hosts, stall_after_s=0.2) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host=host))
        asking = asyncio.ensure_future(
            system.ref("a").ask(Hold(until=str(tmp_path / "end")), timeout_s=60, trace="g3.1")
        )
        (busy,) = await logged(tmp_path, "stall", cause="busy")
        assert (busy["who"], busy["what"], busy["whom"], busy["trace"]) == ("system", "Hold", "a", "g3.1")
        (tmp_path / "end").touch()
        await asking
    assert [line["cause"] for line in read_logs(tmp_path, event="stall")].count("busy") == 1


async def test_a_host_whose_loop_is_blocked_is_reported(tmp_path):
    hosts = [HostSpec(name="one")]
    async with ActorSystem(tmp_path, hosts=hosts, stall_after_s=0.3) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host="one"))
        end = tmp_path / "end"
        asking = asyncio.ensure_future(system.ref("a").ask(Hold(until=str(end), block=True), timeout_s=60))
        await logged(tmp_path, "stall", cause="silent", whom="host/one")
        end.touch()
        await asking


def one_host(silent_limit_s: float) -> HostSpec:
    policy = RestartPolicy(first_delay_s=0.0)
    return HostSpec(name="one", heartbeat_s=0.5, silent_limit_s=silent_limit_s, restart=policy)


@pytest.mark.slow
async def test_a_stopped_host_is_named_killed_and_started_again(tmp_path):
    async with ActorSystem(tmp_path, hosts=[one_host(6.0)]) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host="one"))
        (started,) = await logged(tmp_path, "host_started")
        os.kill(started["pid"], signal.SIGSTOP)
        asking = asyncio.ensure_future(system.ref("a").ask(Total(), timeout_s=30))
        stall, *_ = await logged(tmp_path, "stall")
        assert (stall["who"], stall["whom"], stall["what"], stall["cause"]) == (
            "main",
            "host/one",
            "heartbeat",
            "silent",
        )
        assert stall["waited_s"] == pytest.approx(0.5)
        with pytest.raises(ActorGone, match="was silent for"):
            await asking
        (lost,) = await logged(tmp_path, "host_lost")
        assert (lost["exit_code"], lost["actors"]) == (-signal.SIGKILL, ["a"])
        assert await system.ref("a").ask(Total(), timeout_s=30) == Number(n=0), "the successor serves"
        assert len(await logged(tmp_path, "host_started", 2)) == 2


@pytest.mark.slow
async def test_a_host_that_is_silent_is_asked_once_and_its_late_answer_counts(tmp_path, monkeypatch):
    told: list[str] = []
    sent, counted = process.frames.Beat, process.ProcessHost._beaten
    monkeypatch.setattr(process.frames, "Beat", lambda **said: told.append("sent") or sent(**said))
    monkeypatch.setattr(process.ProcessHost, "_beaten", lambda *args: told.append("counted") or counted(*args))
    async with ActorSystem(tmp_path, hosts=[one_host(20.0)], log_level="debug") as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host="one"))
        (started,) = await logged(tmp_path, "host_started")
        told.clear()  # a greeting asks for the clock several times
        os.kill(started["pid"], signal.SIGSTOP)
        await logged(tmp_path, "stall")
        await asyncio.sleep(1.5)  # three heartbeats' time
        asked = told.count("sent")
        os.kill(started["pid"], signal.SIGCONT)
        assert await system.ref("a").ask(Total(), timeout_s=30) == Number(n=0)
        await logged(tmp_path, "host_beats", asked + 2)
    assert told.count("counted") > asked
    assert ("sent", "sent") not in pairwise(told)
    assert not list(read_logs(tmp_path, event="host_lost")), "it went on in time"


async def test_a_heartbeat_says_what_the_host_costs_and_asks_no_actor(tmp_path):
    async with ActorSystem(tmp_path, hosts=[one_host(60.0)], log_level="debug") as system:
        await system.spawn(ActorSpec(name="a", factory=Asked, host="one"))
        *_, last = await logged(tmp_path, "host_beats", 3)
        assert (await system.ref("a").ask(Total(), timeout_s=30)) == Number(n=0)
        assert (await seen(system, "a")).doing == "1", "a status asks"
    assert last["name"] == "one"
    assert 0.0 < last["cpu_s"] < last["machine_cpu_s"]
    assert 0.0 <= last["lag_s"] < 30.0


async def test_a_look_at_all_actors_passes_once_over_the_waits(tmp_path, monkeypatch):
    passes = []
    monkeypatch.setattr(cell, "waits_now", lambda: passes.append(1) or waits_now())
    async with ActorSystem(tmp_path) as system, AsyncExitStack() as waits:
        await system.spawn(*(ActorSpec(name=f"a/{n}", factory=Counter) for n in range(30)))
        for n in (3, 4, 3):
            await waits.enter_async_context(waiting(f"a/{n}", "b", "Ping", 60.0))
        statuses = await system.statuses()
    assert {one.name: len(one.waits) for one in statuses if one.waits} == {"a/3": 2, "a/4": 1}
    assert passes == [1]


@pytest.mark.parametrize("host", ["main", "one"])
@pytest.mark.slow
async def test_a_full_mailbox_is_named_once(tmp_path, host):
    async with ActorSystem(tmp_path, hosts=[one_host(60.0)]) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host=host, mailbox=1))
        ref = system.ref("a")
        end = tmp_path / "end"
        busy = [asyncio.ensure_future(ref.ask(Hold(until=str(end)), timeout_s=60)) for _ in range(2)]
        await seen(system, "a", current="Hold", mailbox=1)
        late = [ref.ask(Total(), timeout_s=5.0, trace="g1.2") for _ in range(3)]
        found = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(error, MailboxFull) for error in found), found
        end.touch()
        await asyncio.gather(*busy)
        assert await ref.ask(Total(), timeout_s=30) == Number(n=0)
        (full,) = await logged(tmp_path, "mailbox_full")
    assert (full["name"], full["sender"], full["inside"], full["trace"]) == ("a", "system", 1, "g1.2")
    assert full["waited_s"] >= 1.0
