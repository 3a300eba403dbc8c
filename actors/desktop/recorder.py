"""Stores an episode's steps and pictures in the run's segments.

Invariant: a `StepRef` is handed out only for a payload that a reader will find, whatever is killed next. A slow disk
holds back only the callers that store. Writes go one after another in a thread of their own, and each caller waits for
its own write. The log names a slow file after some seconds. After `STUCK_S` the disk counts as broken.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from actors.desktop.end_state import EndState
from actors.desktop.wire import is_jpeg
from actors.replay.messages import StepPayload, StepRef
from runtime.disk import DiskGate, Log, on_disk
from runtime.errors import DiskRefuses, StoreError
from runtime.messaging.message import BlobRef
from runtime.segments import SegmentStore

STUCK_S = 300.0
TOOL = "tool"  # the function of an action that calls an application's tool, which `owner` and `name` tell
T = TypeVar("T")


def called(payload: StepPayload) -> tuple[str, str]:
    """`StepRef.function` and `StepRef.line` of a step."""
    line = hashlib.blake2b((payload.action or payload.response).encode(), digest_size=8).hexdigest()
    if payload.action is None:
        return "", line
    action = msgspec.json.decode(payload.action, type=dict[str, Any])
    name = f"{action['owner']}.{action['name']}" if action["function"] == TOOL else str(action["function"])
    return name, line


class Recorder:
    """Writes to the segments of one host process, which its seats share."""

    def __init__(self, store: SegmentStore, log: Log | None = None) -> None:
        self._store = store
        self.gate = DiskGate(store.folder, log, store.refusal)  # shut while the disk refuses
        self._log = log
        self._encoder = msgspec.msgpack.Encoder()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segments")

    async def picture(self, jpeg: object) -> BlobRef | None:
        """Store a screenshot; anything but a JPEG of sane size is left out. Raises StoreError."""
        if not is_jpeg(jpeg):
            return None
        return await self._do("append", lambda: self._store.append(jpeg))

    async def step(self, payload: StepPayload, *, well_formed: bool) -> StepRef:
        """Store one step and describe it for the ledger. Raises StoreError."""
        encoded = self._encoder.encode(payload)
        blob = await self._do("append", lambda: self._store.append(encoded))
        function, line = called(payload)
        return StepRef(
            blob=blob,
            prompt_tokens=len(payload.prompt_ids),
            response_tokens=len(payload.response_ids),
            well_formed=well_formed,
            oldest=min((span.version for span in payload.spans), default=None),
            newest=max((span.version for span in payload.spans), default=None),
            screenshot=payload.screenshot,
            function=function,
            line=line,
            surprisal=-sum(payload.logprobs),
        )

    async def end_state(self, step: StepRef, end: EndState) -> StepRef:
        """Store what the episode was judged by beside its last `step`. Raises StoreError."""
        parts = end.parts()
        blobs = await self._do("append", lambda: [self._store.append(part) for part in parts])
        return msgspec.structs.replace(step, end=blobs)

    async def flush(self, steps: Sequence[StepRef]) -> None:
        """Make `steps`, stored before, safe from a power cut. Raises StoreError."""
        files = {blob.segment for step in steps for blob in step.blobs}
        await self._do("flush", lambda: self._store.flush(files))

    async def close(self) -> None:
        """Release the segment file. Raises StoreError."""
        await self._do("close", self._store.close)
        self._thread.shutdown(wait=False)

    async def _do(self, what: str, work: Callable[[], T]) -> T:
        file = self._store.name
        try:
            async with asyncio.timeout(STUCK_S), on_disk(self._log, file, what):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except DiskRefuses as error:
            self.gate.refuse(str(error))
            raise
        except TimeoutError as error:
            raise StoreError(f"{file}: {what} was not done within {STUCK_S:g} s") from error
