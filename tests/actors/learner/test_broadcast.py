"""Weights by collective: who is in a group, and what each sampler is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from actors.learner.broadcast import CollectiveGroup, Publisher
from actors.learner.config import GroupSettings
from actors.learner.messages import Broadcast, Broadcasting, BroadcastPart, DeclineGroup, JoinGroup, NoGroup, Ticket
from policy.errors import NoModel
from runtime.actor import Actor, handles
from runtime.logs.reader import read_logs
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from runtime.system import ActorSpec, ActorSystem

VERSION = Version(lineage=0, step=3)
NAMES = ["a", "b", "c", "d"]
JOIN_S = 5.0
EVENTS = st.lists(
    st.tuples(st.sampled_from(["join", "pass"]), st.sampled_from(NAMES), st.integers(1, 4), st.floats(0, 2)),
    max_size=12,
)


@given(st.sets(st.sampled_from(NAMES)), EVENTS)
def test_whoever_comes_and_goes(told: set[str], events: list[tuple[str, str, int, float]]) -> None:
    group, now, here, since = CollectiveGroup(version=VERSION, awaited=frozenset(told)), 0.0, dict[str, int](), 0.0
    expected = set(told)
    for kind, name, ranks, after in events:
        now += after
        expected.discard(name)
        if kind == "join":
            since = now if not here else since
            here[name] = ranks
            group = group.with_member(name, ranks, now)
        else:
            here.pop(name, None)
            group = group.without([name])
        left_s = group.waits_s(now, JOIN_S)
        assert (left_s is None) == (not here)
        if here:
            assert left_s is not None
            assert left_s <= JOIN_S + 1e-9
            assert (left_s == 0) == (not expected or now >= since + JOIN_S)
            assert group.waits_s(since + JOIN_S, JOIN_S) == 0
        taken = [group.places()[one] + i for one in here for i in range(here[one])]
        assert sorted(taken) == list(range(1, group.ranks + 1))


ONE, TWO = Version(lineage=0, step=1), Version(lineage=0, step=2)
PART = BroadcastPart(names=["w"], dtypes=["float32"], shapes=[[2]])


class Rank(Actor):
    """Opens every group for the version it has kept."""

    wishes: list[Broadcast] = []

    @handles(Broadcast, concurrent=True)
    async def broadcast(self, msg: Broadcast) -> Broadcasting:
        """Remember the request."""
        self.wishes.append(msg)
        if msg.version != ONE:
            raise NoModel(f"not {msg.version}")
        return Broadcasting(port=4711, parts=[PART])


class GroupOwner(Actor):
    """The part of the learner that is looked at."""

    config: GroupSettings
    publisher: Publisher

    async def on_start(self) -> None:
        type(self).publisher = Publisher(self.config, self.ctx.ref("rank"), self.ctx)

    @handles(JoinGroup, concurrent=True)
    async def join(self, msg: JoinGroup) -> Ticket | NoGroup:
        """Ask for a place."""
        return await self.publisher.place(msg)

    @handles(DeclineGroup, concurrent=True)
    async def decline(self, msg: DeclineGroup) -> None:
        """Don't come."""
        self.publisher.decline(msg.version, [msg.sampler])


@asynccontextmanager
async def gathering(folder: Path, join_s: float) -> AsyncIterator[Ref]:
    Rank.wishes.clear()
    async with ActorSystem(folder) as system:
        await system.spawn(ActorSpec(name="rank", factory=Rank))
        settings = GroupSettings(join_s=join_s)
        await system.spawn(ActorSpec(name="learner", factory=GroupOwner, config=settings))
        yield system.ref("learner")


async def ask(ref: Ref, sampler: str, version: Version = ONE, ranks: int = 1) -> Ticket | NoGroup:
    request = JoinGroup(version=version, sampler=sampler, ranks=ranks)
    found: Ticket | NoGroup = await ref.ask(request, timeout_s=20)
    return found


async def test_all_who_were_told_come_into_one_group(tmp_path: Path) -> None:
    async with gathering(tmp_path, 60.0) as ref:
        GroupOwner.publisher.offer(ONE, ["a", "b", "c"])
        await ref.tell(DeclineGroup(version=ONE, sampler="c"))
        first, second = await asyncio.gather(ask(ref, "a", ranks=2), ask(ref, "b"))
        assert isinstance(first, Ticket)
        assert isinstance(second, Ticket)
        assert {(first.rank, second.rank)} <= {(1, 3), (2, 1)}
        assert (first.request, first.sender) == (second.request, Broadcasting(port=4711, parts=[PART]))
        assert [request.ranks for request in Rank.wishes] == [3]
        assert isinstance(await ask(ref, "c"), NoGroup), "it comes late"
        for version in (TWO, Version(lineage=1, step=1)):
            unknown = await ask(ref, "a", version)
            assert isinstance(unknown, NoGroup)
            assert str(version) in unknown.reason
    (formed,) = [line for line in read_logs(tmp_path) if line["event"] == "group_formed"]
    assert (sorted(formed["samplers"]), formed["late"]) == (["a", "b"], [])


async def test_nobody_waits_longer_than_agreed_for_one_who_does_not_come(tmp_path: Path) -> None:
    async with gathering(tmp_path, 0.2) as ref:
        GroupOwner.publisher.offer(ONE, ["a", "b"])
        found = await ask(ref, "a")
        assert isinstance(found, Ticket)
        assert (found.rank, found.request.ranks) == (1, 1)
    (formed,) = [line for line in read_logs(tmp_path) if line["event"] == "group_formed"]
    assert formed["late"] == ["b"]


async def test_newer_weights_end_the_wait_for_older_ones(tmp_path: Path) -> None:
    async with gathering(tmp_path, 60.0) as ref:
        GroupOwner.publisher.offer(ONE, ["a", "b"])
        waiting = asyncio.create_task(ask(ref, "a"))
        while not GroupOwner.publisher._asking:  # noqa: ASYNC110 - the ask has no event when it arrives
            await asyncio.sleep(0)
        GroupOwner.publisher.offer(TWO, ["a"])
        assert isinstance(await waiting, NoGroup)
        refused = await ask(ref, "a", TWO)  # the rank has not kept it
        assert isinstance(refused, NoGroup)
        assert "not 0.2" in refused.reason
