"""Which sequences share the next forward pass, and what a sequence is. Pure: no tensors, no clock, no threads.

Invariant: a row belongs to one sequence at a time. The waiting line is bounded and served in order of arrival. A
sequence steps aside only while a sequence in prefill computes most of its prompt anyway. A pass holds one lane of
weights and at most `prefill_tokens` tokens beyond one per running sequence. No lane starves.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from policy.errors import EngineBusy
from policy.pictures import PicturePlace, turned_positions

FOLLOW = -1  # lane of sequences that are always drawn from the newest weights
MIXED = -2  # keys and values of a row come from more than one version


@dataclass(frozen=True, slots=True)
class Draw:
    """How a response is drawn. `temperature` 0 is greedy."""

    max_new_tokens: int
    temperature: float
    stop_ids: frozenset[int]
    seed: int
    top_p: float = 1.0  # share of the likeliest tokens that are drawn from


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a response ended; `matched` is the stop token, `message` and `status` belong to an abort."""

    kind: Literal["stop", "length", "abort"]
    matched: int | None = None
    message: str = ""
    status: int | None = None


@dataclass(slots=True)
class DrawnSpan:
    """Response tokens `start` to `end` (exclusive) were drawn from `version`."""

    version: str
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one response. `lane` is FOLLOW or the serial number of the weights it is bound to."""

    rid: str
    ids: list[int]
    draw: Draw
    lane: int = FOLLOW
    score_at: int | None = None  # next prompt position whose logits score its successor; None: nothing is scored
    stream: bool = False
    received_s: float = 0.0
    prompt_len: int = 0
    logprobs: list[float] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    spans: list[DrawnSpan] = field(default_factory=list)
    row: int | None = None
    computed: int = 0
    kv_weights: int = MIXED  # serial number of the weights that computed the row, MIXED after a change
    cached: int | None = None  # prompt tokens found in the prefix index when it was first admitted
    version: str = ""  # of the weights that last computed it
    retractions: int = 0
    admitted_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    finish: Finish | None = None
    pictures: tuple[PicturePlace, ...] = ()
    keys: list[int] = field(init=False)  # `ids`, but that a pad says of which picture it is: what a prefix is known by
    positions: list[list[int]] | None = None  # of each token in time, height and width, where there are pictures
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_len = len(self.ids)
        self.keys = self.ids
        if self.pictures:
            self.keys, self.positions = list(self.ids), turned_positions(len(self.ids), self.pictures)
            for picture in self.pictures:
                self.keys[picture.at : picture.at + picture.tokens] = [-1 - int(picture.digest, 16)] * picture.tokens
        self.random = random.Random(self.draw.seed)  # noqa: S311 - draws tokens, keeps no secret

    @property
    def remaining(self) -> int:
        """Tokens without keys and values; 1 while it is being decoded."""
        return len(self.ids) - self.computed

    @property
    def output(self) -> list[int]:
        return self.ids[self.prompt_len :]

    @property
    def reusable(self) -> int:
        """How many tokens may come from a prefix index: logits of the last, and of scored ones, must be computed."""
        limit = len(self.ids) - 1
        return limit if self.score_at is None else min(limit, self.score_at)

    def wanted(self, start: int, end: int) -> int:
        """For how many of the last tokens of ids[start:end] logits are needed."""
        if self.score_at is not None:
            return max(0, end - max(start, self.score_at))
        return 1 if end == len(self.ids) else 0

    def snapshot(self, version: str) -> Sequence:
        """What it has come to, safe to read from another thread; `version` is named where it was never computed."""
        taken = copy.copy(self)
        taken.ids, taken.version = list(self.ids), self.version or version
        taken.logprobs, taken.prompt_logprobs = list(self.logprobs), list(self.prompt_logprobs)
        taken.spans = [copy.copy(span) for span in self.spans]
        return taken

    def append(self, token: int, logprob: float, version: str) -> None:
        """Take a drawn token on and decide whether it ends the response: length first, as SGLang does."""
        at = len(self.ids) - self.prompt_len
        self.ids.append(token)
        if self.positions is not None:
            self.keys.append(token)
            for axis in self.positions:
                axis.append(axis[-1] + 1)
        self.logprobs.append(logprob)
        if self.spans and self.spans[-1].version == version:
            self.spans[-1].end = at + 1
        else:
            self.spans.append(DrawnSpan(version, at, at + 1))
        if at + 1 >= self.draw.max_new_tokens:
            self.finish = Finish("length")
        elif token in self.draw.stop_ids:
            self.finish = Finish("stop", matched=token)


class SequenceWork(NamedTuple):
    """Compute ids[start:end] of a sequence and return logits for the last `wanted` of them."""

    sequence: Sequence
    start: int
    end: int
    wanted: int


class Scheduler:
    """Continuous batching over `rows` rows."""

    def __init__(self, *, rows: int, max_queued_requests: int, prefill_tokens: int, block: int) -> None:
        self._free = list(range(rows))
        self._max_queued_requests = max_queued_requests
        self._prefill_tokens = prefill_tokens
        self._block = block
        self._turns: dict[int, int] = {}  # lane -> number of the pass it was last served in
        self._pass = 0
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.paused = False

    @property
    def idle(self) -> bool:
        return self.paused or not (self.waiting or self.running)

    def submit(self, sequences: list[Sequence]) -> None:
        """Put sequences at the end of the line, all or none. Raises EngineBusy when it would grow too long."""
        if len(self.waiting) + len(sequences) > self._max_queued_requests:
            raise EngineBusy("The request queue is full.")
        self.waiting.extend(sequences)

    def admit(self) -> list[Sequence]:
        """Give free rows to waiting sequences; the caller fills their rows from the prefix index."""
        admitted: list[Sequence] = []
        aside: list[Sequence] = []
        while self.waiting and self._free and not self.paused:
            sequence = self.waiting.popleft()
            if any(self._overlaps(sequence, other) for other in self.running if other.remaining > 1):
                aside.append(sequence)
                continue
            sequence.row = heapq.heappop(self._free)
            sequence.computed = 0
            self.running.append(sequence)
            admitted.append(sequence)
        self.waiting.extendleft(reversed(aside))
        return admitted

    def plan(self) -> list[SequenceWork]:
        """The next forward pass: one-token work first; empty when there is nothing to do."""
        if self.paused or not self.running:
            return []
        lanes = {sequence.lane for sequence in self.running}
        lane = min(lanes, key=lambda number: (self._turns.get(number, -1), number))
        self._pass += 1
        self._turns = {number: turn for number, turn in self._turns.items() if number in lanes} | {lane: self._pass}
        ones: list[SequenceWork] = []
        longer: list[SequenceWork] = []
        budget = self._prefill_tokens
        for sequence in self.running:
            if sequence.lane != lane:
                continue
            start = sequence.computed
            size = min(sequence.remaining, budget) if sequence.remaining > 1 else 1
            if size == 0:
                continue
            if sequence.remaining > 1:
                budget -= size
            work = SequenceWork(sequence, start, start + size, sequence.wanted(start, start + size))
            (ones if size == 1 else longer).append(work)
        ones.sort(key=lambda work: work.sequence.row or 0)
        return ones + longer

    def release(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._free_row(sequence)

    def abort(self, matches: Callable[[Sequence], bool]) -> list[Sequence]:
        """End waiting and running sequences that match; returns them with `finish` set."""
        queued = [sequence for sequence in self.waiting if matches(sequence)]
        running = [sequence for sequence in self.running if matches(sequence)]
        for sequence in queued:
            sequence.finish = Finish("abort", message="Aborted" if sequence.logprobs else "Abort in waiting queue")
        self.waiting = deque(sequence for sequence in self.waiting if sequence.finish is None)
        for sequence in running:
            sequence.finish = Finish("abort", message="Aborted")
            self.release(sequence)
        return queued + running

    def retract(self) -> list[Sequence]:
        """Send all running sequences back to the head of the line; their rows are computed again."""
        back = list(self.running)
        for sequence in back:
            sequence.retractions += 1
            sequence.computed = 0
            self._free_row(sequence)
        self.running.clear()
        self.waiting.extendleft(reversed(back))
        return back

    def _free_row(self, sequence: Sequence) -> None:
        if sequence.row is not None:
            heapq.heappush(self._free, sequence.row)
            sequence.row = None

    def _overlaps(self, sequence: Sequence, other: Sequence) -> bool:
        """Whether `other`, once prefilled, holds most of what `sequence` needs computed."""
        if sequence.lane != other.lane:
            return False
        limit = min(sequence.reusable, other.prompt_len) // self._block * self._block
        shared = 0
        while shared < limit and (
            sequence.keys[shared : shared + self._block] == other.keys[shared : shared + self._block]
        ):
            shared += self._block
        return 2 * (shared - other.computed) > len(sequence.ids)
