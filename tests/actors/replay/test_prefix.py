"""Groups that begin after the first steps of a success: when, after how many, and what counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_tools import Play, settings

from actors.replay.database import queries
from actors.replay.database.auditing import audit
from actors.replay.ledger import retention, task_choice
from actors.replay.messages import Reservation
from actors.replay.rules.groups import prefix_steps

ALWAYS = 1 - 1e-12


def play(folder: Path, **more: Any) -> Play:
    rules = {"prefix_replay": ALWAYS, "max_staleness": 9} | more
    return Play(folder, msgspec.structs.replace(settings(**rules), train_tasks=["a/0"])).rl()


@pytest.mark.parametrize(
    ("steps", "success", "begun"),
    [
        (4, 1 / 4, 2),  # (1/4) ** (2/4) is 1/2
        (4, 1 / 16, 3),  # (1/16) ** (1/4)
        (2, 1 / 3, 1),  # 0.58 after one of two steps, 0.33 before
        (8, 1e-9, 7),  # 0.075 after seven: one step is always left
        (5, 0.5, 0),
        (5, 0.9, 0),  # a prefix would only make it easier
        (1, 0.01, 0),
    ],
)
def test_the_prefix_leaves_about_one_half(steps: int, success: float, begun: int) -> None:
    assert prefix_steps(steps, success) == begun


@given(st.integers(1, 60), st.floats(1e-6, 1 - 1e-6))
def test_no_prefix_takes_success_farther_from_one_half(steps: int, success: float) -> None:
    begun = prefix_steps(steps, success)
    assert 0 <= begun < steps
    after = success ** ((steps - begun) / steps)
    assert abs(after - 0.5) <= abs(success - 0.5)
    assert begun == 0 or success < 0.5


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
    ledger.commit(second, True)
    tx = ledger.ledger.tx
    assert {task_choice.prefix(tx, "a/0") for _ in range(3)} == {(whole, 1)}
    group = tx.row("SELECT * FROM groups ORDER BY id LIMIT 1 OFFSET 1")
    assert group is not None
    assert retention.kept_success(tx, group) == whole


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
