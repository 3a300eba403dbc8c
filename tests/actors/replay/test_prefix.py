"""Groups that begin after the first steps of a success: when, after how many, and what counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.database import queries
from actors.replay.database.auditing import audit
from actors.replay.ledger import retention, task_choice
from actors.replay.messages import Reservation
from actors.replay.rules.groups import prefix_steps
from tests.actors.replay.ledger_tools import Play, settings


def play(folder: Path, **more: Any) -> Play:
    rules = {"prefix_replay": 1.0, "max_staleness": 9} | more
    return Play(folder, msgspec.structs.replace(settings(**rules), train_tasks=["a/0"])).rl()


@pytest.mark.parametrize(
    ("steps", "seen", "begun"),
    [
        (4, {0: (0, 2)}, 2),  # 1/4 from the start: (1/4) ** (2/4) is 1/2
        (4, {0: (0, 14)}, 3),  # 1/16: (1/16) ** (1/4)
        (2, {0: (1, 4)}, 1),  # 1/3: 0.58 after one of two steps
        (8, {0: (0, 999)}, 7),  # 0.42 after seven, and one step is left
        (5, {0: (0, 0)}, 0),  # nothing is known
        (5, {0: (8, 8)}, 0),  # a prefix would only make it easier
        (1, {0: (0, 9)}, 0),
        # 1/6 from the start. Of 4 steps: 0.26, 0.41 and 0.64 after 1, 2 and 3; but all four after 2 succeeded: 0.80.
        (4, {0: (0, 4), 2: (4, 4)}, 1),
        (4, {0: (0, 4), 1: (0, 4), 2: (4, 4)}, 2),  # 0.09 after 1
        (4, {0: (0, 4), 2: (0, 8)}, 3),  # 0.08 after 2
    ],
)
def test_the_prefix_leaves_about_one_half(steps: int, seen: dict[int, tuple[int, int]], begun: int) -> None:
    assert prefix_steps(steps, seen) == begun


SEEN = st.dictionaries(st.integers(0, 9), st.integers(0, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))


@given(st.integers(1, 12), SEEN)
def test_what_is_solved_half_the_time_begins_at_the_start(steps: int, seen: dict[int, tuple[int, int]]) -> None:
    won, played = seen.get(0, (0, 0))
    begun = prefix_steps(steps, seen)
    assert 0 <= begun < steps
    assert begun == 0 or 2 * won < played


@given(st.integers(2, 12), st.integers(1, 200))
def test_where_the_start_alone_is_known_success_comes_nearer_to_one_half(steps: int, played: int) -> None:
    success = 1 / (played + 2)
    after = success ** ((steps - prefix_steps(steps, {0: (0, played)})) / steps)
    assert abs(after - 0.5) <= abs(success - 0.5)


def test_a_group_begins_after_a_success_where_its_task_is_solved_less_than_half_the_time(tmp_path: Path) -> None:
    ledger = play(tmp_path)
    ledger.group([True, False])  # (1 + 1) / (2 + 2): half the time
    work = ledger.reserve()
    assert work.prefix == []
    for each in (work, ledger.reserve()):
        ledger.commit(each, False)  # (1 + 1) / (4 + 2)
    first, second = ledger.reserve(), ledger.reserve()
    (solved,) = ledger.ledger.tx.rows("SELECT token, seq FROM episodes WHERE success")
    ref = retention.load_steps(ledger.ledger.tx, solved["token"])[0]
    assert first.prefix == second.prefix == [ref.blob], "one of its two steps"
    assert first.group == second.group


def prefixed(ledger: Play) -> tuple[Reservation, Reservation]:
    ledger.group([True, False])
    ledger.group([False, False])
    return ledger.reserve(), ledger.reserve()


def test_no_figure_of_what_is_solved_counts_what_began_after_a_prefix(tmp_path: Path) -> None:
    ledger = play(tmp_path, groups_per_step=2)
    first, second = prefixed(ledger)
    before = task_choice.played(ledger.ledger.tx, 0, 99)
    ledger.commit(first, True)
    ledger.commit(second, False)
    assert task_choice.played(ledger.ledger.tx, 0, 99) == before
    batch = ledger.batch()
    assert [group.prefix for group in batch.groups] == [0, 1]
    ledger.trained(batch)
    seen = ledger.figures().evidence
    assert seen is not None
    assert (seen.success, seen.pass_at_1, seen.equal_groups) == (1 / 4, 1 / 4, 1 / 2)
    assert (seen.prefixed, seen.prefixed_success) == (1 / 2, 1 / 2)
    rows = {row["token"]: row for row in queries.episodes(ledger.ledger.tx.connection)}
    source = ledger.ledger.tx.number("SELECT prefix_of FROM groups WHERE prefix")
    assert rows[first.token]["whereto"] == f"rl after 1 steps of {source}"
    assert {row["whereto"] for token, row in rows.items() if token < first.token} == {"rl"}


def test_a_step_of_prefixed_groups_alone_has_their_success(tmp_path: Path) -> None:
    ledger = play(tmp_path)
    first, second = prefixed(ledger)
    ledger.trained(ledger.batch())
    ledger.commit(first, True)
    ledger.commit(second, False)
    ledger.trained(ledger.batch())
    seen = ledger.figures().evidence
    assert seen is not None
    assert (seen.success, seen.sampled_entropy_nats, seen.pass_at_1) == (0.5, None, None)
    assert (seen.prefixed, seen.prefixed_success) == (1.0, 0.5)


def test_neither_a_prefix_nor_a_replayed_success_comes_of_an_episode_that_began_in_the_middle(tmp_path: Path) -> None:
    ledger = play(tmp_path, success_replay=True)
    first, second = prefixed(ledger)
    whole = ledger.ledger.tx.number("SELECT prefix_of FROM groups WHERE prefix")
    ledger.commit(first, True)
    ledger.commit(second, False)
    tx = ledger.ledger.tx
    assert task_choice.prefix(tx, "a/0") == (whole, 1)
    group = tx.row("SELECT * FROM groups ORDER BY id LIMIT 1 OFFSET 1")
    assert group is not None
    assert retention.kept_success(tx, group) == whole


def test_a_posterior_baseline_takes_one_half_where_a_prefix_was_chosen_for_it(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        settings(prefix_replay=1.0, max_staleness=9), train_tasks=["a/0"], prior_weight=8.0
    )
    ledger = Play(tmp_path, config).rl()
    prefixed(ledger)
    tx = ledger.ledger.tx
    assert [task_choice.prior(tx, row) for row in tx.rows("SELECT * FROM groups WHERE prefix")] == [0.5]


def test_what_an_open_group_begins_with_is_not_collected(tmp_path: Path) -> None:
    ledger = play(tmp_path, keep_payload_steps=0)
    first, second = prefixed(ledger)
    tx = ledger.ledger.tx
    tx.execute("UPDATE episodes SET place = NULL")  # another success has displaced it
    tx.execute("UPDATE groups SET state = 'ended', ending = 'stale', final = 1, ended_step = 0 WHERE NOT prefix")
    source = tx.number("SELECT prefix_of FROM groups WHERE prefix")
    assert retention.collect(tx) == 3
    assert [row["token"] for row in tx.rows("SELECT token FROM episodes WHERE live")] == [source]
    assert second.prefix == first.prefix


def test_an_audit_names_a_prefix_that_can_not_be(tmp_path: Path) -> None:
    ledger = play(tmp_path)
    prefixed(ledger)
    tx = ledger.ledger.tx
    (groups, *_) = audit(tx.connection, tmp_path)
    assert groups.wrong == []
    tx.execute("UPDATE groups SET prefix = 2 WHERE prefix")  # all of its steps
    (groups, *_) = audit(tx.connection, tmp_path)
    assert groups.wrong == [f"group 3 begins after 2 steps of {tx.number('SELECT prefix_of FROM groups WHERE prefix')}"
                            ", which it can't"]  # fmt: skip
