"""What a desktop controller understands. Its work comes from the ledger; messages only ask how it does."""

from __future__ import annotations

from runtime.messaging.message import Message, Request


class SeatState(Message):
    """How a seat spends its time."""

    stage: str
    task: str | None
    step: int
    episodes: int
    faults: int
    quarantined: bool
    seconds: dict[str, float]  # by stage, since the actor's start


class GetSeat(Request[SeatState]):
    """Ask what the seat is doing."""
