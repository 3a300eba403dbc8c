"""What a desktop in trouble is judged by: a fault needs a cause that the host has seen. Pure."""

import pytest
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

SILENT, LOST, NONSENSE = LinkState.SILENT, LinkState.LOST, LinkState.NONSENSE
CASES: list[tuple[dict[str, object], FaultCause | BrokenBy]] = [
    ({"link": SILENT}, BrokenBy.NO_ANSWER),
    ({"link": SILENT, "loop_lag_s": LOOP_LAG_MOST_S}, BrokenBy.NO_ANSWER),
    ({"link": SILENT, "loop_lag_s": LOOP_LAG_MOST_S + 0.1}, FaultCause.HOST_STALLED),
    ({"link": LOST, "loop_lag_s": LOOP_LAG_MOST_S + 0.1}, BrokenBy.LINK_CLOSED),
    ({"link": SILENT, "memory_left": MEMORY_LEFT_LEAST}, BrokenBy.NO_ANSWER),
    ({"link": SILENT, "memory_left": MEMORY_LEFT_LEAST / 2}, FaultCause.HOST_MEMORY),
    ({"link": LOST, "memory_left": MEMORY_LEFT_LEAST / 2}, BrokenBy.LINK_CLOSED),
    ({"link": LOST, "alive": False}, BrokenBy.SESSION_ENDED),
    ({"link": NONSENSE, "alive": False}, BrokenBy.NONSENSE),
    ({"link": NONSENSE, "oom_kills": 1, "limit_hits": 1}, BrokenBy.MEMORY_LIMIT),
    ({"link": LOST, "oom_kills": 1}, FaultCause.HOST_MEMORY),
    ({"link": LOST, "processes_refused": 1}, BrokenBy.PROCESS_LIMIT),
    ({"link": SILENT, "processes_refused": 1, "loop_lag_s": LOOP_LAG_MOST_S + 0.1}, BrokenBy.PROCESS_LIMIT),
    ({"link": LOST, "processes_refused": 1, "exit_signal": 9}, BrokenBy.PROCESS_LIMIT),
    ({"link": LOST, "processes_refused": 1, "oom_kills": 1}, FaultCause.HOST_MEMORY),
    ({"link": LOST, "processes_refused": 1, "oom_kills": 1, "limit_hits": 1}, BrokenBy.MEMORY_LIMIT),
    ({"link": LOST, "limit_hits": 1}, BrokenBy.LINK_CLOSED),
    ({"link": LOST, "oom_kills": 1, "limit_hits": 9, "alive": False, "exit_signal": 9}, BrokenBy.MEMORY_LIMIT),
    ({"link": NONSENSE, "memory_left": 0.0}, BrokenBy.NONSENSE),
    ({"ready": True, "link": LOST}, BrokenBy.LINK_CLOSED),
    ({"link": LOST, "exit_signal": 9}, FaultCause.SANDBOX_KILLED),
    ({"link": LOST, "exit_signal": 9, "reachable": False}, FaultCause.MACHINE_UNREACHABLE),
    ({"acted": False, "ready": True, "link": SILENT}, FaultCause.AGENT_SILENT),
    ({"acted": False, "ready": True, "link": LOST}, FaultCause.CONNECTION_LOST),
    ({"acted": False, "ready": True, "link": NONSENSE}, FaultCause.BOOT_FAILED),
    ({"acted": False, "ready": True, "link": LOST, "alive": False}, FaultCause.BOOT_FAILED),
    ({"acted": False, "link": SILENT}, FaultCause.BOOT_TIMEOUT),
    ({"acted": False, "link": SILENT, "alive": False}, FaultCause.BOOT_FAILED),
    ({"acted": False, "link": LOST}, FaultCause.BOOT_FAILED),
    ({"acted": False, "link": LOST, "processes_refused": 9}, FaultCause.BOOT_FAILED),
    ({"acted": False, "link": LOST, "oom_kills": 1, "limit_hits": 1}, FaultCause.BOOT_FAILED),
]


@pytest.mark.parametrize(("seen", "cause"), CASES, ids=repr)
def test_what_ended_it(seen: dict[str, object], cause: FaultCause | BrokenBy) -> None:
    found = Evidence(**{"acted": True, "detail": "d"} | seen)  # type: ignore[arg-type]
    assert cause_of(found) is cause
    error = error_for(found)
    assert isinstance(error, DesktopFault if isinstance(cause, FaultCause) else AgentBrokeDesktop)
    assert str(error).startswith(f"{cause}: ")


def test_every_cause_has_a_culprit() -> None:
    assert {cause.culprit for cause in FaultCause} == set(Culprit)


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
