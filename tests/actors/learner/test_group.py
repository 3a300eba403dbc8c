"""Who comes into a group: waits are bounded, ranks fit together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.learner.broadcast import CollectiveGroup
from runtime.messaging.message import Version

VERSION = Version(lineage=0, step=3)
NAMES = ["a", "b", "c", "d"]
JOIN_S = 5.0
EVENTS = st.lists(
    st.tuples(st.sampled_from(["join", "pass"]), st.sampled_from(NAMES), st.integers(1, 4), st.floats(0, 2)),
    max_size=12,
)


@given(st.sets(st.sampled_from(NAMES)), EVENTS)
def test_whoever_comes_and_goes(told: set[str], events: list[tuple[str, str, int, float]]) -> None:
    group, now, here, since = CollectiveGroup(version=VERSION, awaited=frozenset(told)), 0.0, dict[str, int](), 0.0
    expected = set(told)
    for kind, name, ranks, after in events:
        now += after
        expected.discard(name)
        if kind == "join":
            since = now if not here else since
            here[name] = ranks
            group = group.with_member(name, ranks, now)
        else:
            here.pop(name, None)
            group = group.without([name])
        left_s = group.waits_s(now, JOIN_S)
        assert (left_s is None) == (not here)
        if here:
            assert left_s is not None
            assert left_s <= JOIN_S + 1e-9
            assert (left_s == 0) == (not expected or now >= since + JOIN_S)
            assert group.waits_s(since + JOIN_S, JOIN_S) == 0
        taken = [group.places()[one] + i for one in here for i in range(here[one])]
        assert sorted(taken) == list(range(1, group.ranks + 1))


def test_a_group_is_complete_when_nobody_is_awaited() -> None:
    group = CollectiveGroup(version=VERSION, awaited=frozenset(["a", "b"]))
    assert group.waits_s(0.0, JOIN_S) is None
    group = group.with_member("a", 2, 1.0)
    assert group.waits_s(2.0, JOIN_S) == 4.0
    assert group.without(["b"]).waits_s(2.0, JOIN_S) == 0
    assert group.with_member("b", 1, 2.0).places() == {"a": 1, "b": 3}
    assert group.without(["a"]).waits_s(2.0, JOIN_S) is None
