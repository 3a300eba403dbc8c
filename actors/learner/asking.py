"""How the learner asks the ledger.

Invariant: a request is asked again while the ledger restarts or its disk is slow, up to a limit, and for as long as it
takes while its disk refuses: its requests are idempotent.
"""

from __future__ import annotations

from typing import TypeVar

from runtime.actor import Context
from runtime.errors import ActorFailed, ActorGone, DeadlineExceeded, DiskRefuses, MailboxFull, StoreError
from runtime.message import Request

R = TypeVar("R")
GIVE_UP_S = 300.0  # all tries, as of the seats: what is given up here is trained anew from a checkpoint
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
TRANSIENT = (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull, StoreError)


async def ask_ledger(ctx: Context, ledger: str, msg: Request[R], timeout_s: float) -> R:
    """The answer of the actor `ledger`. Raises its refusal, or the last error after `GIVE_UP_S` seconds."""
    give_up, pause_s = ctx.clock.now() + GIVE_UP_S, FIRST_PAUSE_S
    while True:
        try:
            return await ctx.ref(ledger).ask(msg, timeout_s=timeout_s)
        except DiskRefuses:
            give_up = ctx.clock.now() + GIVE_UP_S  # it answers, and has no room
        except TRANSIENT:
            if ctx.clock.now() + pause_s > give_up:
                raise
        await ctx.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
