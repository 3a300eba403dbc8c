"""Actors answer, fail, restart and stop, whichever host they live in."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from runtime.actor import Actor, handles
from runtime.control import query_status
from runtime.errors import ActorFailed, ActorGone, ConfigError, ProtocolError
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done, Message, Request
from runtime.supervision import IN_A_ROW
from runtime.system import ActorSpec, ActorSystem, HostSpec, RestartPolicy
from tests.heard import logged
from tests.runtime.example_actors import (
    Add,
    Boom,
    Counter,
    CounterConfig,
    Greet,
    Hold,
    Leave,
    Lie,
    NoEngineError,
    Number,
    Pid,
    Sleep,
    SpawnBoom,
    Stay,
    Text,
    Total,
    Via,
    seen,
)

QUICK = RestartPolicy(max_restarts=3, window_s=60, first_delay_s=0.02)
HOSTS = [HostSpec(name=name, restart=QUICK) for name in ("one", "two")]


@pytest.fixture
async def system(tmp_path):
    async with ActorSystem(tmp_path, hosts=HOSTS, log_level="debug") as running:
        yield running


@pytest.fixture(params=["main", "one"])
def host(request):
    return request.param


def spec(name: str, host: str = "main", **changes) -> ActorSpec:
    return ActorSpec(**({"name": name, "factory": Counter, "host": host, "restart": QUICK} | changes))


def events(run_dir: Path, name: str) -> list[dict]:
    return list(read_logs(run_dir, event=name))


@pytest.mark.slow
async def test_a_conversation_is_the_same_wherever_the_peer_lives(system, host):
    await system.spawn(spec("a/1", host, config=CounterConfig(start=5)), spec("b", "two" if host == "one" else "main"))
    a = system.ref("a/1")
    assert await a.ask(Add(n=2), timeout_s=30) == Number(n=7)
    assert await asyncio.gather(*(a.ask(Add(n=1), timeout_s=30) for _ in range(50)))
    assert await a.ask(Total(), timeout_s=30) == Number(n=57)
    assert await a.ask(Via(peer="b", n=4), timeout_s=5, trace="g1.0") == Number(n=4)
    assert await a.ask(Add(n=1000), timeout_s=30) == Number(n=1057)
    assert await a.ask(Total(), timeout_s=30) == Text(text="many")
    await a.tell(Greet(text="\x1b[2Jhello"), trace="g2.1")
    await a.ask(Total(), timeout_s=30)
    (line,) = events(system.run_dir, "example_greeted")
    assert (line["actor"], line["trace"], line["text"]) == ("a/1", "g2.1", "\\x1b[2Jhello")


async def test_domain_errors_travel_and_do_not_kill(system, host):
    await system.spawn(spec("a", host))
    a = system.ref("a")
    await a.ask(Add(n=1), timeout_s=30)
    with pytest.raises(NoEngineError, match="no engine"):
        await a.ask(Boom(kind="named"), timeout_s=30)
    with pytest.raises(ActorFailed) as fault:
        await a.ask(Boom(kind="fault"), timeout_s=30)
    assert (fault.value.type_name, fault.value.text) == ("CausedError", "boot_timeout: 30 s")
    with pytest.raises(ActorFailed) as far:
        await a.ask(Via(peer="nobody", n=1), timeout_s=30)
    assert far.value.type_name == "ActorGone"  # the handler's own peer is gone, not this one
    with pytest.raises(ProtocolError):
        await a.ask(Lie(), timeout_s=30)
    assert await a.ask(Total(), timeout_s=30) == Number(n=1)


@pytest.mark.parametrize("defect", [Boom(), SpawnBoom()])
async def test_a_defect_restarts_the_actor(system, host, defect):
    await system.spawn(spec("a", host, config=CounterConfig(start=3)))
    a = system.ref("a")
    await a.ask(Add(n=1), timeout_s=30)
    if isinstance(defect, Boom):
        with pytest.raises(ActorFailed, match="RuntimeError: a defect"):
            await a.ask(defect, timeout_s=30)
    else:
        await a.ask(defect, timeout_s=30)
        await seen(system, "a", state="running", restarts=1)
    assert await a.ask(Total(), timeout_s=30) == Number(n=3)
    (failure,) = events(system.run_dir, "actor_failed")
    assert "RuntimeError" in failure["error"]
    assert any("raise RuntimeError" in line for line in failure["traceback"])
    (status,) = await system.statuses()
    assert (status.state, status.restarts, status.host) == ("running", 1, host)


async def test_a_spent_budget_fails_the_system_with_the_reason(system, host):
    await system.spawn(spec("a", host, restart=RestartPolicy(max_restarts=1, first_delay_s=0.01)))
    a = system.ref("a")
    for _ in range(2):
        with pytest.raises(ActorFailed):
            await a.ask(Boom(), timeout_s=30)
    async with asyncio.timeout(60):
        assert "RuntimeError: a defect" in await system.failed()
    with pytest.raises(ActorGone):
        await a.ask(Total(), timeout_s=30)


async def test_a_start_that_fails_is_tried_again(system, host, tmp_path):
    marker = tmp_path / "marker"
    marker.touch()
    await system.spawn(spec("a", host, config=CounterConfig(fail_starts_file=str(marker))))
    (status,) = await system.statuses()
    assert status.restarts == 1


async def test_a_bad_setting_is_not_tried_again(system, host):
    with pytest.raises(ActorFailed, match="bad setting"):
        await system.spawn(spec("a", host, config=CounterConfig(bad_config=True)))
    assert "bad setting" in await system.failed()
    assert events(system.run_dir, "actor_restarts") == []


async def test_one_message_at_a_time_and_concurrent_ones_up_to_their_limit(system, host):
    await system.spawn(spec("a", host))
    a = system.ref("a")
    parked = [asyncio.ensure_future(a.ask(Stay(), timeout_s=60)) for _ in range(5)]
    await seen(system, "a", in_flight=3, mailbox=2)
    await asyncio.gather(*(a.ask(Total(), timeout_s=30) for _ in range(3)))
    assert not any(ask.done() for ask in parked), "parked messages don't hold the others up"
    await a.ask(Leave(), timeout_s=30)
    assert max(reply.n for reply in await asyncio.gather(*parked)) == 3


async def test_nobody_of_that_name(system, host):
    await system.spawn(spec("a", host))
    for ask in (system.ref("b").ask(Total(), timeout_s=30), system.ref("b").tell(Greet(text="x"))):
        with pytest.raises(ActorGone, match="there is no"):
            await ask
    with pytest.raises(ConfigError, match="two actors"):
        await system.spawn(spec("a"))
    with pytest.raises(ConfigError, match="is called like"):
        await system.spawn(spec("Desktop-3"))


async def test_what_an_actor_does_not_understand_is_refused(system):
    class Unknown(Request[Done]):
        pass

    await system.spawn(spec("a"))
    with pytest.raises(ProtocolError, match="does not understand Unknown"):
        await system.ref("a").ask(Unknown(), timeout_s=30)
    with pytest.raises(ProtocolError, match="reply type"):
        await system.ref("a").ask(Greet(text="no request"), timeout_s=30)  # type: ignore[arg-type]
    await system.ref("a").tell(Unknown())
    assert await system.ref("a").ask(Total(), timeout_s=30) == Number(n=0)
    assert len(events(system.run_dir, "tell_failed")) == 1


def test_two_handlers_of_one_message_are_a_defect():
    class Twice(Actor):
        @handles(Add)
        async def one(self, msg: Add) -> Number:
            return Number(n=1)

        @handles(Add)
        async def two(self, msg: Add) -> Number:
            return Number(n=2)

    with pytest.raises(ProtocolError, match="both one and two"):
        Twice.handlers()


@pytest.mark.slow
async def test_a_killed_host_comes_back_with_its_actors(system):
    await system.spawn(spec("a/1", "one"), spec("a/2", "one"), spec("b", "two"), spec("c"))
    a, pid = system.ref("a/1"), (await system.ref("a/2").ask(Pid(), timeout_s=30)).n
    assert pid not in (os.getpid(), (await system.ref("b").ask(Pid(), timeout_s=30)).n)
    from_main = asyncio.ensure_future(a.ask(Sleep(seconds=30), timeout_s=60))
    await seen(system, "a/1", current="Sleep")
    through_b = asyncio.ensure_future(system.ref("b").ask(Via(peer="a/1", n=1), timeout_s=60))
    await seen(system, "a/1", mailbox=1)
    began = time.monotonic()
    os.kill(pid, 9)
    with pytest.raises(ActorGone, match="host one was lost"):
        await from_main
    with pytest.raises(ActorFailed, match=r"ActorGone: .*host one was lost"):
        await through_b
    assert time.monotonic() - began < 25.0
    assert await a.ask(Add(n=1), timeout_s=10) == Number(n=1)  # waits for the new child
    assert (await system.ref("a/2").ask(Pid(), timeout_s=30)).n != pid
    assert await system.ref("b").ask(Via(peer="a/1", n=1), timeout_s=30) == Number(n=2)
    (lost,) = events(system.run_dir, "host_lost")
    assert (lost["exit_code"], lost["pid"], sorted(lost["actors"])) == (-9, pid, ["a/1", "a/2"])
    assert not system._failed.is_set()


@pytest.mark.slow
async def test_a_host_that_keeps_dying_fails_the_system(system):
    await system.spawn(spec("a", "one"))
    a = system.ref("a")
    for lives in range(4):
        os.kill((await a.ask(Pid(), timeout_s=10)).n, 9)
        await logged(system.run_dir, "host_lost", lives + 1)
    async with asyncio.timeout(60):
        assert "host one failed 4 times" in await system.failed()
    with pytest.raises(ActorGone):
        await a.ask(Total(), timeout_s=1)


@pytest.mark.slow
async def test_a_host_that_was_up_for_a_window_each_time_may_die_any_number_of_times(tmp_path):
    once = RestartPolicy(max_restarts=1, window_s=0.3, first_delay_s=0.02)
    async with ActorSystem(tmp_path, hosts=[HostSpec(name="one", restart=once)]) as system:
        await system.spawn(spec("a", "one"))
        for lives in range(IN_A_ROW + 2):
            pid = (await system.ref("a").ask(Pid(), timeout_s=30)).n
            await asyncio.sleep(once.window_s)
            os.kill(pid, 9)
            await logged(system.run_dir, "host_lost", lives + 1)
        assert (await system.ref("a").ask(Pid(), timeout_s=30)).n != pid


@pytest.mark.slow
async def test_who_asks_a_host_that_is_lost_hears_so_at_once(system):
    await system.spawn(spec("a", "one"))
    pid = (await system.ref("a").ask(Pid(), timeout_s=30)).n
    os.kill(pid, signal.SIGSTOP)
    asking = asyncio.ensure_future(system._routes.hosts["one"].statuses())
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    (status,) = await asking
    assert (status.name, status.state) == ("a", "host_lost"), "and not host_silent, after its deadline"


async def test_a_handler_in_flight_is_answered_when_its_actor_stops(tmp_path):
    system = ActorSystem(tmp_path)
    await system.start()
    await system.spawn(spec("a"))
    asking = asyncio.ensure_future(system.ref("a").ask(Sleep(seconds=30), timeout_s=60))
    queued = asyncio.ensure_future(system.ref("a").ask(Total(), timeout_s=60))
    await seen(system, "a", current="Sleep", mailbox=1)
    await system.stop()
    for ask in (asking, queued):
        with pytest.raises(ActorGone):
            await ask


async def test_actors_stop_in_reverse_order_and_may_ask_while_stopping(tmp_path):
    system = ActorSystem(tmp_path)
    await system.start()
    await system.spawn(ActorSpec(name="ledger", factory=Ledger))
    await system.spawn(*(ActorSpec(name=f"seat/{n}", factory=Seat) for n in range(3)))
    await system.stop()
    assert sorted(Ledger.heard) == ["seat/0", "seat/1", "seat/2"]


class Bye(Request[Done]):
    name: str


class Ledger(Actor):
    heard: list[str] = []

    @handles(Bye)
    async def bye(self, msg: Bye) -> Done:
        self.heard.append(msg.name)
        return Done()


class Seat(Actor):
    async def on_stop(self) -> None:
        await self.ctx.ref("ledger").ask(Bye(name=self.ctx.name), timeout_s=2)


async def test_status_tells_from_outside_what_everybody_does(system, tmp_path):
    await system.spawn(spec("a"), spec("b", "one"))
    asking = asyncio.ensure_future(system.ref("b").ask(Via(peer="c", n=1), timeout_s=30))
    end = tmp_path / "end"
    holding = asyncio.ensure_future(system.ref("a").ask(Hold(until=str(end)), timeout_s=60))
    before = await seen(system, "a", current="Hold")
    a, b = await asyncio.to_thread(query_status, tmp_path)
    assert (a.name, a.host, a.current, a.sender, a.doing) == ("a", "main", "Hold", "system", "total 0")
    assert 0 <= before.busy_s < a.busy_s < 30
    assert (b.name, b.host, b.state) == ("b", "one", "running")
    with pytest.raises(ActorFailed):
        await asking
    end.touch()
    await holding


async def test_a_second_system_in_the_same_run_folder_is_refused(system, tmp_path):
    second = ActorSystem(tmp_path)
    with pytest.raises(ConfigError, match="running process"):
        await second.start()
    second.log.close()


async def test_nobody_answers_for_a_run_that_is_over(tmp_path):
    async with ActorSystem(tmp_path):
        pass
    with pytest.raises(ActorGone):
        query_status(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]


class Big(Message):
    body: bytes


@pytest.mark.slow
async def test_a_message_too_big_for_a_frame_is_refused_where_it_is_sent(system):
    await system.spawn(spec("a", "one"))
    with pytest.raises(ProtocolError, match="is the most"):
        await system.ref("a").tell(Big(body=b"x" * (65 << 20)))
    assert await system.ref("a").ask(Total(), timeout_s=30) == Number(n=0)
