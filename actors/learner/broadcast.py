"""Weights by collective: the learner forms the group and gives each engine its place; the rank sends.

Invariant: a sampler that asks for a place gets an answer within the settings' times, a place or none. One version is
open at a time, the newest. What is sent is what was exported, whatever the model has become since. A failure here costs
one collective, and the engines then load from disk. It never costs a step.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from actors.learner.config import GroupSettings
from actors.learner.messages import (
    GROUP_FORMED,
    GROUP_NOT_FORMED,
    WEIGHTS_NOT_SENT,
    WEIGHTS_SENT,
    Broadcast,
    Broadcasting,
    JoinGroup,
    NoGroup,
    Ticket,
)
from policy.errors import LearnerError, NoModel
from runtime.actor import Context
from runtime.errors import ActorFailed, ActorGone, DeadlineExceeded, MailboxFull
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref

if TYPE_CHECKING:
    from torch import Tensor

    from policy.broadcast import SendingGroup


class CollectiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The group of `version` while it is open."""

    version: Version
    awaited: frozenset[str]  # the version was announced to them, and they have neither joined nor declined
    joined: dict[str, int] = {}  # ranks of each sampler's engine, in the order of joining
    began: float | None = None  # when the first member joined

    def with_member(self, sampler: str, ranks: int, now: float) -> CollectiveGroup:
        began = now if self.began is None else self.began
        joined = {**self.joined, sampler: ranks}
        return msgspec.structs.replace(self, joined=joined, awaited=self.awaited - {sampler}, began=began)

    def without(self, samplers: Iterable[str]) -> CollectiveGroup:
        gone = frozenset(samplers)
        joined = {name: ranks for name, ranks in self.joined.items() if name not in gone}
        began = self.began if joined else None
        return msgspec.structs.replace(self, joined=joined, awaited=self.awaited - gone, began=began)

    def waits_s(self, now: float, join_s: float) -> float | None:
        """Seconds until the group closes if no sampler joins or declines: 0 where it is complete, None where it is
        empty.
        """
        if self.began is None:
            return None
        return max(0.0, self.began + join_s - now) if self.awaited else 0.0

    def places(self) -> dict[str, int]:
        places, following = {}, 1
        for sampler, ranks in self.joined.items():
            places[sampler] = following
            following += ranks
        return places

    @property
    def ranks(self) -> int:
        return sum(self.joined.values())


ASK_TIMEOUT_S = 20.0  # the rank only opens a port before it answers
MARGIN_S = 5.0


class Publisher:
    """Forms one group per version."""

    def __init__(self, settings: GroupSettings, rank: Ref, ctx: Context) -> None:
        self._settings, self._rank, self._ctx = settings, rank, ctx
        self._open: CollectiveGroup | None = None
        self._asking: dict[str, asyncio.Future[Ticket | NoGroup]] = {}
        self._changed = asyncio.Event()

    def offer(self, version: Version, samplers: Collection[str]) -> None:
        """From now on engines may join for `version`, which the rank has kept; the group before it is over."""
        for sampler in list(self._asking):
            self._answer(sampler, NoGroup(reason=f"{version} is newer"))
        self._open = CollectiveGroup(version=version, awaited=frozenset(samplers))

    def decline(self, version: Version, samplers: Collection[str]) -> None:
        if self._open is None or self._open.version != version:
            return
        self._open = self._open.without(samplers)
        for sampler in samplers:
            self._answer(sampler, NoGroup(reason="it has declined"))
        self._changed.set()

    async def place(self, msg: JoinGroup) -> Ticket | NoGroup:
        """A place in the group of that version once it is complete."""
        if self._open is None or self._open.version != msg.version:
            return NoGroup(reason=f"no group is open for {msg.version}")
        self._answer(msg.sampler, NoGroup(reason="it has asked again"))
        answer = self._asking[msg.sampler] = asyncio.get_running_loop().create_future()
        first = not self._open.joined
        self._open = self._open.with_member(msg.sampler, msg.ranks, self._ctx.clock.now())
        self._changed.set()
        if first:
            self._ctx.spawn(self._await_members(self._open.version), f"gather a group for {msg.version}")
        try:
            async with asyncio.timeout(self._settings.join_s + ASK_TIMEOUT_S + MARGIN_S):
                return await answer
        except TimeoutError:
            return NoGroup(reason="no group was formed in time")

    async def _await_members(self, version: Version) -> None:
        while (group := self._open) is not None and group.version == version:
            self._changed.clear()
            left_s = group.waits_s(self._ctx.clock.now(), self._settings.join_s)
            if left_s is None:
                return  # all have left; the next who comes begins again
            if left_s == 0:
                self._open = None
                await self._form(group)
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _form(self, group: CollectiveGroup) -> None:
        asking, self._asking = self._asking, {}
        name = f"weights-{group.version}-{uuid.uuid4().hex[:12]}"
        request = Broadcast(version=group.version, group=name, ranks=group.ranks, settings=self._settings)
        try:
            sender: Broadcasting = await self._rank.ask(request, timeout_s=ASK_TIMEOUT_S)
        except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull, LearnerError) as error:
            self._ctx.log.emit(
                GROUP_NOT_FORMED, version=str(group.version), samplers=list(group.joined), cause=str(error)
            )
            answers: dict[str, Ticket | NoGroup] = dict.fromkeys(asking, NoGroup(reason=str(error)))
        else:
            ready_s = round(self._ctx.clock.now() - (group.began or 0.0), 4)
            self._ctx.log.emit(
                GROUP_FORMED, version=str(group.version), group=name, samplers=list(group.joined), ranks=group.ranks,
                ready_s=ready_s, late=sorted(group.awaited),
            )  # fmt: skip
            places = group.places().items()
            answers = {sampler: Ticket(rank=rank, request=request, sender=sender) for sampler, rank in places}
        for sampler, answer in answers.items():
            if not asking[sampler].done():
                asking[sampler].set_result(answer)

    def _answer(self, sampler: str, answer: NoGroup) -> None:
        asking = self._asking.pop(sampler, None)
        if asking is not None and not asking.done():  # done: who asked has gone
            asking.set_result(answer)


