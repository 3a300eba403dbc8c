"""A sampler's side of the group that the learner forms for new weights.

Invariant: an answer comes within a bounded time whatever the learner does. No answer means loading from disk. A
sampler that will not come says so, and the group goes on without it.
"""

from __future__ import annotations

import contextlib

import msgspec

from actors.errors import EngineGone
from actors.learner.messages import DeclineGroup, JoinGroup, Ticket, WriteWeights
from actors.sampler import events
from actors.sampler.config import WeightSyncConfig
from actors.sampler.engine.client import EngineClient
from actors.sampler.latest import Latest, there
from actors.sampler.messages import Weights
from policy.errors import NoModel
from runtime.actor import Context
from runtime.errors import ActorFailed, ActorGone, DeadlineExceeded, MailboxFull

ANSWER_S = 30.0  # beside the time for forming the group: the learner asks its rank
TELL_TIMEOUT_S = 5.0
WRITE_S = 300.0  # as long as the learner gives its rank


class GroupMember:
    """One sampler's part: it asks for a place, or declines."""

    def __init__(self, ctx: Context, weight_sync: WeightSyncConfig) -> None:
        self._ctx, self._join_s = ctx, weight_sync.join_s
        self._asked: Latest | None = None  # for a place in whose group was asked last

    def wanted(self, latest: Latest) -> bool:
        """Whether there is a group to ask for: once for the same weights, then they are loaded from disk."""
        return bool(latest.group_owner) and latest != self._asked

    async def place(self, latest: Latest, client: EngineClient) -> Ticket | None:
        """A place for this engine. Raises EngineError, EngineGone where the engine does not say how large it is."""
        self._asked = latest
        shape = await client.server_info()
        if shape.dp_size != 1 or shape.pp_size != 1:
            cause = f"the engine has dp_size {shape.dp_size} and pp_size {shape.pp_size}: SGLang takes weights at 1"
            await self.decline(latest)
        else:
            request = JoinGroup(version=latest.version, sampler=self._ctx.name, ranks=shape.tp_size)
            try:
                answer = await self._ctx.ref(latest.group_owner).ask(request, timeout_s=self._join_s + ANSWER_S)
            except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull) as error:
                cause = str(error)
            else:
                if isinstance(answer, Ticket):
                    return answer
                cause = answer.reason
        self.not_received(latest, cause)
        return None

    async def written(self, latest: Latest) -> Latest:
        """`latest` once its folder is there. Raises EngineGone where the learner can't write it now."""
        if latest.digest or not latest.group_owner:
            return latest
        request = WriteWeights(version=latest.version)
        try:
            weights: Weights = await self._ctx.ref(latest.group_owner).ask(request, timeout_s=WRITE_S)
        except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull, NoModel) as error:
            if there(latest.location):  # written for another sampler, before the learner went on
                return latest
            raise EngineGone(f"{latest.version} is not on disk: {error}") from error
        return msgspec.structs.replace(latest, digest=weights.digest)

    def not_received(self, latest: Latest, cause: str) -> None:
        """Say why they come from disk."""
        self._ctx.log.emit(events.WEIGHTS_NOT_RECEIVED, version=str(latest.version), cause=cause)

    async def decline(self, latest: Latest) -> None:
        """This engine does not come for `latest`."""
        if not latest.group_owner:
            return
        message = DeclineGroup(version=latest.version, sampler=self._ctx.name)
        # Where it is not heard the others wait a little longer.
        with contextlib.suppress(ActorGone, DeadlineExceeded, MailboxFull):
            await self._ctx.ref(latest.group_owner).tell(message, timeout_s=TELL_TIMEOUT_S)
