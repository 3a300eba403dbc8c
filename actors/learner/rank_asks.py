"""What the learner asks of the first rank, and when it asks again.

Invariant: a full disk and a broken transfer cost time and no step. A rank's end is an error of its own.
"""

from __future__ import annotations

from typing import TypeVar

from actors.learner import events
from actors.learner.config import LearnerConfig
from actors.learner.peers import meeting_s
from policy.errors import LearnerError
from runtime.actor import Context
from runtime.disk import DiskGate
from runtime.errors import ActorGone, DiskRefuses, TransferFailed
from runtime.messaging.message import Request
from runtime.messaging.refs import Ref
from runtime.supervision import Backoff

R = TypeVar("R")
TRANSFER_PAUSES = Backoff(first_s=2.0, longest_s=60.0)  # each try may move a whole model
LINK_BYTES_S = 1 << 20  # of the slowest link to other machines that is waited for
EXPORT_BYTES, SAVE_BYTES = 4, 20  # of a parameter, at most: weights, or also masters, Adam's state and the reference


class RankLostError(LearnerError):
    """The rank's process ended while it had an ask of ours."""


def moving_s(learner: LearnerConfig, size_bytes: int) -> float:
    """Seconds that `size_bytes` may take to or from each rank elsewhere, over one slow link; 0 without such ranks."""
    return learner.parallel.ranks * size_bytes / LINK_BYTES_S if learner.place else 0.0


def loading_s(learner: LearnerConfig, size_bytes: int) -> float:
    """Seconds that the ranks may take to meet and to fetch what they load, beside those of loading it."""
    return meeting_s(learner.parallel.ranks) + moving_s(learner, size_bytes)


async def paused(ctx: Context, name: str, request: str, error: TransferFailed, failures: int) -> None:
    """Wait before what did not get from or to the machine of `name` is tried again; `failures` are those in a row."""
    if failures == 1:
        ctx.log.emit(events.TRANSFER_FAILED, name=name, request=request, cause=str(error))
    await ctx.clock.sleep(TRANSFER_PAUSES.delay_s(failures))


async def asked(ctx: Context, rank: Ref, name: str, gate: DiskGate, msg: Request[R], *, timeout_s: float) -> R:
    """What the rank called `name` answers to `msg`, within `timeout_s` of the last ask. Raises RankLostError."""
    failures = 0
    while True:
        try:
            return await rank.ask(msg, timeout_s=timeout_s)
        except DiskRefuses as error:
            gate.refuse(str(error))
            await gate.passed()
        except TransferFailed as error:  # no disk here is why, so there is none to look at
            failures += 1
            await paused(ctx, name, type(msg).__name__, error, failures)
        except ActorGone as error:
            raise RankLostError(str(error)) from error
