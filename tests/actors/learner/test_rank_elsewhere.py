"""A rank whose machine is full or cut off for a while is asked again, ever later, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from actors.learner import events
from actors.learner.actor import LearnerActor, loading_s
from actors.learner.config import LearnerConfig, LearnerSettings, RankSettings
from actors.learner.messages import JoinRanks, SaveCheckpoint, Saved
from actors.learner.rank import MEET_S, WORK_S, RankActor
from policy.megatron import ranks
from policy.settings import ParallelConfig
from runtime.disk import DiskGate
from runtime.errors import TransferFailed
from runtime.messaging.message import Request, Version


async def test_it_is_asked_again_after_a_pause_that_grows(tmp_path: Path) -> None:
    slept, said = list[float](), list[Any]()
    answers = [TransferFailed("m1: can't write: No space left on device")] * 3

    class Rank:
        async def ask(self, msg: Request[Any], timeout_s: float) -> Saved:
            if answers:
                raise answers.pop()
            return Saved(location="c", digest="d", seconds=1.0)

    class Clock:
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    learner = LearnerActor(LearnerSettings(learner=LearnerConfig(), model="m", samplers=[]))
    log = SimpleNamespace(emit=lambda event, **fields: said.append((event, fields)))
    learner.ctx = SimpleNamespace(log=log, clock=Clock())
    learner._rank, learner._gate = Rank(), DiskGate(tmp_path, None)
    save = SaveCheckpoint(version=Version(lineage=0, step=1), location="c")
    assert (await learner._ask_rank(save, 1.0)).digest == "d"
    assert slept == [2.0, 4.0, 8.0]
    ((event, fields),) = said
    assert (event, fields["request"], fields["name"]) == (events.TRANSFER_FAILED, "SaveCheckpoint", "rank/0")
    assert fields["cause"].startswith("m1: ")
    assert not learner._gate.shut, "the main host's disk is not why"


async def test_ranks_apart_wait_for_each_other_as_long_as_a_model_may_take_to_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met = list[tuple[Any, ...]]()
    monkeypatch.setattr(RankActor, "met", False)
    monkeypatch.setattr(dist, "TCPStore", lambda *_, **__: None)
    monkeypatch.setattr(ranks, "meet", lambda _, *told: met.append(told))
    for apart in (False, True):
        RankActor.met = False
        rank = RankActor(RankSettings())
        rank.ctx = SimpleNamespace(apart=apart, address=lambda: "127.0.0.1")
        await rank._meet(JoinRanks(address="127.0.0.1", port=1, rank=1, ranks=2))
    assert met == [(1, 2), (1, 2, "lo", WORK_S)]


def test_what_moves_between_machines_gets_time_by_its_size() -> None:
    two = ParallelConfig(data=2)
    for place, moving in (({}, 0.0), ({"GPU": 1.0}, 6.0)):
        learner = LearnerConfig(place=place, parallel=two)
        settings = LearnerSettings(learner=learner, model="m", samplers=[])
        assert LearnerActor(settings)._moving_limit_s(3 << 20) == 300.0 + moving
        assert loading_s(learner, 3 << 20) == 2 * MEET_S + moving, "ranks meet before the first load"
    assert loading_s(LearnerConfig(), 3 << 20) == 0.0
