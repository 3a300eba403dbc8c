"""The stored steps of a batch.

Invariant: every payload is exactly what its reference names, or an error lists those that can't be read and why.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from actors.replay.messages import StepPayload, Unreadable
from policy.errors import LearnerError
from runtime.errors import PayloadLost
from runtime.messaging.message import BlobRef
from runtime.storage.segments import read_blob

_DECODE = msgspec.msgpack.Decoder(StepPayload).decode


class UnreadableError(LearnerError):
    """Payloads of a lease that can't be read, and why."""

    def __init__(self, lease: int, causes: dict[BlobRef, str]) -> None:
        first = next(iter(causes.values()))
        super().__init__(f"lease {lease}: {len(causes)} payloads can't be read, the first: {first}")
        self.report = Unreadable(lease=lease, blobs=list(causes), cause=first)  # for the ledger


def read(segments: Path, blobs: Collection[BlobRef], lease: int) -> dict[BlobRef, StepPayload]:
    """The payloads of `blobs` in the folder `segments`. Raises UnreadableError naming all that can't be read.

    Raises StoreError where this process can't read for now: that says nothing of the payloads.
    """
    decoded, causes = dict[BlobRef, StepPayload](), dict[BlobRef, str]()
    for blob in blobs:
        try:
            decoded[blob] = _DECODE(read_blob(segments, blob))
        except (PayloadLost, msgspec.DecodeError) as error:
            causes[blob] = str(error)
    if causes:
        raise UnreadableError(lease, causes)
    return decoded
