"""The ledger's decisions without a ledger."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import LedgerError
from actors.replay.config import TaskRange, TasksConfig, expand
from actors.replay.rules import groups
from actors.replay.rules.admission import Lineages, demos_wanted, may_open, serving_is_fresh
from actors.replay.rules.groups import (
    GroupEnding,
    GroupState,
    GroupStatus,
    Slot,
    SlotState,
    choose,
    minibatch,
    nth_of_epochs,
    place,
)
from runtime.errors import ConfigError
from runtime.settings import stable_seed
from tests.actors.replay.ledger_tools import v


def test_reservoir_is_uniform() -> None:
    """Each of 12 offers ends in a reservoir of 4 about a third of the time (binomial, six sigma)."""
    runs, offers, size = 3000, 12, 4
    kept: Counter[int] = Counter()
    for run in range(runs):
        held: dict[int, int] = {}
        for offer in range(offers):
            where = place(offer, size, stable_seed("test", run, offer))
            if where is not None:
                held[where] = offer
        assert len(held) == size
        kept.update(held.values())
    expected, sigma = runs * size / offers, (runs * (1 / 3) * (2 / 3)) ** 0.5
    assert all(abs(kept[offer] - expected) < 6 * sigma for offer in range(offers))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_minibatches_are_whole_epochs(size: int, per_batch: int, seed: int) -> None:
    epochs = 3
    drawn = [
        index for batch in range(-(-size * epochs // per_batch)) for index in minibatch(size, batch, per_batch, seed)
    ]
    for epoch in range(epochs):
        assert sorted(drawn[epoch * size : (epoch + 1) * size]) == list(range(size))
    assert minibatch(size, 2, per_batch, seed) == minibatch(size, 2, per_batch, seed)


def test_epochs_differ_and_need_items() -> None:
    order = [nth_of_epochs("abcdefgh", number, 1) for number in range(16)]
    assert order[:8] != order[8:]
    assert set(order[:8]) == set(order[8:]) == set("abcdefgh")
    with pytest.raises(ValueError, match="no items"):
        minibatch(0, 0, 1, 0)


@given(st.lists(st.integers(), unique=True, max_size=20), st.integers(0, 10), st.integers(0, 9))
def test_choose_keeps_order(items: list[int], count: int, seed: int) -> None:
    chosen = choose(items, count, seed)
    assert len(chosen) == min(count, len(items))
    assert [item for item in items if item in chosen] == chosen


@given(st.integers(0, 40), st.integers(0, 4), st.integers(1, 8), st.none() | st.integers(0, 10))
def test_admission(live: int, staleness: int, per_step: int, left: int | None) -> None:
    opens = may_open(live, staleness, per_step, left)
    assert opens == (live < (staleness + 1) * per_step and (left is None or live < left * per_step))


def test_serving() -> None:
    forked = Lineages({0: None, 1: v("0.3"), 2: v("1.5")})
    assert [forked.staleness(v("2.9"), v(one)) for one in ("0.3", "1.5", "2.9", "0.0")] == [6, 4, 0, 9]
    assert [forked.staleness(v("2.9"), v(one)) for one in ("0.4", "1.6", "2.10", "3.0")] == [None] * 4
    # A lineage that forked before its parent's own fork point: what lies between is not an ancestor.
    assert Lineages({0: None, 1: v("0.5"), 2: v("1.5")}).staleness(v("2.5"), v("0.5")) == 0
    tree = Lineages({0: None, 1: v("0.4")})
    assert not serving_is_fresh(None, v("0.0"), v("0.0"), 1, tree)
    assert not serving_is_fresh(v("0.2"), v("0.3"), v("0.3"), 1, tree)
    assert serving_is_fresh(v("0.3"), v("0.3"), v("0.4"), 1, tree)
    assert not serving_is_fresh(v("0.3"), v("0.3"), v("0.5"), 1, tree)
    assert serving_is_fresh(v("0.4"), v("0.3"), v("1.4"), 0, tree)
    assert not serving_is_fresh(v("0.5"), v("0.3"), v("1.4"), 1, tree)


def test_demos() -> None:
    assert demos_wanted(4, 2, 1, 9, 10)
    assert not demos_wanted(4, 2, 2, 9, 10)
    assert not demos_wanted(4, 2, 0, 10, 10)


def test_slots() -> None:
    slot = groups.reserve(Slot())
    with pytest.raises(LedgerError):
        groups.reserve(slot)
    freed = groups.release(slot, retries=1)
    assert freed == Slot(SlotState.FREE, 1)
    assert groups.release(groups.reserve(freed), retries=1).state is SlotState.LOST
    assert groups.release(groups.reserve(freed), retries=1, counts=False) == freed
    assert groups.commit(slot).state is SlotState.DONE
    with pytest.raises(LedgerError):
        groups.commit(freed)
    with pytest.raises(LedgerError, match="the slot is free, not out"):
        groups.release(freed, retries=1)


LIFE = {  # what a group in each state may become
    GroupState.OPEN: {"ready", "zero_variance", "lost", "phase_closed", "orphaned"},
    GroupState.READY: {"leased", "stale", "phase_closed", "orphaned"},
    GroupState.LEASED: {"ready", "trained", "zero_variance", "lost", "phase_closed", "orphaned"},
    GroupState.ENDED: set(),
}


@pytest.mark.parametrize("state", list(GroupState))
def test_a_group_s_life(state: GroupState) -> None:
    before = (
        GroupStatus(state=state, ending=GroupEnding.STALE, final=True) if state == "ended" else GroupStatus(state=state)
    )
    possible = set()
    for to in GroupState:
        try:
            assert groups.move(before, to) == GroupStatus(state=to)
        except LedgerError:
            continue
        possible.add(str(to))
    for ending in GroupEnding:
        try:
            after = groups.end(before, ending)
        except LedgerError:
            continue
        assert after == GroupStatus(state=GroupState.ENDED, ending=ending, final=ending is not GroupEnding.TRAINED)
        possible.add(str(ending))
    assert possible == LIFE[state]


def test_only_a_provisional_ending_is_confirmed_or_taken_back() -> None:
    provisional = groups.end(GroupStatus(state=GroupState.LEASED), GroupEnding.TRAINED)
    final = groups.confirm(provisional)
    assert final == GroupStatus(state=GroupState.ENDED, ending=GroupEnding.TRAINED, final=True)
    assert groups.take_back(provisional) == GroupStatus(state=GroupState.LEASED)
    stale = groups.end(GroupStatus(state=GroupState.READY), GroupEnding.STALE)
    for status in (final, stale, msgspec.structs.replace(stale, final=False), GroupStatus()):
        for change in (groups.confirm, groups.take_back):
            with pytest.raises(LedgerError, match="only a provisional"):
                change(status)


@given(st.lists(st.sampled_from(list(SlotState))), st.integers(0, 4))
def test_a_group_is_lost_or_complete_by_its_slots(states: list[SlotState], least: int) -> None:
    slots = [Slot(state) for state in states]
    assert groups.is_lost(slots, least) == (len(states) - states.count(SlotState.LOST) < least)
    assert groups.is_complete(slots) == (SlotState.FREE not in states and SlotState.OUT not in states)


def test_task_lists() -> None:
    def of_suite(wanted: TaskRange) -> list[str]:
        return [f"{wanted.suite}/{wanted.split}/{wanted.first}"]

    some = TaskRange(family="rename", split="train", count=2, first=5)
    assert expand(["a", some], of_suite) == ["a", "rename/train/5", "rename/train/6"]
    assert expand([TaskRange(suite="s", split="train", count=1, first=7)], of_suite) == ["s/train/7"]
    with pytest.raises(ConfigError, match="twice"):
        expand(["rename/train/0", TaskRange(family="rename", split="train", count=1)], of_suite)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "either a family or a suite"),
        ({"family": "a", "suite": "b"}, "either a family or a suite"),
        ({"family": "a", "untrained": True}, "untrained goes with a suite"),
        ({"family": "a", "count": 0}, r"^tasks\.count is 0: it counts from 1"),
        ({"family": "a", "first": -1}, r"^tasks\.first is -1: "),
    ],
)
def test_a_range_says_what_it_ranges_over(entry: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=said):
        TasksConfig(demo=["a/train/1", TaskRange(**{"split": "train", "count": 1, **entry})])
