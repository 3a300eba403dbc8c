"""Machines that others set up are used up to their seats, by however many processes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config.schema import SeatsConfig
from actors.desktop.config import MachineConfig, SshConfig
from runtime.errors import ConfigError


def machine(seats: int, name: str = "m") -> MachineConfig:
    return MachineConfig(host=name, user="u", client_key="k", host_key="h", desktops=seats)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4))
def test_processes_share_machines_without_going_beyond_their_seats(seats: list[int], processes: int) -> None:
    machines = [machine(count, f"m{n}") for n, count in enumerate(seats)]
    whole = SshConfig(machines=machines)
    shares = [whole.share(index, processes) for index in range(processes)]
    taken = Counter({one.host: 0 for one in machines})
    for share in shares:
        taken.update({one.host: one.desktops for one in share.machines})
    assert taken == {one.host: one.desktops for one in machines}
    assert max(share.desktops for share in shares) - min(share.desktops for share in shares) <= len(machines)


def test_machines_with_too_few_seats_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"desktops\.provider\.machines: of their 4 desktops, process 0 has 4, and"):
        SeatsConfig(count=4, warm_pool=1, provider=SshConfig(machines=[machine(4)]))
    two = SeatsConfig(count=2, processes=2, warm_pool=1, provider=SshConfig(machines=[machine(4)]))
    assert [two.of_one_host(index=index).provider.desktops for index in range(2)] == [2, 2]  # type: ignore[union-attr]
