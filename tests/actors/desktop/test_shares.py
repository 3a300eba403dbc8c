"""What each desktop may have, so that all of them together never have more than the machine. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.config import MEMORY_LEAST_MIB, OPEN_FILES_LEAST, PROCESSES_LEAST, SandboxConfig
from actors.desktop.providers.sandbox import shares
from actors.desktop.providers.sandbox.cgroups import GroupBounds
from actors.desktop.providers.sandbox.shares import Room, fitted, sums
from runtime.errors import ConfigError

ROOMS = st.builds(
    Room,
    memory_mib=st.integers(0, 1 << 20),
    processes=st.integers(0, 1 << 22),
    open_files=st.integers(0, 1 << 40),
    terminals=st.integers(0, 1 << 13),
)
CONFIGS = st.builds(
    SandboxConfig,
    memory_mib=st.integers(MEMORY_LEAST_MIB, 1 << 20),
    max_processes=st.integers(PROCESSES_LEAST, 1 << 22),
    open_files=st.integers(OPEN_FILES_LEAST, 1 << 20),
)
SMALL = Room(memory_mib=2048, processes=27_000, open_files=340_000, terminals=3072)  # one of 4 GiB


@given(CONFIGS, st.integers(1, 70_000), st.integers(0, 2000), ROOMS)
def test_the_sum_never_passes_what_is_there(config: SandboxConfig, seats: int, spares: int, there: Room) -> None:
    desktops = seats + spares
    if there.memory_mib // desktops < MEMORY_LEAST_MIB or there.processes // desktops < PROCESSES_LEAST:
        with pytest.raises(ConfigError, match=f"^desktops.count is {seats}: "):
            fitted(config, seats, spares, there)
        return
    each = fitted(config, seats, spares, there)
    assert each.memory_mib * desktops <= there.memory_mib
    assert each.max_processes * desktops <= there.processes
    assert MEMORY_LEAST_MIB <= each.memory_mib <= config.memory_mib
    assert PROCESSES_LEAST <= each.max_processes <= config.max_processes
    files, terminals = sums(config, seats, spares, there)[2:]
    assert files.total <= files.room or each.open_files == OPEN_FILES_LEAST
    assert terminals.total <= terminals.room or terminals.each == 4
    if config.memory_mib * desktops <= there.memory_mib and config.max_processes * desktops <= there.processes:
        assert (each.memory_mib, each.max_processes) == (config.memory_mib, config.max_processes)


@given(st.integers(1, 60_000), st.integers(0, 500), ROOMS)
def test_a_refusal_names_the_most_that_fits(seats: int, spares: int, there: Room) -> None:
    said = ""
    try:
        fitted(SandboxConfig(), seats, spares, there, key="--desktops")
    except ConfigError as error:
        said = str(error)
    _, named, most = said.partition("it is at most ")
    if named:
        fitted(SandboxConfig(), int(most.split(",")[0]), spares, there)
        seats = int(most.split(",")[0]) + 1
    if said:
        assert named or "too few for one" in said
        with pytest.raises(ConfigError):
            fitted(SandboxConfig(), seats if named else 1, spares, there)


def test_what_is_there_already_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "room", lambda: SMALL)
    monkeypatch.setattr(shares, "held", lambda: GroupBounds(1500 << 20, 30_000))
    assert shares.free() == Room(memory_mib=548, processes=0, open_files=340_000, terminals=3072)
