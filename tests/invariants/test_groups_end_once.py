"""Invariant 3: every group ends exactly once, and opened = open + ready + leased + endings at every moment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "actors" / "replay"))

from ledger_machine import LedgerMachine
from ledger_tools import Play

from actors.replay import groups
from actors.replay.groups import Ending, GroupState, GroupStatus
from actors.replay.messages import Phase
from runtime.errors import LedgerError


class Lives(RuleBasedStateMachine):
    """Groups under any sequence of moves, allowed or not."""

    def __init__(self) -> None:
        super().__init__()
        self.status = [GroupStatus() for _ in range(3)]
        self.endings = [0, 0, 0]

    @rule(n=st.integers(0, 2), to=st.sampled_from([GroupState.READY, GroupState.LEASED]))
    def move(self, n: int, to: GroupState) -> None:
        self.attempt(n, lambda status: groups.move(status, to))

    @rule(n=st.integers(0, 2), ending=st.sampled_from(Ending))
    def end(self, n: int, ending: Ending) -> None:
        self.attempt(n, lambda status: groups.end(status, ending))

    @rule(n=st.integers(0, 2))
    def confirm(self, n: int) -> None:
        self.attempt(n, groups.confirm)

    @rule(n=st.integers(0, 2))
    def take_back(self, n: int) -> None:
        self.attempt(n, groups.take_back)

    def attempt(self, n, step) -> None:
        before = self.status[n]
        try:
            self.status[n] = step(before)
        except LedgerError:
            return
        assert not before.final, "a final ending was left"
        self.endings[n] += self.status[n].final

    @invariant()
    def once(self) -> None:
        for status, endings in zip(self.status, self.endings, strict=True):
            assert endings == status.final
            assert (status.ending is not None) == (status.state is GroupState.ENDED)


class TestGroupsEndOnceInTheRules(Lives.TestCase):
    settings = settings(max_examples=60, deadline=None)


class TestGroupsEndOnceInTheLedger(LedgerMachine.TestCase):
    settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def test_groups_end_once_trained_is_final_with_a_checkpoint(play: Play) -> None:
    play.rl()
    play.checkpointed("0.0")
    group = play.group([True, False])
    play.trained(play.batch())
    assert play.events("group_ended") == []
    play.checkpointed("0.1")
    play.checkpointed("0.1")
    assert [(one["group"], one["ending"]) for one in play.events("group_ended")] == [(group, "trained")]
    play.resumed("1.0", "0.0")  # from before the checkpoint: what was final stays so
    assert play.figures().endings["trained"] == 1
    assert play.take() is None


def test_groups_end_once_later_steps_go_back(play: Play) -> None:
    play.rl()
    play.group([True, False])
    first = play.batch()
    play.trained(first)
    assert play.figures().endings["trained"] == 1
    play.resumed("1.0", "0.0")
    seen = play.figures()
    assert (seen.endings["trained"], seen.groups_ready, seen.phase_steps) == (0, 1, 0)
    again = play.batch()
    assert again.groups == first.groups
    assert again.new_reference, "the stay begins anew"
    play.trained(again)
    play.checkpointed("1.1")
    assert [one["ending"] for one in play.events("group_ended")] == ["trained"]


def test_groups_end_once_orphaned_by_an_abandoned_lineage(play: Play) -> None:
    play.rl()
    play.group([True, False])
    play.trained(play.batch())
    play.serving("0.1")
    waiting, playing = play.group([True, False], "0.1"), play.reserve()
    play.resumed("1.0", "0.0")
    assert [one["group"] for one in play.events("group_ended")] == [waiting]
    play.commit(playing, True, [])
    assert play.figures().endings["orphaned"] == 1


def test_groups_end_once_a_resume_re_enters_the_stay_of_its_weights(tmp_path: Path) -> None:
    play = Play(tmp_path, demos=1)
    play.demonstrate(1)
    play.phase(Phase.BC, steps=2)
    play.trained(play.batch())
    play.checkpointed("0.1")
    play.trained(play.batch())
    play.rl()
    group = play.group([True, False], "0.2")
    play.trained(play.batch())
    play.resumed("1.1", "0.1")
    seen = play.figures()
    assert (str(seen.phase.phase), seen.phase_steps, seen.phase_limit) == ("bc", 1, 2)
    assert [(one["group"], one["ending"]) for one in play.events("group_ended")] == [(group, "phase_closed")]
    assert seen.stays == {"demo": 1, "bc": 1}
    play.trained(play.batch())
    play.rl()
    assert play.figures().stays == {"demo": 1, "bc": 1, "rl": 1}
