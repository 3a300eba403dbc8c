"""The next episode that the ledger hands out, before it is a reservation.

Invariant: data alone. Demonstrations, training and evaluation each make one kind of it.
"""

from __future__ import annotations

import msgspec

from actors.replay.messages import Lane, Sampling
from runtime.messaging.message import Version


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a reservation is made of."""

    lane: Lane
    task: str
    slot: int
    seed: int
    sampling: Sampling
    group: int | None = None
    round_id: int | None = None
    round: str = ""
    route: str = ""
    member: str = ""
    pin: Version | None = None
