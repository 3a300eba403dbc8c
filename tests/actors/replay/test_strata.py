"""Which family and route a demonstration is tried of next."""

from __future__ import annotations

from actors.replay.rules.cold_start import TaskStratum, family_of, order, strata

A, B, C = (TaskStratum(family, "", [f"{family}/1"]) for family in "abc")


def test_a_task_is_of_the_family_before_its_first_slash() -> None:
    assert family_of("calc_sheet/train/7") == "calc_sheet"
    assert family_of("alone") == ""


def test_each_route_of_a_family_is_a_stratum_in_the_order_of_tasks() -> None:
    found = strata(["b/1", "a/1", "b/2"], {"b": ["keys", "mouse"]})
    assert found == [
        TaskStratum("b", "keys", ["b/1", "b/2"]),
        TaskStratum("b", "mouse", ["b/1", "b/2"]),
        TaskStratum("a", "", ["a/1"]),
    ]
    assert [one.name for one in found] == ["b/keys", "b/mouse", "a/"]


def test_what_holds_least_comes_first_and_of_equals_what_was_tried_least() -> None:
    assert order([A, B, C], {"a/": 1}, {}, most=30) == [B, C, A]
    assert order([A, B, C], {"a/": 2, "b/": 1, "c/": 1}, {"b/": 3, "c/": 2}, most=30) == [C, B, A]
    assert order([A, B], {}, {"a/": 1}, most=30) == [B, A]
    assert order([A, B], {"b/": 1}, {"b/": 1}, most=30) == [A, B]


def test_what_is_unknown_counts_as_none() -> None:
    assert order([A, B], {"a/": 1}, {"a/": 1}, most=30) == [B, A], "one was held, none comes first"
    assert order([B, A], {"a/": 0}, {"a/": 0}, most=30) == [B, A], "as they stand"
    assert order([B, A], {}, {"a/": 0, "b/": 0}, most=30) == [B, A]
    assert order([B, A], {"b/": 0}, {}, most=2) == [B, A], "none has used up its share of one"


def test_a_share_of_attempts_that_is_used_up_comes_last() -> None:
    assert order([A, B], {"b/": 9}, {"a/": 5}, most=10) == [B, A], "5 of 10 are its share of two"
    assert order([A, B], {"b/": 9}, {"a/": 4}, most=10) == [A, B]
    assert order([A, B], {"b/": 9}, {"a/": 5}, most=11) == [A, B], "a share is rounded up"
    assert order([A, B], {"b/": 9}, {"a/": 6}, most=11) == [B, A]
    assert order([A], {}, {"a/": 1}, most=2) == [A]
    assert order([B, A], {"a/": 9}, {"b/": 1}, most=2) == [A, B]
    assert order([], {}, {}, most=10) == []
