"""Weights by collective: one engine's part in a publication.

Invariant: a session that was begun is ended and a group that was joined is left, whatever happens between; the
weights' name is set by the very call that receives them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from actors.sampler.client import EngineClient


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine joins and receives. `rank` counts from 1: the sender is 0."""

    group: str
    address: str
    port: int
    rank: int
    size: int  # of the group, the sender included
    backend: str
    version: str
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    bucket: bool  # all bytes as one broadcast, else one per tensor
    flush: bool  # not while running responses use the cache


async def receive(client: EngineClient, one: Publication, timeout_s: float) -> None:
    """Join, receive, leave. Raises EngineError where the engine refuses, EngineGone where it breaks."""
    joining = {
        "master_address": one.address,
        "master_port": one.port,
        "rank_offset": one.rank,
        "world_size": one.size,
        "group_name": one.group,
        "backend": one.backend,
    }
    body: dict[str, Any] = {
        "names": one.names,
        "dtypes": one.dtypes,
        "shapes": one.shapes,
        "group_name": one.group,
        "weight_version": one.version,
        "flush_cache": one.flush,
    }
    if one.bucket:
        body["load_format"] = "flattened_bucket"
    await client.control("/init_weights_update_group", joining, timeout_s)
    leaving = {"group_name": one.group}
    async with _ended_by(client, "/destroy_weights_update_group", leaving, timeout_s):
        await client.control("/begin_weight_update", {}, timeout_s)
        async with _ended_by(client, "/end_weight_update", {}, timeout_s):
            await client.control("/update_weights_from_distributed", body, timeout_s)


@contextlib.asynccontextmanager
async def _ended_by(client: EngineClient, path: str, body: dict[str, Any], timeout_s: float) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await client.control(path, body, timeout_s)
