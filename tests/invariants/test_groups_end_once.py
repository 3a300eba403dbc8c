"""Invariant 3: every group ends exactly once, and opened = open + ready + leased + endings at every moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from actors.errors import LedgerError
from actors.replay.messages import Phase
from actors.replay.rules import groups
from actors.replay.rules.groups import GroupEnding, GroupState, GroupStatus
from tests.actors.replay.ledger_machine import FEW_LONG_RUNS, LedgerMachine
from tests.actors.replay.ledger_tools import Play, step

MOVES: list[Callable[[GroupStatus], GroupStatus]] = [
    *(partial(groups.move, to=state) for state in GroupState),
    *(partial(groups.end, ending=ending) for ending in GroupEnding),
    groups.confirm,
    groups.take_back,
]


def test_groups_end_once_in_every_life() -> None:
    """Every state that any sequence of moves reaches: no move leaves a final ending, and every ending is reached."""
    reached, new = {GroupStatus()}, [GroupStatus()]
    while new:
        before = new.pop()
        for move in MOVES:
            try:
                after = move(before)
            except LedgerError:
                continue
            assert not before.final, f"{before} became {after}"
            if before.state is GroupState.ENDED:
                assert before.ending is GroupEnding.TRAINED
                assert after.state is GroupState.LEASED or after.final
            if after not in reached:
                reached.add(after)
                new.append(after)
    assert {status.ending for status in reached if status.final} == set(GroupEnding)
    assert all((status.ending is not None) == (status.state is GroupState.ENDED) for status in reached)


@pytest.mark.slow
class TestGroupsEndOnceInTheLedger(LedgerMachine.TestCase):
    settings = FEW_LONG_RUNS


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


def test_groups_end_once_an_answer_whose_last_token_is_of_abandoned_weights_orphans_its_group(play: Play) -> None:
    play.rl()
    play.group([True, False])
    play.trained(play.batch())
    work = play.reserve()
    play.resumed("1.0", "0.0")
    play.commit(work, True, [step("0.0", newest="0.1")])
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


def test_groups_end_once_a_second_resume_from_one_checkpoint_undoes_nothing(tmp_path: Path) -> None:
    play = Play(tmp_path, demos=1)
    play.demonstrate(1)
    play.phase(Phase.BC, steps=2)
    play.trained(play.batch())
    play.trained(play.batch())
    play.checkpointed("0.2")
    play.resumed("1.2", "0.2")
    play.open_eval("after_bc", "1.2", ["e0"])
    play.rl()
    work = play.reserve()
    play.commit(work, True, [step("1.2")])
    play.resumed("2.2", "0.2")  # what lies on the disk is still called 0.2
    play.resumed("2.2", "0.2")  # repeat
    with pytest.raises(LedgerError, match=r"lineage 2 began at 1\.2, not at 0\.1"):
        play.resumed("2.2", "0.1")
    seen = play.figures()
    assert (str(seen.phase.phase), seen.phase.index, seen.groups_open) == ("rl", 2, 1)
    assert sum(seen.endings.values()) == 0
    assert [(found.round, str(found.version)) for found in seen.evals] == [("after_bc", "1.2")]
    other = play.reserve()
    assert other.group == work.group, "the group goes on"
    play.commit(other, False, [step("2.2")])
    play.trained(play.batch())
    play.resumed("3.2", "0.2")
    assert play.figures().groups_ready == 1, "a step in no checkpoint is made again"
