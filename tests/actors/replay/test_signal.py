"""Which groups teach a learner, and what a payload costs that can't be read: one group or one sample, never the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.errors import FencedOff, LedgerError
from actors.replay.ledger import training
from actors.replay.messages import Batch, Phase, Unreadable
from actors.settings import DemosConfig
from policy.advantage import AdvantageLevel
from runtime.messaging.message import BlobRef
from tests.actors.replay.ledger_tools import Play, settings, step

REPLAYS = msgspec.structs.replace(settings(success_replay=True, max_staleness=3), train_tasks=["a/0"])


@pytest.mark.parametrize(("advantage", "ready"), [("step", 1), ("trajectory", 0), ("gigpo", 0)])
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


@pytest.mark.parametrize("more", [{"demos": DemosConfig(relabel=True)}, {"own_reward": True}])
def test_every_group_teaches_where_verdicts_do_not_say_what_is_learned(tmp_path: Path, more: dict[str, Any]) -> None:
    """An oracle labels its states, or a reward of one's own is known to the learner alone."""
    play = Play(tmp_path, msgspec.structs.replace(settings(), **more)).rl()
    play.group([False, False])
    assert len(play.batch().groups) == 1


def test_a_kept_success_joins_a_group_of_its_task_without_one(tmp_path: Path) -> None:
    play = Play(tmp_path, REPLAYS).rl()
    play.group([False, False])
    assert play.figures().endings["zero_variance"] == 1, "the reservoir is empty"
    play.group([True, False])
    first = play.batch()
    play.trained(first)
    play.checkpointed("0.1")  # its success is kept for good
    play.group([False, False], "0.1")
    (group,) = play.batch().groups
    assert [(one.success, one.replayed) for one in group.trajectories] == [
        (False, False), (False, False), (True, True),
    ]  # fmt: skip
    assert group.trajectories[2].token == next(one.token for one in first.groups[0].trajectories if one.success)


def test_what_can_t_be_replayed_any_more_is_no_signal(tmp_path: Path) -> None:
    play = Play(tmp_path, REPLAYS).rl()
    play.group([True, False])
    batch = play.batch()
    play.group([False, False])
    assert play.figures().groups_ready == 1
    play.do(lambda tx: tx.execute("UPDATE episodes SET place = NULL"))
    play.trained(batch)
    assert play.take() is None
    assert play.figures().endings["zero_variance"] == 1


def test_a_success_without_a_well_formed_step_is_no_reason_to_replay_one(tmp_path: Path) -> None:
    play = Play(tmp_path, REPLAYS).rl()
    play.learn()
    play.checkpointed("0.1")
    first, second = play.reserve(), play.reserve()
    play.commit(first, True, [step("0.1", well_formed=False)])
    play.commit(second, False, [step("0.1")])
    figures = play.figures()
    assert (figures.groups_ready, figures.endings["zero_variance"]) == (0, 1)


def test_equal_rewards_teach_where_the_kind_is_solved_now_and_then(tmp_path: Path) -> None:
    """Two episodes a group, a prior that counts as 8, and a kind whose success before is (wins + 1) / (tries + 2)."""
    of_two = settings(max_staleness=9)
    kinds = msgspec.structs.replace(of_two, prior_weight=8.0, train_kinds=["all"] * len(of_two.train_tasks))
    play = Play(tmp_path, kinds).rl()
    for _ in range(6):  # all fail: priors 1/2, 1/4, 1/6, 1/8, 1/10, 1/12, and baselines 8/10 of that
        play.group([False, False])
    figures = play.figures()
    assert (figures.groups_ready, figures.endings["zero_variance"]) == (4, 2), "0.08 and 0.067 are too little"
    assert [group.prior for group in play.batch().groups] == [0.5]
    play.group([True, False])  # what differs teaches, whatever is known
    assert play.figures().groups_ready == 4


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


def test_a_replayed_success_that_cannot_be_read_is_replayed_no_more(tmp_path: Path) -> None:
    play = Play(tmp_path, REPLAYS).rl()
    play.learn()
    play.checkpointed("0.1")
    play.group([False, False], "0.1")
    batch = play.batch()
    report(play, batch, [batch.groups[0].trajectories[2].steps[0].blob])
    assert play.take() is None
    endings = play.figures().endings
    assert (endings.get("lost", 0), endings["zero_variance"]) == (0, 1), "what was played can be read"


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
