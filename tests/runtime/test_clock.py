"""A run has one clock on all its hosts."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.clock import (
    DRIFT,
    ClockOffset,
    RunClock,
    wall_ahead_s,
)
from runtime.errors import DeadlineExceeded
from runtime.logs.reader import read_logs
from runtime.system import ActorSpec, ActorSystem, HostSpec
from tests.heard import logged
from tests.leaping_clock import LeapingClock
from tests.runtime.example_actors import Add, Counter, Greet, Hold, Number, Total, Via, seen

delays = st.floats(0, 2)
pings = st.lists(st.tuples(st.floats(0, 1000), delays, delays), min_size=1, max_size=20)


@given(pings, st.floats(-1e6, 1e6), st.floats(-DRIFT, DRIFT))
def test_the_true_offset_stays_within_what_the_round_trips_leave(pings, offset, drift):
    found, now = ClockOffset(), 1000.0
    for gap, there, back in pings:
        sent = now + gap
        read = sent + there
        now = read + back
        found.heard(sent, read - (offset + drift * read), now)
        true = offset + drift * now
        assert abs(found.offset_s - true) <= 2 * found.error_s(now) + 1e-5
        if found.offset_s:
            assert abs(found.offset_s - true) <= found.error_s(now) + 1e-5


@given(pings)
def test_two_processes_of_a_machine_have_one_clock(pings):
    found, now = ClockOffset(), 1000.0
    for gap, there, back in pings:
        sent, now = now + gap, now + gap + there + back
        found.heard(sent, sent + there, now)
        assert found.offset_s == 0.0


def test_the_quickest_round_trip_counts_until_drift_has_outgrown_it():
    found = ClockOffset()
    found.heard(0.0, 105.0, 2.0)
    assert (found.offset_s, found.error_s(0.0)) == (-104.0, 1.0)
    found.heard(10.0, 110.1, 10.2)
    assert found.offset_s == pytest.approx(-100.0)
    found.heard(20.0, 190.0, 22.0)
    assert found.offset_s == pytest.approx(-100.0), "a slow round trip says less"
    found.heard(2000.0, 2101.0, 2002.0)
    assert found.offset_s == pytest.approx(-100.0)
    assert found.error_s(2000.0) == pytest.approx(1.0), "it is the newest that is known best"


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(-1, 1)), max_size=10))
async def test_a_run_clock_never_steps_back(moves):
    own = LeapingClock(start=5000.0, wall=7000.0)
    clock = RunClock(own)
    assert (clock.now(), clock.wall()) == (own.now(), own.wall()), "until it is set"
    clock.set(-4000.0, 1e9)
    last = clock.now()
    assert last == 1000.0, "the first setting may"
    for seconds, off in moves:
        await own.sleep(seconds)
        clock.set(-4000.0 + off, 1e9)
        assert last <= clock.now()
        last = clock.now()
        assert clock.wall() == pytest.approx(last + 1e9)


def test_what_the_wall_is_ahead_is_read_between_two_looks():
    own = LeapingClock(start=50.0, wall=90.0)
    assert wall_ahead_s(own) == 40.0


SKEWED = """
import time
monotonic, wall = time.monotonic, time.time
time.monotonic = lambda: monotonic() + {skew}
time.time = lambda: wall() - 2 * {skew}
"""


@pytest.mark.parametrize("skew", [30.0, -30.0])
async def test_a_host_whose_clocks_are_half_a_minute_off(tmp_path, skew):
    (tmp_path / "sitecustomize.py").write_text(SKEWED.format(skew=skew))
    hosts = [HostSpec(name="far", env={"PYTHONPATH": str(tmp_path)}, heartbeat_s=0.5, silent_limit_s=60.0)]
    run_dir = tmp_path / "run"
    async with ActorSystem(run_dir, hosts=hosts, log_level="debug") as system:
        await system.spawn(
            ActorSpec(name="near", factory=Counter),
            *(ActorSpec(name=name, factory=Counter, host="far") for name in ("far", "late")),
        )
        ask = system.ref
        assert await ask("far").ask(Add(n=1), timeout_s=20) == Number(n=1), "it is not dropped as expired"
        assert await ask("far").ask(Via(peer="near", n=2), timeout_s=20) == Number(n=2), "nor is what it asks"

        end = tmp_path / "end"
        busy = asyncio.ensure_future(ask("late").ask(Hold(until=str(end)), timeout_s=60))
        await seen(system, "late", current="Hold")
        with pytest.raises(DeadlineExceeded):
            await ask("late").ask(Add(n=1), timeout_s=0.5)
        end.touch()
        await busy
        assert await ask("late").ask(Total(), timeout_s=20) == Number(n=0), "an ask that has expired is not carried out"

        before, wall = time.monotonic(), time.time()
        await ask("far").tell(Greet(text="x"))
        await ask("far").ask(Total(), timeout_s=20)
        after = time.monotonic()
        (greeted,) = read_logs(run_dir, event="example_greeted")
        assert before - 1.0 < greeted["t"] < after + 1.0
        assert abs(datetime.fromisoformat(greeted["ts"]).timestamp() - wall) < 1.0 + after - before
        *_, last = await logged(run_dir, "host_beats")
        assert 0.0 <= system._routes.hosts["far"].cpu_s < 60.0
    assert last["offset_s"] == pytest.approx(-skew, abs=1.0)
    assert not [line for line in read_logs(run_dir, event="stall") if line["cause"] == "silent"]


async def test_hosts_follow_a_wall_clock_that_is_set(tmp_path, monkeypatch):
    """What is logged before the next heartbeat may have the former time."""
    async with ActorSystem(tmp_path, hosts=[HostSpec(name="far", heartbeat_s=0.2)], log_level="debug") as system:
        await system.spawn(ActorSpec(name="far", factory=Counter, host="far"))
        ahead = time.time() - time.monotonic()
        monkeypatch.setattr("runtime.hosts.process.wall_ahead_s", lambda _: ahead + 1000.0)
        beats = len(list(read_logs(tmp_path, event="host_beats")))
        await logged(tmp_path, "host_beats", beats + 2)
        await system.ref("far").tell(Greet(text="x"))
        await system.ref("far").ask(Total(), timeout_s=20)
        (greeted,) = read_logs(tmp_path, event="example_greeted")
    assert datetime.fromisoformat(greeted["ts"]).timestamp() == pytest.approx(time.time() + 1000.0, abs=60.0)
