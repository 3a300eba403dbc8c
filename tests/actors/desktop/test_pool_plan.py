"""The pool's plan under every order of events: what is booted, and when it waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.desktop.config import DesktopsConfig, MachineConfig, PoolConfig, SandboxConfig, SshConfig
from actors.desktop.pool.pool import DesktopPool, PoolPlan, boots_at_once


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


@pytest.mark.parametrize(
    ("processes", "cores", "memory_mib", "boots"),
    [(1, 1, 1 << 20, 2), (1, 15, 1 << 20, 3), (1, 64, 1 << 20, 16), (4, 64, 1 << 20, 4), (64, 64, 1 << 20, 2),
     (1, 64, 2048, 8), (1, 64, 100, 2)],
)  # fmt: skip
def test_a_machine_boots_what_its_processors_and_memory_bear(
    processes: int, cores: int, memory_mib: int, boots: int
) -> None:
    assert boots_at_once(SandboxConfig(), processes, cores, memory_mib) == boots


@pytest.mark.parametrize(
    ("desktops", "processes", "boots"),
    [([4], 1, 2), ([40], 1, 5), ([250], 1, 10), ([250, 80, 8], 1, 21), ([250], 4, 2)],
)
def test_ssh_machines_boot_what_they_bear_whatever_this_one_has(
    desktops: list[int], processes: int, boots: int
) -> None:
    provider = SshConfig(
        machines=[
            MachineConfig(host=f"m{n}", user="u", client_key="k", host_key="h", desktops=count)
            for n, count in enumerate(desktops)
        ]
    )
    for index in range(processes):
        assert boots_at_once(provider.share(index, processes), processes, cores=1, memory_mib=0) == boots


async def test_an_opened_pool_takes_the_setting_or_what_the_machine_bears(
    state_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)))
    for said, boots in ((None, 3), (1, 1)):
        pool = DesktopPool.open(
            DesktopsConfig(
                provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0, boots_at_once=said)
            ),
            tmp_path,
        )
        opened = await pool
        assert opened._plan._boots == boots
        await opened.close()
