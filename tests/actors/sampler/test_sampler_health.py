"""No request reaches an engine whose weights were not read back after it last came up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.sampler.health import EngineHealth, EngineState
from runtime.messaging.message import Version

OLD, NEW, OTHER = (Version(lineage=0, step=step) for step in range(1, 4))
VERSIONS = st.sampled_from([OLD, NEW, OTHER])
READ_BACK = st.tuples(st.none() | VERSIONS, VERSIONS, st.booleans())
HEALTHY = EngineHealth().answered().read_back(OLD, OLD)


@given(st.lists(st.sampled_from(["answered", "lost", "succeeded"]) | READ_BACK, max_size=40))
def test_healthy_only_after_a_read_back_and_only_an_answered_request_ends_a_streak(events):
    health, read_back, up, streak = EngineHealth(), None, False, 0
    for event in events:
        before = health
        if isinstance(event, tuple):
            version, asked, sound = event
            health = health.read_back(version, asked, sound=sound)
            read_back = version if up and sound else None
        else:
            health = getattr(health, event)()
            up = event == "answered" or (up and event != "lost")
            read_back = None if event == "lost" else read_back
            streak = streak + 1 if event == "lost" else streak
            streak = 0 if event == "succeeded" and before.state is EngineState.HEALTHY else streak
        assert (before.state, health.state) != (EngineState.DEAD, EngineState.HEALTHY)
        assert (health.served is not None) == (health.state is EngineState.HEALTHY)
        if health.state is EngineState.HEALTHY:
            assert health.served == read_back
        assert health.streak == streak


def test_what_was_asked_for_is_served_and_nothing_else_in_its_place():
    assert (HEALTHY.state, HEALTHY.served) == (EngineState.HEALTHY, OLD)
    assert HEALTHY.read_back(OLD, NEW) == HEALTHY, "newer weights on their way stop no requests"
    assert HEALTHY.read_back(NEW, NEW).served == NEW
    for version in (OTHER, None):
        assert (health := HEALTHY.read_back(version, NEW)).state is EngineState.STALE
        assert health.served is None
    stale = HEALTHY.read_back(NEW, NEW, sound=False)
    assert (stale.state, stale.served) == (EngineState.STALE, None)
    assert stale.answered().succeeded() == stale.read_back(OLD, NEW) == stale
    assert stale.read_back(NEW, NEW).served == NEW


def test_losses_are_counted_once():
    assert HEALTHY.lost().losses == HEALTHY.lost().lost().losses == 1
