"""Ranks on several machines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from actors.learner.config import RankSettings
from actors.learner.messages import JoinRanks
from actors.learner.rank import WORK_S, RankActor
from policy.megatron import ranks


async def test_ranks_apart_wait_for_each_other_as_long_as_writing_a_model_may_take(
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
