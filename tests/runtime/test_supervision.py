"""Waits grow, restarts are counted, and parts that keep failing are left alone."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.supervision import (
    IN_A_ROW,
    Backoff,
    GiveUp,
    Quarantine,
    QuarantinePolicy,
    QuarantineState,
    Restart,
    RestartBudget,
    RestartPolicy,
    in_the_way,
)


def test_it_doubles_up_to_the_longest():
    backoff = Backoff(first_s=0.5, longest_s=3.0)
    assert [backoff.delay_s(failures) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert Backoff(first_s=1.0, longest_s=50.0, factor=3.0).delay_s(3) == 9.0


@given(
    failures=st.integers(0, 10**9),
    first_s=st.floats(0.0, 100.0),
    longest_s=st.floats(0.0, 1e6),
    factor=st.floats(1.0, 10.0),
)
def test_it_never_shrinks_and_never_overflows(failures: int, first_s: float, longest_s: float, factor: float):
    backoff = Backoff(first_s=first_s, longest_s=longest_s, factor=factor)
    assert 0.0 <= backoff.delay_s(failures) <= backoff.delay_s(failures + 1) <= longest_s
    assert math.isfinite(backoff.delay_s(failures))


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


POLICY = QuarantinePolicy(faults_in_a_row=3, first_probe_s=60.0, longest_probe_s=3600.0)


class QuarantineMachine(RuleBasedStateMachine):
    """One part, its uses in flight and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Quarantine()
        self.now = 0.0
        self.token = 0
        self.out: list[int] = []
        self.probes: set[int] = set()
        self.streak = 0

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def asks(self) -> None:
        if not self.part.usable(self.now):
            return
        self.token += 1
        if self.part.state is not QuarantineState.FREE:
            assert not self.probes & set(self.out), "one probe at a time"
            self.probes.add(self.token)
        self.part = self.part.began(self.token)
        self.out.append(self.token)

    @rule(data=st.data(), own=st.booleans())
    def breaks(self, data: st.DataObject, own: bool) -> None:
        if not self.out:
            return
        token = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before, self.part = self.part, self.part.faulted(token, POLICY, self.now, own=own)
        probe = token in self.probes and before.state is QuarantineState.PROBING
        if probe:
            assert self.part.state is QuarantineState.QUARANTINED
            wait_s = self.part.probe_at - self.now
            assert (wait_s == 0) == (not own)
            assert wait_s <= POLICY.longest_probe_s
        elif before.state is QuarantineState.FREE:
            self.streak += own
            assert (self.part.state is QuarantineState.QUARANTINED) == (self.streak >= POLICY.faults_in_a_row)
        else:
            assert self.part == before

    @rule(data=st.data())
    def comes_to_an_outcome(self, data: st.DataObject) -> None:
        if not self.out:
            return
        token = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before, self.part = self.part, self.part.ended(token, POLICY)
        if before.state is QuarantineState.FREE:
            self.streak = 0
        elif token in self.probes and before.state is QuarantineState.PROBING:
            assert self.part.state is QuarantineState.FREE, "a probe lets it back"
            self.streak = POLICY.faults_in_a_row - 1
        else:
            assert self.part == before, "nothing but a probe does"

    @invariant()
    def while_it_is_probed_nothing_else_uses_it(self) -> None:
        if self.part.state is QuarantineState.PROBING:
            assert not self.part.usable(self.now + 1e9)
        if self.part.state is QuarantineState.FREE:
            assert self.part.streak == self.streak < POLICY.faults_in_a_row


TestQuarantine = QuarantineMachine.TestCase
TestQuarantine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_its_edges() -> None:
    waiting = Quarantine(state=QuarantineState.QUARANTINED, streak=POLICY.faults_in_a_row, probe_at=10.0)
    assert (waiting.usable(9.9), waiting.usable(10.0)) == (False, True)
    probing = waiting.began(5)
    assert probing == Quarantine(state=QuarantineState.PROBING, streak=POLICY.faults_in_a_row, probe_at=10.0, probe=5)
    assert not probing.usable(99.0)
    assert probing.faulted(5, POLICY, 12.0, own=False) == Quarantine(
        state=QuarantineState.QUARANTINED, streak=POLICY.faults_in_a_row, probe_at=12.0
    )
    assert probing.faulted(4, POLICY, 12.0) == probing.ended(4, POLICY) == probing, "another use, which began before"
    free = probing.ended(5, POLICY)
    assert free == Quarantine(streak=POLICY.faults_in_a_row - 1)
    again = free.faulted(6, POLICY, 20.0)
    assert (again.state, again.probe_at, again.probe) == (QuarantineState.QUARANTINED, 20.0 + POLICY.first_probe_s, 0)
    assert free.ended(6, POLICY) == Quarantine()
    late = probing
    for failed in range(1, 40):
        late = late.faulted(5, POLICY, 0.0).began(5)
        assert late.probe_at == min(POLICY.longest_probe_s, POLICY.first_probe_s * 2.0**failed)


def test_the_oldest_of_an_address_makes_room_for_its_next_and_any_for_anothers() -> None:
    mine = dict.fromkeys(range(4), "192.0.2.1")
    full = mine | {9: "192.0.2.2"}

    def goes(waiting: dict[int, str], address: str) -> int | None:
        return in_the_way(waiting, address, most=5, of_address=4)

    assert goes({}, "192.0.2.1") is None
    assert goes(mine, "192.0.2.1") == 0
    assert goes(mine, "192.0.2.2") is None
    assert goes(full, "192.0.2.3") == 0
    assert goes(full | {0: "192.0.2.2"}, "192.0.2.2") == 0
