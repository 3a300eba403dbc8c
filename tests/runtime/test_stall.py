"""Waits are registered and end; what does not move is reported once, by name."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from example_actors import Counter, Hold  # noqa: E402

from runtime.errors import DeadlineExceeded, ProtocolError  # noqa: E402
from runtime.logs.reader import read_logs  # noqa: E402
from runtime.system import ActorSpec, ActorSystem, HostSpec  # noqa: E402
from runtime.waits import GRACE_S, Busy, PendingWait, diagnose, waiting, waits_now  # noqa: E402  # noqa: E402


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
    found = {one.cause: one for one in diagnose(now, [(1, wait)], [busy])}
    assert ("overdue" in found) == (now > since + left + GRACE_S)
    assert ("busy" in found) == (now - since > limit)
    for one in found.values():
        assert (one.who, one.what, one.whom, one.waited_s) == ("a", "Ping", "b", now - since)


async def stall(run_dir: Path, cause: str) -> dict:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for line in read_logs(run_dir, event="stall"):
            if line["cause"] == cause:
                return line
        await asyncio.sleep(0.05)
    raise AssertionError(f"no stall is {cause}")


@pytest.mark.parametrize("host", ["main", "one"])
async def test_a_busy_actor_is_reported_once(tmp_path, host):
    hosts = [HostSpec(name="one", env={"PYTHONPATH": str(HERE)})]
    async with ActorSystem(tmp_path, hosts=hosts, stall_after_s=0.2) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host=host))
        asking = asyncio.ensure_future(
            system.ref("a").ask(Hold(until=str(tmp_path / "end")), timeout_s=60, trace="g3.1")
        )
        busy = await stall(tmp_path, "busy")
        assert (busy["who"], busy["what"], busy["whom"], busy["trace"]) == ("system", "Hold", "a", "g3.1")
        (tmp_path / "end").touch()
        await asking
    assert [line["cause"] for line in read_logs(tmp_path, event="stall")].count("busy") == 1


async def test_a_host_whose_loop_is_blocked_is_reported(tmp_path):
    hosts = [HostSpec(name="one", env={"PYTHONPATH": str(HERE)})]
    async with ActorSystem(tmp_path, hosts=hosts, stall_after_s=0.3) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter, host="one"))
        end = tmp_path / "end"
        asking = asyncio.ensure_future(system.ref("a").ask(Hold(until=str(end), block=True), timeout_s=60))
        assert (await stall(tmp_path, "silent"))["whom"] == "host/one"
        end.touch()
        await asking
