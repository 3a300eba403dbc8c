"""Weights by collective: one engine's part in a publication.

Invariant: a session that was begun is ended and a group that was joined is left, whatever happens between. The very
call that receives the last weights sets their name. Every call has more time than the sender gives itself, so the
sender always gives up first.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from actors.errors import EngineGone
from actors.learner.messages import Ticket
from actors.sampler.engine.client import CONTROL_TIMEOUT_S, EngineClient
from policy.errors import EngineError

MARGIN_S = 10.0
DIFFERENCES_TOLD = 3


async def enter(client: EngineClient, ticket: Ticket) -> None:
    """Return once all engines and the sender are in the group. Raises EngineError where it does not come about."""
    joining = {
        "master_address": ticket.address,
        "master_port": ticket.port,
        "rank_offset": ticket.rank,
        "world_size": ticket.size,
        "group_name": ticket.group,
        "backend": ticket.backend,
    }
    await client.control("/init_weights_update_group", joining, ticket.form_s + MARGIN_S)


async def take(client: EngineClient, ticket: Ticket, version: str, *, flush: bool) -> None:
    """Receive as a member of the group, and leave it. `flush`: not while running responses use the cache.

    Raises EngineError where the engine refuses, EngineGone where it breaks; it may then hold a part of the weights.
    """
    async with _ended_by(client, "/destroy_weights_update_group", {"group_name": ticket.group}):
        await _begin(client)
        async with _ended_by(client, "/end_weight_update", {}):
            for place, part in enumerate(ticket.parts):
                body: dict[str, Any] = {
                    "names": part.names,
                    "dtypes": part.dtypes,
                    "shapes": part.shapes,
                    "group_name": ticket.group,
                    "flush_cache": False,
                }
                if ticket.unit == "bucket":
                    body["load_format"] = "flattened_bucket"
                if place == len(ticket.parts) - 1:
                    body |= {"weight_version": version, "flush_cache": flush}
                await client.control("/update_weights_from_distributed", body, ticket.send_s + MARGIN_S)


async def compare(client: EngineClient, ticket: Ticket) -> None:
    """Raise EngineError where the engine's checksums are not those of what was sent, where the ticket names them."""
    if not ticket.checksums:
        return
    for rank in await client.checksums(ticket.send_s + MARGIN_S):
        wrong = differing(rank, ticket.checksums)
        if wrong:
            raise EngineError(f"{len(wrong)} tensors have other checksums than sent: {wrong[:DIFFERENCES_TOLD]}")


def differing(found: dict[str, str], sent: dict[str, str]) -> list[str]:
    """Names that were sent and have another checksum here, or none."""
    return sorted(name for name, checksum in sent.items() if found.get(name) != checksum)


async def _begin(client: EngineClient) -> None:
    try:
        await client.control("/begin_weight_update", {}, CONTROL_TIMEOUT_S)
    except EngineError:
        # A publication that broke may have left its session open; where there is none, ending it is refused too.
        await client.control("/end_weight_update", {}, CONTROL_TIMEOUT_S)
        await client.control("/begin_weight_update", {}, CONTROL_TIMEOUT_S)


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
