"""Restarts stay within their budget; spending it escalates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.clock import VirtualClock
from runtime.supervision import IN_A_ROW, GiveUp, Restart, RestartBudget, RestartPolicy

policies = st.builds(
    RestartPolicy,
    max_restarts=st.integers(0, 6),
    window_s=st.floats(1.0, 100.0),
    first_delay_s=st.floats(0.01, 5.0),
    factor=st.floats(1.0, 3.0),
    max_delay_s=st.floats(0.01, 20.0),
)


@given(policy=policies, gaps=st.lists(st.floats(0.0, 60.0), max_size=40))
def test_never_more_restarts_in_a_window_than_the_budget(policy, gaps):
    budget, now, restarts = RestartBudget("a", policy), 0.0, []
    for gap in gaps:
        now += gap
        decision = budget.on_failure(now, "defect")
        within = [t for t in restarts if now - t < policy.window_s]
        if isinstance(decision, GiveUp):
            in_a_row = len(restarts) >= IN_A_ROW * policy.max_restarts and "in a row" in decision.reason
            assert len(within) == policy.max_restarts or in_a_row
            assert "defect" in decision.reason
            return
        assert isinstance(decision, Restart)
        assert 0 <= decision.delay_s <= policy.max_delay_s
        restarts.append(now)
        assert len(within) + 1 <= policy.max_restarts


@given(policy=policies, start_s=st.floats(0.0, 400.0), share=st.floats(0.0, 0.99))
def test_a_part_that_fails_soon_after_every_start_is_given_up_however_slowly_it_starts(policy, start_s, share):
    budget, now = RestartBudget("a", policy), 0.0
    for _ in range(1, IN_A_ROW * policy.max_restarts + 2):
        now += start_s
        budget.up(now)
        now += share * policy.window_s
        if isinstance(budget.on_failure(now, "defect"), GiveUp):
            break
    else:
        raise AssertionError("it flaps for ever")
    never_up = RestartBudget("b", policy)
    found = [never_up.on_failure(500.0 * n, "no start") for n in range(IN_A_ROW * policy.max_restarts + 1)]
    assert isinstance(found[-1], GiveUp)


def test_a_part_that_works_for_long_between_failures_goes_on():
    budget, now = RestartBudget("a", RestartPolicy(max_restarts=2, window_s=10)), 0.0
    for _ in range(100):
        budget.up(now)
        now += 10.0
        assert isinstance(budget.on_failure(now, "x"), Restart)


def test_delays_grow_and_a_quiet_window_resets_them():
    budget = RestartBudget("a", RestartPolicy(max_restarts=4, window_s=10, first_delay_s=1, factor=2, max_delay_s=3))
    delays = [budget.on_failure(t, "x").delay_s for t in (0.0, 1.0, 2.0)]
    assert delays == [1, 2, 3]
    assert budget.on_failure(50.0, "x") == Restart(1)


def test_what_a_restart_can_not_cure_escalates_at_once():
    decision = RestartBudget("a", RestartPolicy()).on_failure(0.0, "bad setting", curable=False)
    assert decision == GiveUp("a: bad setting")


async def test_the_virtual_clock_wakes_sleepers_in_order():
    import asyncio

    clock, woken = VirtualClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.now()))

    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0, 0.0):
            group.create_task(sleeper(seconds))
        await clock.advance(2.5)
        assert woken == [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]
        before = clock.wall()
        await clock.advance(0.5)
        assert clock.wall() - before == 0.5
    assert woken[-1] == (3.0, 3.0)
