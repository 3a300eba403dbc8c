"""No request reaches an engine whose weights were not read back after it last came up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.sampler.health import (
    Answered,
    EngineHealth,
    EngineLost,
    EngineState,
    LoadRefused,
    ReadBack,
    Succeeded,
    Targeted,
)
from runtime.messaging.message import Version

VERSIONS = st.builds(Version, lineage=st.integers(0, 1), step=st.integers(0, 2))
EVENTS = st.one_of(
    st.just(Answered()),
    st.just(EngineLost()),
    st.just(Succeeded()),
    st.builds(ReadBack, st.none() | VERSIONS, st.booleans(), st.none() | VERSIONS),
    st.builds(Targeted, VERSIONS, st.booleans()),
    st.builds(LoadRefused, VERSIONS),
)


@given(target=VERSIONS, events=st.lists(EVENTS, max_size=40))
def test_healthy_only_after_a_read_back(target, events):
    health = EngineHealth(target=target)
    read_back: Version | None = None  # since it last came up
    answered = False
    for event in events:
        before, health = health, health.after(event)
        if isinstance(event, EngineLost):
            read_back, answered = None, False
        elif isinstance(event, Answered):
            answered = True
        elif isinstance(event, ReadBack) and answered:
            read_back = event.version if event.sound else None
        assert (before.state, health.state) != (EngineState.DEAD, EngineState.HEALTHY)
        assert (health.served is not None) == (health.state is EngineState.HEALTHY)
        if health.state is EngineState.HEALTHY:
            assert health.served == read_back
        if not isinstance(event, LoadRefused) and not (isinstance(event, Targeted) and event.exact):
            assert health.target >= before.target


@given(events=st.lists(EVENTS, max_size=40))
def test_only_an_answered_request_ends_a_streak_of_failures(events):
    health, streak = EngineHealth(target=Version(lineage=0, step=0)), 0
    for event in events:
        before, health = health, health.after(event)
        if isinstance(event, EngineLost):
            streak += 1
        elif isinstance(event, Succeeded) and before.state is EngineState.HEALTHY:
            streak = 0
        assert health.streak == streak


def healthy(version: Version) -> EngineHealth:
    return EngineHealth(target=version).after(Answered()).after(ReadBack(version))


def test_newer_weights_do_not_stop_requests():
    old, new = Version(lineage=0, step=1), Version(lineage=0, step=2)
    health = healthy(old).after(Targeted(new))
    assert (health.state, health.served) == (EngineState.HEALTHY, old)
    assert health.after(ReadBack(old)) == health
    assert health.after(ReadBack(new)).served == new
    assert health.after(LoadRefused(new)).target == old


def test_a_load_that_newer_weights_overtook_serves_until_they_are_loaded():
    first, second, third = (Version(lineage=0, step=step) for step in range(3))
    health = healthy(first).after(Targeted(second)).after(Targeted(third)).after(ReadBack(second, asked=second))
    assert (health.state, health.served, health.target) == (EngineState.HEALTHY, second, third)
    assert health.after(ReadBack(first, asked=third)).state is EngineState.STALE


def test_weights_nobody_told_it_make_an_engine_stale():
    health = healthy(Version(lineage=0, step=1)).after(ReadBack(Version(lineage=5, step=5)))
    assert (health.state, health.served) == (EngineState.STALE, None)
    assert healthy(Version(lineage=0, step=1)).after(ReadBack(None)).state is EngineState.STALE


def test_losses_are_counted_once():
    health = healthy(Version(lineage=0, step=1)).after(EngineLost()).after(EngineLost())
    assert health.losses == 1


def test_wrong_weights_are_not_asked_for_anything_until_they_were_loaded_again():
    old, new = Version(lineage=0, step=1), Version(lineage=0, step=2)
    health = healthy(old).after(Targeted(new)).after(ReadBack(new, sound=False))
    assert (health.state, health.served, health.target) == (EngineState.STALE, None, new)
    assert health.after(Answered()).after(Succeeded()) == health
    assert health.after(ReadBack(new)).served == new


def test_an_engine_that_holds_one_version_goes_back_for_a_pin():
    old, new = Version(lineage=0, step=1), Version(lineage=0, step=2)
    health = healthy(new).after(Targeted(old))
    assert health.target == new
    health = health.after(Targeted(old, exact=True))
    assert (health.target, health.served) == (old, new)
    assert health.after(ReadBack(old)).served == old
