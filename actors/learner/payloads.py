"""The stored steps of a batch.

Invariant: every payload is exactly what its reference names, or an error lists those that can't be read and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from actors.replay.messages import StepPayload, Unreadable
from policy.errors import LearnerError
from runtime.errors import PayloadLost
from runtime.messaging.message import BlobRef

Stored = Callable[[list[BlobRef]], Iterable[bytes | PayloadLost]]
_DECODE = msgspec.msgpack.Decoder(StepPayload).decode


class UnreadableError(LearnerError):
    """Payloads of a lease that can't be read, and why."""

    def __init__(self, lease: int, causes: dict[BlobRef, str]) -> None:
        first = next(iter(causes.values()))
        super().__init__(f"lease {lease}: {len(causes)} payloads can't be read, the first: {first}")
        self.report = Unreadable(lease=lease, blobs=list(causes), cause=first)  # for the ledger


def read(stored: Stored, blobs: Iterable[BlobRef], lease: int) -> dict[BlobRef, StepPayload]:
    """The payloads of `blobs`, as the context's `payloads` reads them. Raises UnreadableError naming all lost ones.

    Raises StoreError where they can't be read for now: that says nothing of the payloads.
    """
    decoded, causes = dict[BlobRef, StepPayload](), dict[BlobRef, str]()
    wanted = list(dict.fromkeys(blobs))
    for blob, found in zip(wanted, stored(wanted), strict=True):
        if isinstance(found, PayloadLost):
            causes[blob] = str(found)
            continue
        try:
            decoded[blob] = _DECODE(found)
        except msgspec.DecodeError as error:
            causes[blob] = str(error)
    if causes:
        raise UnreadableError(lease, causes)
    return decoded
