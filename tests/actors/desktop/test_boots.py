"""How many desktops boot at once: what the deploy file says, else what the machine or machines bear."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster.config.schema import SeatsConfig
from actors.desktop.config import DesktopsConfig, MachineConfig, PoolConfig, SandboxConfig, SshConfig
from actors.desktop.pool.pool import BOOTS_LEAST, DesktopPool, PoolPlan, boots_at_once


def test_a_plan_boots_as_many_at_once_as_it_is_told() -> None:
    assert PoolPlan(PoolConfig(warm_pool=100)).to_start(0.0) == BOOTS_LEAST
    assert PoolPlan(PoolConfig(warm_pool=100, boots_at_once=5)).to_start(0.0) == 5


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


def test_a_deploy_files_setting_reaches_each_process() -> None:
    pool = SeatsConfig(count=8, processes=2, boots_at_once=3).of_one_host(index=1).pool
    assert (pool.boots_at_once, pool.processes) == (3, 2)
    assert SeatsConfig().of_one_host().pool.boots_at_once is None
