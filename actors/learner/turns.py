"""The learner's side of a GPU that it and one engine use in turns.

The rank is asked for what takes memory of the card only in the learner's turn. A turn lasts over steps that follow each
other at once. It ends with the weights that are announced, or when there is nothing to train on.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence

from actors.learner.messages import ExportWeights, LoadModel, LookAt, Rest, StepPlan
from actors.sampler.messages import FallAsleep, WakeUp
from runtime.actor import Context
from runtime.errors import ActorGone, DeadlineExceeded, MailboxFull
from runtime.messaging.message import Message

NEEDS_CARD = (LoadModel, StepPlan, LookAt, ExportWeights)  # a checkpoint is written of what rests
SLEEP_S, GIVE_UP_S = 600.0, 7200.0  # one try, and all: an engine may be starting
REST_S, WAKE_S = 300.0, 5.0


class CardTurns:
    """Asks the engines of `samplers` to sleep and to wake. Does nothing without samplers."""

    def __init__(self, samplers: Sequence[str], ctx: Context) -> None:
        self._samplers, self._ctx = samplers, ctx
        self._turn = ""
        self._mine = False

    async def before(self, msg: Message) -> None:
        """Begins a turn if `msg` needs GPU memory and none is under way. Raises what an ask raises."""
        if self._mine or not self._samplers or not isinstance(msg, NEEDS_CARD):
            return
        self._turn = uuid.uuid4().hex
        for name in self._samplers:
            await self._ctx.ref(name).ask_until(FallAsleep(turn=self._turn), timeout_s=SLEEP_S, give_up_s=GIVE_UP_S)
        self._mine = True

    async def over(self, ask_rank: Callable[[Rest, float], Awaitable[object]]) -> None:
        """Ends the turn, and repeats `WakeUp` for a sampler that missed it. Raises what `ask_rank` raises."""
        if self._mine:
            await ask_rank(Rest(), REST_S)
            self._mine = False
        for name in self._samplers:
            try:
                await self._ctx.ref(name).ask(WakeUp(turn=self._turn), timeout_s=WAKE_S)
            except (ActorGone, DeadlineExceeded, MailboxFull):
                continue  # it hears of it when there is next nothing to train on
