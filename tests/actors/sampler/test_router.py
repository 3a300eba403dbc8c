"""Requests go to the engine with the least to do, an episode's where its first one went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.sampler.router import HIT, MOVED, NEW, Router, RouterConfig

NAMES = ["a", "b", "c"]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["", "x", "y", "z"]), st.integers(1, 5000)),
        st.tuples(st.just("end"), st.integers(0, 50), st.booleans()),
        st.tuples(st.just("pass"), st.floats(0.0, 20.0), st.none()),
    ),
    max_size=60,
)


@given(ACTS)
def test_accounts_hold_what_is_outstanding_and_nothing_goes_to_an_engine_that_is_down(acts) -> None:
    router, now, sent = Router(NAMES, RouterConfig()), 0.0, []
    for kind, first, second in acts:
        if kind == "pass":
            now += first
        elif kind == "ask":
            before = {name: engine.outstanding for name, engine in router.engines.items()}
            choice = router.choose(first, second, now)
            up = [name for name, engine in router.engines.items() if engine.down_until <= now]
            assert (choice is None) == (not up)
            if choice is None:
                assert router.next_up_s(now) > 0
                continue
            assert choice.name in up
            least = min(before[name] for name in up)
            assert before[choice.name] == least or choice.affinity == HIT
            assert before[choice.name] <= least + RouterConfig().slack_tokens
            sent.append((choice.name, second))
        elif sent:
            name, tokens = sent.pop(first % len(sent))
            router.ended(name, tokens)
            if second:
                router.answered(name)
            else:
                router.failed(name, now)
        for name, engine in router.engines.items():
            assert engine.outstanding == sum(tokens for other, tokens in sent if other == name)


def test_an_episode_returns_to_its_engine_until_that_is_down_or_far_busier() -> None:
    router = Router(NAMES, RouterConfig(slack_tokens=100))
    first = router.choose("x", 50, 0.0)
    assert first is not None
    assert first.affinity == NEW
    again = router.choose("x", 50, 0.0)
    assert again is not None
    assert (again.name, again.affinity) == (first.name, HIT)
    router.failed(first.name, 0.0)
    moved = router.choose("x", 50, 0.1)
    assert moved is not None
    assert moved.affinity == MOVED
    assert moved.name != first.name
    for _ in range(3):
        router.choose("", 400, 0.1, without=[name for name in NAMES if name != moved.name])
    away = router.choose("x", 1, 0.1)
    assert away is not None
    assert (away.name != moved.name, away.affinity) == (True, MOVED)


def test_pauses_grow_until_it_answers() -> None:
    router = Router(["a"], RouterConfig(first_pause_s=1.0, longest_pause_s=3.0))
    pauses, now = [], 10.0
    for _ in range(4):
        for _ in range(6):  # all the requests that were on their way
            router.failed("a", now)
        pauses.append(router.next_up_s(now))
        now += pauses[-1]
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    router.failed("a", now)
    router.answered("a")
    assert router.next_up_s(now) == 0.0


def test_few_affinities_are_remembered() -> None:
    router = Router(["a"], RouterConfig(remembered=2))
    for name in "xyz":
        router.choose(name, 1, 0.0)
    assert router.choose("x", 1, 0.0).affinity == NEW  # type: ignore[union-attr]
    assert router.choose("z", 1, 0.0).affinity == HIT  # type: ignore[union-attr]
