"""Faults need a cause that the host has seen; the rest is the policy's doing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.faults import (
    LOOP_LAG_MOST_S,
    MEMORY_LEFT_LEAST,
    BrokenBy,
    Culprit,
    Evidence,
    FaultCause,
    LinkState,
    cause_of,
    error_for,
)
from actors.errors import AgentBrokeDesktop, DesktopFault

seens = st.builds(
    Evidence,
    acted=st.booleans(),
    ready=st.booleans(),
    link=st.sampled_from(LinkState),
    alive=st.booleans(),
    exit_signal=st.sampled_from([0, 9, 15]),
    oom_kills=st.integers(0, 2),
    limit_hits=st.integers(0, 2),
    processes_refused=st.integers(0, 2),
    reachable=st.booleans(),
    memory_left=st.floats(0, 1),
    loop_lag_s=st.floats(0, 20),
    detail=st.text(max_size=5),
)


@given(seens)
def test_before_the_first_action_nobody_else_is_to_blame(seen: Evidence):
    if not seen.acted:
        assert isinstance(error_for(seen), DesktopFault)


@given(seens)
def test_a_fault_after_an_action_has_a_cause_on_the_host(seen: Evidence):
    evidence = (
        not seen.reachable
        or seen.exit_signal != 0
        or (seen.oom_kills > 0 and seen.limit_hits == 0)
        or seen.memory_left < MEMORY_LEFT_LEAST
        or seen.loop_lag_s > LOOP_LAG_MOST_S
    )
    error = error_for(seen)
    if seen.acted and not evidence:
        assert isinstance(error, AgentBrokeDesktop)
        assert BrokenBy(error.cause)
    if isinstance(error, DesktopFault):
        assert evidence or not seen.acted
        assert Culprit(error.culprit) is FaultCause(error.cause).culprit


def test_the_guest_can_not_buy_a_fault_with_memory_or_silence():
    greedy = Evidence(acted=True, link=LinkState.LOST, oom_kills=3, limit_hits=40, alive=False)
    assert cause_of(greedy) is BrokenBy.MEMORY_LIMIT
    killed = Evidence(acted=True, link=LinkState.LOST, oom_kills=1, limit_hits=9, alive=False, exit_signal=9)
    assert cause_of(killed) is BrokenBy.MEMORY_LIMIT, "a signal that comes of its own limit is its own doing"
    forks = Evidence(acted=True, link=LinkState.SILENT, processes_refused=70, loop_lag_s=9.0, memory_left=0.0)
    assert cause_of(forks) is BrokenBy.PROCESS_LIMIT, "what stalls the host is the doing of who wants more than it may"
    assert cause_of(Evidence(acted=True, link=LinkState.SILENT)) is BrokenBy.NO_ANSWER
    assert cause_of(Evidence(acted=True, link=LinkState.NONSENSE, memory_left=0.0)) is BrokenBy.NONSENSE


def test_before_the_first_action_a_hang_and_a_lost_connection_have_names_of_their_own():
    for ready, silent, lost in ((True, "agent_silent", "connection_lost"), (False, "boot_timeout", "boot_failed")):
        assert cause_of(Evidence(acted=False, ready=ready, link=LinkState.SILENT)) == silent
        assert cause_of(Evidence(acted=False, ready=ready, link=LinkState.LOST)) == lost
    assert cause_of(Evidence(acted=False, ready=True, link=LinkState.LOST, alive=False)) is FaultCause.BOOT_FAILED
    assert cause_of(Evidence(acted=True, ready=True, link=LinkState.LOST)) is BrokenBy.LINK_CLOSED


def test_every_cause_has_a_culprit():
    assert {cause.culprit for cause in FaultCause} == set(Culprit)
