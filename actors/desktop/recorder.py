"""Stores an episode's steps and pictures in the run's segments.

Invariant: a `StepRef` is handed out only for a payload that a reader will find, whatever is killed next.
"""

from __future__ import annotations

import asyncio

import msgspec

from actors.replay.messages import StepPayload, StepRef
from runtime.message import BlobRef
from runtime.segments import SegmentStore

MAX_PICTURE = 4 << 20  # bytes; a guest that sends more sends no picture


class Recorder:
    """Writes to the segments of one host process, which its seats share."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._encoder = msgspec.msgpack.Encoder()

    def picture(self, jpeg: object) -> BlobRef | None:
        """Store a screenshot; anything but a JPEG of sane size is left out."""
        if not isinstance(jpeg, bytes) or not jpeg.startswith(b"\xff\xd8") or len(jpeg) > MAX_PICTURE:
            return None
        return self._store.append(jpeg)

    async def step(self, payload: StepPayload, *, well_formed: bool) -> StepRef:
        """Store one step and describe it for the ledger. Raises StoreError."""
        blob = self._store.append(self._encoder.encode(payload))
        return StepRef(
            blob=blob,
            prompt_tokens=len(payload.prompt_ids),
            response_tokens=len(payload.response_ids),
            well_formed=well_formed,
            oldest=min((span.version for span in payload.spans), default=None),
            screenshot=payload.screenshot,
        )

    async def flush(self) -> None:
        """Make everything stored so far safe from a power cut."""
        await asyncio.to_thread(self._store.flush)

    async def close(self) -> None:
        """Release the segment file."""
        await asyncio.to_thread(self._store.close)
