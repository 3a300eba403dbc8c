"""Rank 0 and the others: they meet, do the same, and end when they may have come apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch.distributed as dist

from actors.learner import rank
from actors.learner.config import RankSettings
from actors.learner.messages import EndRank, GetReady, JoinRanks, RankPlace, SaveCheckpoint
from actors.learner.rank import WORK_S, RankActor
from policy.errors import LearnerError, NoModel
from policy.megatron import ranks
from runtime.errors import ActorGone, DeadlineExceeded, DiskRefuses
from runtime.messaging.message import Done, Version

MSG = SaveCheckpoint(version=Version(lineage=0, step=1), location="there")


class EndedError(Exception):
    """The process would have ended."""


class Other:
    """Another rank: answers as it is told to, and remembers what it was sent."""

    def __init__(self, answer: Callable[[Any], Awaitable[Any]]) -> None:
        self.answer, self.heard = answer, list[Any]()

    async def ask(self, msg: Any, *, timeout_s: float) -> Any:
        self.heard.append(msg)
        return await self.answer(msg)

    async def tell(self, msg: Any, *, timeout_s: float) -> None:
        self.heard.append(msg)


class Ctx:
    def __init__(self, others: list[Other]) -> None:
        self.others, self.clock = dict(enumerate(others)), self

    def ref(self, name: str) -> Other:
        return self.others[int(name)]

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, _: float) -> None:
        await asyncio.sleep(0)


async def fine(*_: Any) -> str:
    return "fine"


async def hangs(*_: Any) -> None:
    await asyncio.sleep(3600)


def fails(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def failing(*_: Any) -> None:
        raise error

    return failing


def at(address: str) -> Callable[..., Awaitable[Any]]:
    """A rank on that machine."""

    async def answers(msg: Any) -> Any:
        return RankPlace(address=address) if isinstance(msg, GetReady) else Done()

    return answers


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(_: Any, cause: str) -> NoReturn:
        raise EndedError(cause)

    monkeypatch.setattr(rank, "end_process", ends)
    monkeypatch.setattr(rank, "GRACE_S", 0.05)


def group(*answers: Callable[..., Awaitable[Any]]) -> tuple[rank.Peers, list[Other]]:
    others = [Other(answer) for answer in answers]
    return rank.Peers([str(i) for i in range(len(others))], Ctx(others)), others  # type: ignore[arg-type]


async def test_every_rank_gets_the_request_and_the_answer_is_the_first_ones() -> None:
    ranks, others = group(fine, fine)
    assert await ranks.together(MSG, mine()) == "mine"
    assert [other.heard for other in others] == [[MSG], [MSG]]


async def mine() -> str:
    return "mine"


async def test_what_all_refuse_alike_is_raised_as_rank_0_refused_it() -> None:
    ranks, others = group(fails(LearnerError("rank 0 failed")), fails(DiskRefuses("full there, too")))
    with pytest.raises(DiskRefuses, match="full here"):
        await ranks.together(MSG, fails(DiskRefuses("full here"))())
    assert [other.heard for other in others] == [[MSG], [MSG]]


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (fails(LearnerError("no")), fine),
        (fine, fails(LearnerError("no"))),
        (hangs, fails(LearnerError("no"))),
        (fails(LearnerError("no")), hangs),
        (hangs, fails(ActorGone("killed"))),
        (fails(RuntimeError("connection closed")), fails(ActorGone("killed"))),
        (fails(RuntimeError("a bug")), fails(RuntimeError("a bug"))),
    ],
    ids=["first-alone", "other-alone", "first-hangs", "other-hangs", "killed", "connection", "unknown"],
)
async def test_ranks_that_may_have_come_apart_end(
    own: Callable[..., Awaitable[Any]], other: Callable[..., Awaitable[Any]]
) -> None:
    ranks, others = group(other, fine)
    with pytest.raises(EndedError, match=r"^SaveCheckpoint: "):
        await asyncio.wait_for(ranks.together(MSG, own()), 5)
    assert all(isinstance(one.heard[-1], EndRank) for one in others)


async def test_a_rank_that_does_not_come_is_no_failure_of_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "MEET_S", 0.0)
    for error in (ActorGone("its host did not come back"), DeadlineExceeded("GetReady")):
        ranks, _ = group(fails(error))
        with pytest.raises(NoModel, match="another rank has not come within 0 s"):
            await ranks.meet("here", 7, fine)
        assert not ranks.met


async def test_a_rank_whose_process_had_to_end_is_invited_again() -> None:
    gone = 2

    async def answers(msg: Any) -> Any:
        nonlocal gone
        if isinstance(msg, JoinRanks):
            return Done()
        gone -= 1
        if gone >= 0:
            raise ActorGone("it ends")
        return RankPlace(address="far")

    ranks, others = group(answers, at("near"), at("far"), at("here"))
    joined = list[JoinRanks]()

    async def join(msg: JoinRanks) -> None:
        joined.append(msg)

    await ranks.meet("here", 7, join)
    assert ranks.met
    assert [(msg.rank, msg.ranks, msg.address, msg.port) for msg in joined] == [(0, 5, "here", 7)]
    heard = [[msg.rank for msg in other.heard if isinstance(msg, JoinRanks)] for other in others]
    assert heard == [[2], [4], [3], [1]], "ranks of one machine have numbers in a row"
    assert [type(msg) for msg in others[0].heard] == [GetReady] * 3 + [JoinRanks]


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
