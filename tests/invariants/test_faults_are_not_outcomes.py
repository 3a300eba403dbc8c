"""Invariant 2: an infrastructure fault never looks like an outcome: not to the learner, not to a rate."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.replay.messages import Batch, Commit, Fault, Outcome, Release, TrajectoryRef
from runtime.errors import ProtocolError
from runtime.messaging.message import decode, encode
from tests.actors.replay.ledger_tools import FAULT, Play, step


def test_faults_are_not_outcomes_in_types() -> None:
    """A Commit can't carry a fault and a Release no outcome; what the learner gets has no field for one."""
    assert not issubclass(Fault, Outcome)
    commit = {"type": "Commit", "token": 1, "seat": "s", "outcome": msgspec.to_builtins(FAULT), "steps": []}
    commit |= {"wall_s": 1.0, "busy_s": 1.0}
    with pytest.raises(ProtocolError):
        decode(encode(commit), Commit)
    good = commit | {"outcome": {"success": False, "reason": "out_of_steps"}}
    assert decode(encode(good), Commit).outcome.success is False
    with pytest.raises(ProtocolError):
        decode(encode({"type": "Release", "token": 1, "seat": "s", "fault": {"success": False}}), Release)
    with pytest.raises(ProtocolError):
        decode(encode({"token": 1, "success": False, "steps": [], "fault": None}), TrajectoryRef)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(faults=st.lists(st.booleans(), min_size=6, max_size=6))
def test_faults_are_not_outcomes_for_the_learner(faults: list[bool]) -> None:
    """The same outcomes with faults in between give the same batch, success and counts."""
    assert played(faults) == played([False] * len(faults))


def played(faults: list[bool]) -> object:
    folder = Path(tempfile.mkdtemp())
    try:
        play = Play(folder, group_size=3, retries=1)
        play.rl()
        for number, fault in enumerate(faults):
            work = play.reserve()
            if fault:
                play.release(work)
                work = play.reserve()
            play.commit(work, number % 3 == 0, [step(well_formed=True)])
        batch = play.batch()
        play.trained(batch)
        outcomes = [[one.success for one in group.trajectories] for group in batch.groups]
        seen = play.figures()
        return outcomes, seen.train_success, seen.episodes, seen.endings, seen.successes_kept
    finally:
        play.ledger.close()
        shutil.rmtree(folder)


def test_faults_are_not_outcomes_in_a_group_that_lost_some(tmp_path: Path) -> None:
    play = Play(tmp_path, group_size=4, min_group_size=2, retries=0)
    play.rl()
    works = [play.reserve() for _ in range(4)]
    play.commit(works[0], True)
    play.release(works[1])
    play.commit(works[2], False)
    play.release(works[3])
    batch = play.batch()
    assert isinstance(batch, Batch)
    assert [one.success for one in batch.groups[0].trajectories] == [True, False]
    play.trained(batch)
    assert play.figures().train_success == [0.5]
    assert play.figures().faults == {"connection_lost": 2}


def test_faults_are_not_outcomes_in_evaluation(tmp_path: Path) -> None:
    play = Play(tmp_path, retries=1)
    play.open_eval("r", "0.0", ["e0", "e1"])
    first, second = play.reserve(), play.reserve()
    play.commit(first, True)
    play.release(second)
    play.release(play.reserve())
    (seen,) = play.figures().evals
    assert (seen.tasks, seen.played, seen.successes, seen.faults, seen.closed) == (2, 1, 1, 1, True)
