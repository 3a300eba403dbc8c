"""Which groups teach a learner, and what a payload costs that can't be read: one group or one sample, never the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.errors import FencedOff, LedgerError
from actors.replay.ledger import training
from actors.replay.messages import Batch, Phase, Unreadable
from policy.advantage import AdvantageLevel
from runtime.messaging.message import BlobRef
from tests.actors.replay.ledger_tools import Play, settings, step


@pytest.mark.parametrize(("advantage", "ready"), [("step", 1), ("trajectory", 0)])
def test_malformed_steps_alone_are_a_signal_for_step_rewards_only(tmp_path: Path, advantage: str, ready: int) -> None:
    play = Play(tmp_path, msgspec.structs.replace(settings(), advantage=AdvantageLevel(advantage))).rl()
    first, second = play.reserve(), play.reserve()
    play.commit(first, True, [step(), step(well_formed=False)])
    play.commit(second, True)
    figures = play.figures()
    assert figures.groups_ready == ready
    assert figures.endings.get("zero_variance", 0) == 1 - ready


@pytest.mark.parametrize("advantage", ["step", "trajectory"])
def test_an_action_that_broke_its_desktop_at_once_is_a_signal(tmp_path: Path, advantage: str) -> None:
    play = Play(
        tmp_path, msgspec.structs.replace(settings(group_size=8, min_group_size=4), advantage=AdvantageLevel(advantage))
    )
    play.rl()
    killer, *others = [play.reserve() for _ in range(8)]
    for work in others:
        play.commit(work, True)
    fatal = step()
    play.commit(killer, False, [fatal])  # the seat stores the step that ended the desktop
    (group,) = play.batch().groups
    assert [one.blob for one in group.trajectories[0].steps] == [fatal.blob]
    assert [one.success for one in group.trajectories] == [False, *[True] * 7]


def test_every_group_may_teach_by_a_reward_that_the_learner_alone_knows(tmp_path: Path) -> None:
    play = Play(tmp_path, msgspec.structs.replace(settings(), own_reward=True)).rl()
    play.group([False, False])
    assert len(play.batch().groups) == 1


def report(play: Play, batch: Batch, blobs: list[BlobRef]) -> None:
    msg = Unreadable(lease=batch.lease, blobs=blobs, cause="no such file")
    play.do(lambda tx: training.unreadable(tx, msg))


def test_a_group_that_cannot_be_read_is_lost_and_the_others_go_back(tmp_path: Path) -> None:
    play = Play(tmp_path, groups_per_step=2).rl()
    bad, good = play.group([True, False]), play.group([False, True])
    batch = play.batch()
    blob = batch.groups[0].trajectories[1].steps[0].blob
    for _ in range(2):  # a repeat gets the first answer
        report(play, batch, [blob])
    assert play.figures().endings["lost"] == 1
    assert [(line["groups"], line["segments"]) for line in play.events("payloads_unreadable")] == [(1, [blob.segment])]
    with pytest.raises(FencedOff):
        play.trained(batch)
    play.group([True, False])
    again = play.batch()
    assert again.groups[0].group == good
    assert bad not in {group.group for group in again.groups}
    play.trained(again)
    with pytest.raises(FencedOff):
        report(play, again, [blob])


def test_a_lease_whose_groups_turn_out_without_signal_ends_them(tmp_path: Path) -> None:
    play = Play(tmp_path, groups_per_step=2).rl()
    names = [play.group([True, False]), play.group([False, True])]
    batch = play.batch()
    msg = Unreadable(lease=batch.lease, blobs=[], cause="equal", without_signal=names)
    for _ in range(2):  # a repeat gets the first answer
        play.do(lambda tx: training.unreadable(tx, msg))
    assert play.take() is None
    assert play.figures().endings["zero_variance"] == 2
    assert not play.events("payloads_unreadable")


@pytest.mark.parametrize("reopened", ["never", "before it is told", "after"])
def test_samples_that_cannot_be_read_are_not_drawn_again(tmp_path: Path, reopened: str) -> None:
    play = Play(tmp_path, demos=2, incarnation="this run")
    steps = [[step(None), step(None)], [step(None)]]
    for each in steps:
        play.commit(play.reserve(), True, each)
    play.phase(Phase.BC, steps=3)
    batch = play.batch()
    bad = steps[0][1].blob
    if reopened == "before it is told":
        play.reopen()
    report(play, batch, [bad])
    if reopened == "after":
        play.reopen()
    again = play.batch()
    left = {step.blob for each in steps for step in each} - {bad}
    assert {sample.blob for sample in again.samples} == left
    report(play, again, sorted(left, key=lambda blob: blob.digest))
    with pytest.raises(LedgerError, match="none of the 3 steps to learn from can be read"):
        play.take()
