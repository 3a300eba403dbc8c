"""The pool's plan under every order of events: what is booted, and when it waits."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.desktop.config import PoolConfig
from actors.desktop.pool.pool import PoolPlan


class PlanMachine(RuleBasedStateMachine):
    """Drives a plan as a pool does: after each event it starts what the plan wants."""

    def __init__(self) -> None:
        super().__init__()
        self.config = PoolConfig(warm_pool=2, boots_at_once=2, first_backoff_s=0.5, longest_backoff_s=4.0)
        self.plan = PoolPlan(self.config)
        self.now = 0.0
        self.silent_until = 0.0
        self.failures = 0
        self.tend()

    def tend(self) -> None:
        wanted = self.plan.to_start(self.now)
        assert wanted == 0 or self.now >= self.silent_until
        for _ in range(wanted):
            self.plan.started()

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]))  # exact in binary
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tend()

    @rule()
    def somebody_waits(self) -> None:
        self.plan.waiting += 1
        self.tend()

    @precondition(lambda self: self.plan.waiting)
    @rule()
    def somebody_gives_up(self) -> None:
        self.plan.waiting -= 1
        self.tend()

    @precondition(lambda self: self.plan.ready)
    @rule()
    def one_is_taken(self) -> None:
        self.plan.taken()
        self.tend()

    @precondition(lambda self: self.plan.booting)
    @rule()
    def boot_succeeds(self) -> None:
        self.plan.booted()
        self.failures = 0
        self.silent_until = self.now
        if self.plan.waiting:
            self.plan.taken()
            self.plan.waiting -= 1
        self.tend()

    @precondition(lambda self: self.plan.booting)
    @rule()
    def boot_fails(self) -> None:
        again_s = self.plan.failed(self.now)
        assert again_s == min(4.0, 0.5 * 2**self.failures)
        assert self.plan.pause_s(self.now) >= again_s
        self.failures += 1
        self.silent_until = max(self.silent_until, self.now + again_s)
        self.tend()

    @rule(delay_s=st.sampled_from([0.25, 1.0, 8.0]))
    def a_probe_is_wanted(self, delay_s: float) -> None:
        self.plan.probe_after(self.now, delay_s)
        self.silent_until = max(self.silent_until, self.now + delay_s)
        self.tend()

    @invariant()
    def a_probe_is_made(self) -> None:
        due = self.plan.probing and self.now >= self.silent_until
        assert not due or self.plan.booting > 0

    @invariant()
    def bounded(self) -> None:
        plan = self.plan
        assert 0 <= plan.booting <= self.config.boots_at_once
        assert plan.ready >= 0
        if self.now >= self.silent_until and not self.failures and not plan.probing:
            lacking = self.config.warm_pool + plan.waiting - plan.ready - plan.booting
            assert lacking <= 0 or plan.booting == self.config.boots_at_once  # nobody waits for nothing


TestPlan = PlanMachine.TestCase
TestPlan.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