Tensors = dict[str, "Tensor"]


class Sender:
    """Holds one version: the newest that was kept."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._kept: tuple[Version, Tensors] | None = None
        self._sending = ""  # the group that is being sent to

    def keep(self, version: Version, tensors: Tensors) -> None:
        """`tensors` must not change any more."""
        self._kept = version, tensors

    def kept(self, version: Version) -> Tensors:
        """What was kept of `version`. Raises NoModel for another."""
        if self._kept is None or self._kept[0] != version:
            raise NoModel(f"{self._ctx.name} has kept {self._kept and self._kept[0]}, not {version}")
        return self._kept[1]

    async def begin(self, msg: Broadcast) -> Broadcasting:
        """Open the group. Raises NoModel for a version that is not kept, LearnerError while another is sent."""
        from policy import broadcast

        tensors = self.kept(msg.version)
        if self._sending:
            raise LearnerError(f"{self._ctx.name} still sends to {self._sending}")
        parts, how = broadcast.split(tensors, broadcast.PART_BYTES), msg.settings
        group = broadcast.SendingGroup(
            msg.group, msg.ranks, address=how.address, backend=how.backend, timeout_s=how.form_s
        )
        self._sending = msg.group
        self._ctx.spawn(self._send(msg, group, tensors, [part.names for part in parts]), f"send to {msg.group}")
        return Broadcasting(port=group.port, parts=parts)

    async def _send(self, msg: Broadcast, group: SendingGroup, tensors: Tensors, parts: list[list[str]]) -> None:
        began = time.monotonic()
        try:
            join_s = await asyncio.to_thread(_carry_out, group, tensors, parts, msg)
        except LearnerError as error:
            after_s, of = round(time.monotonic() - began, 4), {"version": str(msg.version), "group": msg.group}
            self._ctx.log.emit(WEIGHTS_NOT_SENT, cause=str(error), after_s=after_s, **of)
        else:
            size, send_s = sum(tensor.nbytes for tensor in tensors.values()), time.monotonic() - began - join_s
            self._ctx.log.emit(
                WEIGHTS_SENT, version=str(msg.version), group=msg.group, ranks=msg.ranks, size_bytes=size,
                join_s=round(join_s, 4), send_s=round(send_s, 4),
            )  # fmt: skip
        finally:
            self._sending = ""


def _carry_out(group: SendingGroup, tensors: Tensors, parts: list[list[str]], msg: Broadcast) -> float:
    """Seconds until all had joined. Ends within the two limits, and the group with it."""
    began = time.monotonic()
    try:
        group.join()
        joined = time.monotonic()
        for names in parts:
            left_s = max(1.0, joined + msg.settings.send_s - time.monotonic())
            group.send([tensors[name] for name in names], timeout_s=left_s)
        return joined - began
    finally:
        group.close()
