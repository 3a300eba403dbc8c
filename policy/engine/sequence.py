"""One running or waiting response.

Invariant: `ids` is the prompt followed by the response; `computed` of them have keys and values in `row`. Each
response token has one log-probability and is covered by one version span.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

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
    top_k: int = 0  # number of the likeliest tokens that are drawn from; 0 is all
    min_p: float = 0.0  # least probability of a token that is drawn, in that of the likeliest


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
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_len = len(self.ids)
        self.random = random.Random(self.draw.seed)  # noqa: S311 - draws tokens, keeps no secret

    @property
    def remaining(self) -> int:
        """Tokens without keys and values; 1 while it is being decoded."""
        return len(self.ids) - self.computed

    @property
    def output(self) -> list[int]:
        """A copy of the response so far."""
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

    def append(self, token: int, logprob: float, version: str) -> None:
        """Take a drawn token on and decide whether it ends the response: length first, as SGLang does."""
        at = len(self.ids) - self.prompt_len
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.spans and self.spans[-1].version == version:
            self.spans[-1].end = at + 1
        else:
            self.spans.append(DrawnSpan(version, at, at + 1))
        if at + 1 >= self.draw.max_new_tokens:
            self.finish = Finish("length")
        elif token in self.draw.stop_ids:
            self.finish = Finish("stop", matched=token)
