"""Invariant 4: no token in a batch is older than S steps when the batch is taken, and none is of lost weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.messages import Batch
from actors.replay.rules.admission import Lineages, too_stale
from tests.actors.replay.ledger_machine import FEW_LONG_RUNS, LedgerMachine
from tests.actors.replay.ledger_tools import Play, step, v


@pytest.mark.slow
class TestStalenessIsBoundedUnderEverything(LedgerMachine.TestCase):
    settings = FEW_LONG_RUNS


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_staleness_is_bounded_at_take(tmp_path: Path, bound: int) -> None:
    """A group waits while the learner goes on: taken while it is within S, ended as stale after."""
    for late in range(bound + 2):
        folder = tmp_path / str(late)
        folder.mkdir()
        play = Play(folder, max_staleness=bound)
        play.rl()
        work = [play.reserve(), play.reserve()]
        for slot, one in enumerate(work):
            # Only the first token of one trajectory is old: the oldest counts.
            play.commit(one, slot == 0, [step("0.0" if slot == 0 else f"0.{late}"), step(f"0.{late}")])
        found = play.take(trained=f"0.{late}")
        if late <= bound:
            assert isinstance(found, Batch)
            assert found.staleness == [late, 0]
            assert play.events("batch_taken")[0]["staleness"] == ({str(late): 1, "0": 1} if late else {"0": 2})
        else:
            assert found is None
            assert play.figures().endings["stale"] == 1


def test_staleness_is_bounded_without_overlap(tmp_path: Path) -> None:
    """S = 0: nothing new is handed out from the Take until the new weights are served, and nothing is wasted."""
    play = Play(tmp_path, max_staleness=0)
    play.rl()
    for n in range(4):
        play.group([True, False], f"0.{n}")
        batch = play.batch()
        assert play.ask() is None
        play.trained(batch)
        assert play.ask() is None
        play.serving(f"0.{n + 1}")
    assert (play.figures().staleness, play.figures().endings["stale"]) == ({"0": 8}, 0)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 5))
def test_staleness_is_bounded_by_s_itself(trained: int, behind: int, bound: int) -> None:
    found = Lineages({0: None}).staleness(v(f"0.{trained + behind}"), v(f"0.{trained}"))
    assert found == behind
    assert too_stale(behind, bound) == (behind > bound)
