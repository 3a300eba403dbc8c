"""The other ranks, as rank 0 sees them: it brings them together, and has them do what it does.

Invariant: all ranks do the same things in the same order. Ranks that may have come apart never go on: their processes
end, and their successors meet again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from actors.learner import events
from actors.learner.messages import EndRank, GetReady, JoinRanks, RankPlace
from policy.errors import NoModel
from runtime.actor import Context
from runtime.errors import ActorFailed, ActorGone, ComputerRLError, DeadlineExceeded, MailboxFull
from runtime.messaging.message import Request
from runtime.messaging.refs import Ref

T = TypeVar("T")
MEET_S = 300.0  # for all to meet: a rank whose process or machine was lost starts again meanwhile
AGAIN_S = 0.2
GRACE_S = 10.0  # after one rank has failed, for the others to fail alike
WORK_S = 4 * 3600.0  # a whole model goes over a slow link; a lost rank is noticed long before
TELL_S = 2.0
APART = (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull)  # of a rank that did not say what it did


def meeting_s(ranks: int) -> float:
    """Seconds that so many ranks may take to meet: all are ready first, and then they join."""
    return 2 * MEET_S if ranks > 1 else 0.0


class Peers:
    """Ranks 1 and up, by their actors' names in order."""

    def __init__(self, names: Sequence[str], ctx: Context) -> None:
        self._refs = [ctx.ref(name) for name in names]
        self._ctx = ctx
        self.met = False

    async def meet(self, address: str, port: int, join: Callable[[JoinRanks], Awaitable[None]]) -> None:
        """Once in this process's life: all ranks meet at this rank's store; `join` is this rank's part.

        Ranks of one machine have numbers in a row, this rank's machine first: Megatron's tensor groups are such rows.
        """
        places = [one.address for one in await asyncio.gather(*map(self._ready, self._refs))]
        order = sorted(range(len(places)), key=lambda k: (places[k] != address, places[k], k))
        self._refs = [self._refs[k] for k in order]
        mine, *theirs = (
            JoinRanks(address=address, port=port, rank=rank, ranks=len(order) + 1) for rank in range(len(order) + 1)
        )
        joined = [ref.ask(msg, timeout_s=MEET_S) for ref, msg in zip(self._refs, theirs, strict=True)]
        await self._all("meeting", join(mine), joined)
        self.met = True

    async def together(self, msg: Request[Any], own: Awaitable[T]) -> T:
        """Have every rank carry out `msg`, of which `own` is this rank's part; its result.

        What all ranks refuse alike is raised, as this rank raised it.
        """
        return await self._all(type(msg).__name__, own, [ref.ask(msg, timeout_s=WORK_S) for ref in self._refs])

    async def _ready(self, ref: Ref) -> RankPlace:
        """A process that has met other ranks ends when it is asked, and its successor is asked again.

        Raises NoModel where none comes in time: the learner asks again, as long as it takes.
        """
        deadline = self._ctx.clock.now() + MEET_S
        while True:
            try:
                return await ref.ask(GetReady(), timeout_s=max(1.0, deadline - self._ctx.clock.now()))
            except (ActorGone, DeadlineExceeded) as error:
                if self._ctx.clock.now() >= deadline:
                    raise NoModel(f"another rank has not come within {MEET_S:g} s: {error}") from error
                await self._ctx.clock.sleep(AGAIN_S)  # asks wait for its process, unless that is never started again

    async def _all(self, what: str, own: Awaitable[T], asked: Sequence[Coroutine[Any, Any, Any]]) -> T:
        mine = asyncio.ensure_future(own)
        theirs = [asyncio.ensure_future(one) for one in asked]
        done, pending = await asyncio.wait([mine, *theirs], return_when=asyncio.FIRST_EXCEPTION)
        if pending and not any(isinstance(task.exception(), APART) for task in done):
            more, pending = await asyncio.wait(pending, timeout=GRACE_S)
            done |= more
        failures = [error for task in done if (error := task.exception()) is not None]
        told = [error for error in failures if isinstance(error, ComputerRLError) and not isinstance(error, APART)]
        if pending or len(told) != len(failures) or len(failures) not in {0, len(done)}:
            await self._end(f"{what}: {', '.join(map(repr, failures))}")
        return mine.result()

    async def _end(self, cause: str) -> NoReturn:
        await asyncio.gather(
            *(ref.tell(EndRank(cause=cause), timeout_s=TELL_S) for ref in self._refs), return_exceptions=True
        )
        end_process(self._ctx, cause)


def end_process(ctx: Context, cause: str) -> NoReturn:
    """End this process, and let its supervisor start another: a thread that waits for other ranks can't be stopped."""
    ctx.log.emit(events.RANK_ENDS, cause=cause)
    os._exit(1)
