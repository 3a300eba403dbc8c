"""The life of a group, G slots on one task, from opened to its one ending; and choices that a restart repeats.

Invariant: a group ends exactly once. `trained` is provisional until a checkpoint covers the step. Only that provisional
ending can be taken back. Every other move out of `ended` is refused. Every random choice is a function of the run's
seed and of counts that the ledger stores.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

import msgspec

from actors.errors import LedgerError
from runtime.settings import stable_seed


class GroupState(StrEnum):
    """Where a group is between opening and its ending."""

    OPEN = "open"  # slots are being played
    READY = "ready"  # complete, waits for the learner
    LEASED = "leased"  # the learner computes a step from it
    ENDED = "ended"


class GroupEnding(StrEnum):
    """Why a group left the ledger."""

    TRAINED = "trained"
    STALE = "stale"
    ZERO_VARIANCE = "zero_variance"
    LOST = "lost"
    PHASE_CLOSED = "phase_closed"
    ORPHANED = "orphaned"


class SlotState(StrEnum):
    """Where one episode of a group is."""

    FREE = "free"
    OUT = "out"
    DONE = "done"
    LOST = "lost"  # faults beyond the retry budget


class Slot(msgspec.Struct, frozen=True):
    """One episode of a group and the faults it has met."""

    state: SlotState = SlotState.FREE
    faults: int = 0


class GroupStatus(msgspec.Struct, frozen=True):
    """State, ending (only when ended) and whether the ending can still be taken back."""

    state: GroupState = GroupState.OPEN
    ending: GroupEnding | None = None
    final: bool = False


_ENDS_FROM = {
    GroupEnding.TRAINED: {GroupState.LEASED},
    GroupEnding.STALE: {GroupState.READY},
    # From leased: rewards of one's own are equal, or count for nothing.
    GroupEnding.ZERO_VARIANCE: {GroupState.OPEN, GroupState.LEASED},
    GroupEnding.LOST: {GroupState.OPEN, GroupState.LEASED},  # from leased: its payloads can't be read
    GroupEnding.PHASE_CLOSED: {GroupState.OPEN, GroupState.READY, GroupState.LEASED},
    GroupEnding.ORPHANED: {GroupState.OPEN, GroupState.READY, GroupState.LEASED},
}
_STEPS = {
    GroupState.READY: {GroupState.OPEN, GroupState.LEASED},  # from leased: the lease was given back
    GroupState.LEASED: {GroupState.READY},
}


def move(status: GroupStatus, to: GroupState) -> GroupStatus:
    """Go to `ready` or `leased`. Raises LedgerError for a move that the group's life does not have."""
    if status.state not in _STEPS.get(to, ()):
        raise LedgerError(f"a group cannot go from {status.state} ({status.ending}) to {to}")
    return GroupStatus(state=to)


def end(status: GroupStatus, ending: GroupEnding) -> GroupStatus:
    """End a group; `trained` stays provisional. Raises LedgerError when it has ended or cannot end so from here."""
    if status.state not in _ENDS_FROM[ending]:
        raise LedgerError(f"a group cannot end {ending} from {status.state} ({status.ending})")
    return GroupStatus(state=GroupState.ENDED, ending=ending, final=ending is not GroupEnding.TRAINED)


def confirm(status: GroupStatus) -> GroupStatus:
    """A checkpoint covers the step: `trained` is final. Raises LedgerError unless it was provisional."""
    _require_provisional(status)
    return GroupStatus(state=GroupState.ENDED, ending=GroupEnding.TRAINED, final=True)


def take_back(status: GroupStatus) -> GroupStatus:
    """The step is in no checkpoint and its weights are gone: leased again. Raises LedgerError unless provisional."""
    _require_provisional(status)
    return GroupStatus(state=GroupState.LEASED)


def _require_provisional(status: GroupStatus) -> None:
    if status.ending is not GroupEnding.TRAINED or status.final:
        raise LedgerError(f"only a provisional `trained` can change, not {status.state} ({status.ending})")


def reserve(slot: Slot) -> Slot:
    """Hand the slot out. Raises LedgerError unless it is free."""
    _require(slot, SlotState.FREE)
    return Slot(state=SlotState.OUT, faults=slot.faults)


def commit(slot: Slot) -> Slot:
    """The episode ended with an outcome. Raises LedgerError unless the slot is out."""
    _require(slot, SlotState.OUT)
    return Slot(state=SlotState.DONE, faults=slot.faults)


def release(slot: Slot, retries: int, counts: bool = True) -> Slot:
    """Infrastructure broke the episode: free for another try, or lost beyond `retries`.

    `counts` is False for work cut off by the end of a run, which says nothing about the task.
    """
    _require(slot, SlotState.OUT)
    faults = slot.faults + counts
    return Slot(state=SlotState.LOST if faults > retries else SlotState.FREE, faults=faults)


def _require(slot: Slot, state: SlotState) -> None:
    if slot.state is not state:
        raise LedgerError(f"the slot is {slot.state}, not {state}")


def is_lost(slots: Iterable[Slot], group_min: int) -> bool:
    """Whether fewer than `group_min` episodes can ever be done."""
    return sum(slot.state is not SlotState.LOST for slot in slots) < group_min


def is_complete(slots: Iterable[Slot]) -> bool:
    """Whether no episode is left to play."""
    return all(slot.state in (SlotState.DONE, SlotState.LOST) for slot in slots)


ItemT = TypeVar("ItemT")


def place(seen: int, size: int, seed: int) -> int | None:
    """Where the next offer goes after `seen` earlier ones: a place in 0..size-1 (maybe evicting), or None.

    Vitter's algorithm R; `seed` must differ between offers.
    """
    if seen < size:
        return seen
    draw = random.Random(seed).randrange(seen + 1)  # noqa: S311 - repeatable, nothing secret
    return draw if draw < size else None


def choose(items: Sequence[ItemT], count: int, seed: int) -> list[ItemT]:
    """`count` of `items` at random without replacement, in their order; all when there are no more."""
    if len(items) <= count:
        return list(items)
    picks = sorted(random.Random(seed).sample(range(len(items)), count))  # noqa: S311 - as above
    return [items[pick] for pick in picks]


@lru_cache(maxsize=4)
def shuffled(size: int, seed: int) -> tuple[int, ...]:
    """A permutation of range(size). Kept for the next minibatches of the same epoch."""
    order = list(range(size))
    random.Random(seed).shuffle(order)  # noqa: S311 - as above
    return tuple(order)


def minibatch(size: int, batch: int, per_batch: int, seed: int) -> list[int]:
    """Indices of minibatch number `batch` over endless shuffled epochs of `size` items.

    Every item comes once per epoch; a minibatch may span two epochs. Raises ValueError when there are no items.
    """
    if size < 1:
        raise ValueError("no items to draw minibatches from")
    first = batch * per_batch
    places = (divmod(position, size) for position in range(first, first + per_batch))
    return [shuffled(size, stable_seed(seed, epoch))[place_in_epoch] for epoch, place_in_epoch in places]


def nth_of_epochs(items: Sequence[ItemT], number: int, seed: int) -> ItemT:
    """Item `number` of endless shuffled epochs over `items`. Raises ValueError when there are none."""
    return items[minibatch(len(items), number, 1, seed)[0]]
