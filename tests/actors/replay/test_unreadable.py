"""A payload that can't be read costs one group or one sample, and never the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from ledger_tools import Play, settings, step

from actors.errors import FencedOff, LedgerError
from actors.replay.ledger import training
from actors.replay.messages import Batch, Phase, Unreadable
from runtime.messaging.message import BlobRef


def report(play: Play, batch: Batch, blobs: list[BlobRef]) -> None:
    msg = Unreadable(lease=batch.lease, blobs=blobs, cause="no such file")
    play.do(lambda tx: training.unreadable(tx, msg))


def test_a_group_that_cannot_be_read_is_lost_and_the_others_go_back(tmp_path: Path) -> None:
    play = Play(tmp_path, groups_per_step=2)
    play.rl()
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
    play = Play(tmp_path, msgspec.structs.replace(settings(success_replay=True, max_staleness=3), train_tasks=["a/0"]))
    play.rl()
    play.group([True, False])
    play.trained(play.batch())
    play.checkpointed("0.1")
    play.group([False, False], "0.1")
    batch = play.batch()
    report(play, batch, [batch.groups[0].trajectories[2].steps[0].blob])
    assert play.take() is None
    endings = play.figures().endings
    assert (endings.get("lost", 0), endings["zero_variance"]) == (0, 1), "what was played can be read"


def test_a_lease_whose_groups_turn_out_without_signal_ends_them(tmp_path: Path) -> None:
    play = Play(tmp_path, groups_per_step=2)
    play.rl()
    names = [play.group([True, False]), play.group([False, True])]
    batch = play.batch()
    msg = Unreadable(lease=batch.lease, blobs=[], cause="equal", without_signal=names)
    for _ in range(2):  # a repeat gets the first answer
        play.do(lambda tx: training.unreadable(tx, msg))
    assert play.take() is None
    assert play.figures().endings["zero_variance"] == 2
    assert not play.events("payloads_unreadable")


@pytest.mark.parametrize("reopened", [False, True])
def test_samples_that_cannot_be_read_are_not_drawn_again(tmp_path: Path, reopened: bool) -> None:
    play = Play(tmp_path, demos=2)
    steps = [[step(None), step(None)], [step(None)]]
    for each in steps:
        play.commit(play.reserve(), True, each)
    play.phase(Phase.BC, steps=3)
    batch = play.batch()
    bad = steps[0][1].blob
    report(play, batch, [bad])
    if reopened:
        play.reopen()
    again = play.batch()
    left = {step.blob for each in steps for step in each} - {bad}
    assert {sample.blob for sample in again.samples} == left
    report(play, again, sorted(left, key=lambda blob: blob.digest))
    with pytest.raises(LedgerError, match="none of the 3 steps to learn from can be read"):
        play.take()
