"""Weights by collective: the sampler's place in the learner's group, and its engine's part in the broadcast.

Invariant: without a place in time weights are loaded from disk. A session that was begun is ended and a group that was
joined is left. Every call has more time than the sender gives itself, so the sender always gives up first.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from actors.errors import EngineGone
from actors.learner.messages import DeclineGroup, JoinGroup, SharedWeights, Ticket, WriteWeights
from actors.sampler import messages
from actors.sampler.client import CONTROL_TIMEOUT_S, EngineClient
from actors.sampler.config import WeightSyncConfig
from actors.sampler.messages import Weights, weights_exist
from policy.errors import EngineError, NoModel
from runtime.actor import Context
from runtime.errors import ActorFailed, ActorGone, DeadlineExceeded, MailboxFull

MARGIN_S = 10.0
SHARED_S = 120.0  # for one part, which the engine copies
Place = Ticket | SharedWeights


async def enter(client: EngineClient, ticket: Ticket) -> None:
    """Return once all engines and the sender are in the group. Raises EngineError where it does not come about."""
    request, settings = ticket.request, ticket.request.settings
    joining = {
        "master_address": settings.address,
        "master_port": ticket.sender.port,
        "rank_offset": ticket.rank,
        "world_size": request.ranks + 1,
        "group_name": request.group,
        "backend": settings.backend,
    }
    await client.control("/init_weights_update_group", joining, settings.form_s + MARGIN_S)


async def take(client: EngineClient, place: Place, version: str, *, flush: bool) -> None:
    """Receive as a member of the group, and leave it; or read what lies in this machine's memory.

    `flush`: not while running responses use the cache. Raises EngineError where the engine refuses, EngineGone where it
    breaks; it may then hold a part of the weights.
    """
    last = {"weight_version": version, "flush_cache": flush}
    if isinstance(place, SharedWeights):
        handles = [{"serialized_named_tensors": [part]} for part in place.parts]
        await _update(client, "/update_weights_from_tensor", handles, last, SHARED_S)
        return
    group, timeout_s = {"group_name": place.request.group}, place.request.settings.send_s + MARGIN_S
    buckets = [
        msgspec.structs.asdict(part) | group | {"load_format": "flattened_bucket"} for part in place.sender.parts
    ]
    async with _ended_by(client, "/destroy_weights_update_group", group):
        await _update(client, "/update_weights_from_distributed", buckets, last, timeout_s)


async def _update(
    client: EngineClient, path: str, parts: list[dict[str, Any]], last: dict[str, Any], timeout_s: float
) -> None:
    """One session of an update; the `last` words come with the last part."""
    try:
        await client.control("/begin_weight_update", {}, CONTROL_TIMEOUT_S)
    except EngineError:
        # A publication that broke may have left its session open; where there is none, ending it is refused too.
        await client.control("/end_weight_update", {}, CONTROL_TIMEOUT_S)
        await client.control("/begin_weight_update", {}, CONTROL_TIMEOUT_S)
    async with _ended_by(client, "/end_weight_update", {}):
        for part in parts:
            await client.control(path, part | (last if part is parts[-1] else {"flush_cache": False}), timeout_s)


@contextlib.asynccontextmanager
async def _ended_by(client: EngineClient, path: str, body: dict[str, Any]) -> AsyncIterator[None]:
    try:
        yield
    except (EngineError, EngineGone) as error:
        try:
            await client.control(path, body, CONTROL_TIMEOUT_S)
        except (EngineError, EngineGone) as second:
            error.add_note(str(second))
        raise
    else:
        await client.control(path, body, CONTROL_TIMEOUT_S)


ANSWER_S = 30.0  # on top of the time for forming the group: the learner asks its rank
TELL_TIMEOUT_S = 5.0
WRITE_S = 300.0  # as long as the learner gives its rank
GROUPED = ("collective", "shared")  # transports whose engines ask the learner


class GroupMember:
    """One sampler's part: it asks for a place, or declines."""

    def __init__(self, ctx: Context, weight_sync: WeightSyncConfig) -> None:
        self._ctx, self._join_s, self._transport = ctx, weight_sync.join_s, weight_sync.transport
        self._asked: Weights | None = None  # for a place in whose group was asked last

    def wanted(self, latest: Weights) -> bool:
        """Whether there is a group to ask for: once for the same weights, then they are loaded from disk."""
        return self._transport in GROUPED and bool(latest.group_owner) and latest != self._asked

    async def place(self, latest: Weights, client: EngineClient) -> Place | None:
        """A place for this engine. Raises EngineError, EngineGone where the engine does not say how large it is."""
        self._asked = latest
        shape = await client.server_info()
        shared = self._transport == "shared"
        if shared and shape.tp_size != 1:
            cause = f"the engine has tp_size {shape.tp_size}: shared weights are of one card"
        elif shape.dp_size != 1 or shape.pp_size != 1:
            cause = f"the engine has dp_size {shape.dp_size} and pp_size {shape.pp_size}: SGLang takes weights at 1"
            await self.decline(latest)
        else:
            request = JoinGroup(version=latest.version, sampler=self._ctx.name, ranks=shape.tp_size)
            try:
                answer = await self._ctx.ref(latest.group_owner).ask(request, timeout_s=self._join_s + ANSWER_S)
            except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull) as error:
                cause = str(error)
            else:
                if isinstance(answer, Place):
                    return answer
                cause = answer.reason
        self.not_received(latest, cause)
        return None

    async def written(self, latest: Weights) -> Weights:
        """`latest` once its folder is there. Raises EngineGone where the learner can't write it now."""
        if latest.digest or not latest.group_owner:
            return latest
        request = WriteWeights(version=latest.version)
        try:
            weights: Weights = await self._ctx.ref(latest.group_owner).ask(request, timeout_s=WRITE_S)
        except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull, NoModel) as error:
            if weights_exist(latest.location):  # written for another sampler, before the learner went on
                return latest
            raise EngineGone(f"{latest.version} is not on disk: {error}") from error
        return msgspec.structs.replace(latest, digest=weights.digest)

    def not_received(self, latest: Weights, cause: str) -> None:
        self._ctx.log.emit(messages.WEIGHTS_NOT_RECEIVED, version=str(latest.version), cause=cause)

    async def decline(self, latest: Weights) -> None:
        """This engine does not come for `latest`."""
        if self._transport != "collective" or not latest.group_owner:
            return
        message = DeclineGroup(version=latest.version, sampler=self._ctx.name)
        # Where it is not heard the others wait a little longer.
        with contextlib.suppress(ActorGone, DeadlineExceeded, MailboxFull):
            await self._ctx.ref(latest.group_owner).tell(message, timeout_s=TELL_TIMEOUT_S)
