"""Samples into micro-batches: how a batch becomes packed sequences, in which a prompt that samples share comes once.

Every sample carries its exact share of the whole batch's loss, fixed before anything is split. So any split
into micro-batches or ranks gives the same gradient. No torch here: the learner actor packs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate

from runtime.messaging.message import Value


class Aggregation(StrEnum):
    """What the tokens of a batch are averaged over."""

    STEP_MEAN = "step_mean"  # mean over a step's tokens, then over the group's steps, then over groups (the paper's)
    TOKEN_MEAN = "token_mean"  # noqa: S105  mean over all response tokens of the batch
    TOKEN_SUM = "token_sum"  # noqa: S105  plain sum
    TRAJECTORY_MEAN = "trajectory_mean"  # mean over a trajectory's tokens, then over trajectories, then over groups


class SeenPicture(Value):
    """A picture within a sample's prompt: the very bytes that the engine had."""

    at: int  # index in `ids` of its first pad
    digest: str  # SHA-256 of `png`, hex
    png: bytes


class PackedSample(Value):
    """One prompt-response sample inside a micro-batch.

    `ids` is prompt + response; the last `response_len` tokens are the response. Where only some tokens are trained
    on, `spans` lists their ranges [start, end) in `ids` and `response_len` is their total (cross-entropy only).
    """

    ids: list[int]
    response_len: int
    weight: float  # this sample's share of the whole batch's loss per token: the exact denominator is already in it
    advantage: float = 0.0  # RL only
    behaviour_logprobs: list[float] = []  # RL only, response_len of them, at `temperature`
    temperature: float = 1.0
    fresh: bool = False  # every token was drawn with the weights that the step starts from: figures only
    spans: list[tuple[int, int]] = []
    pictures: tuple[SeenPicture, ...] = ()  # ascending by `at`

    def targets(self) -> Iterable[int]:
        """Positions in `ids` of the tokens that are trained on, ascending; never 0 (it has no context)."""
        if not self.spans:
            return range(len(self.ids) - self.response_len, len(self.ids))
        return (position for start, end in self.spans for position in range(start, end))

    @property
    def prompt(self) -> list[int] | None:
        """What the response follows on; None where spans say what is trained on."""
        return None if self.spans else self.ids[: -self.response_len]


class MicroBatch(Value):
    """Samples packed into one sequence of at most the token budget."""

    samples: list[PackedSample]

    @property
    def tokens(self) -> int:
        """Length of the packed sequence, in which a prompt that samples have in common comes once."""
        return sum(packed_length([self.samples[i] for i in members]) for members in siblings(self.samples))


def siblings(samples: Sequence[PackedSample]) -> list[list[int]]:
    """Indices of samples with the same prompt, together; ascending, by their first. A sample with spans is alone.

    Pads say nothing of what they stand for, so pictures are compared by their digests.

    The episodes of a group begin with the same prompt, and those that act alike go on with the same ones.
    """
    members: dict[object, list[int]] = {}
    for index, sample in enumerate(samples):
        prompt = sample.prompt
        seen = tuple((picture.at, picture.digest) for picture in sample.pictures)
        members.setdefault(index if prompt is None else (tuple(prompt), seen), []).append(index)
    return list(members.values())


def packed_length(members: Sequence[PackedSample]) -> int:
    """Tokens that siblings take: their prompt once, and each one's response."""
    return len(members[0].ids) + sum(sample.response_len for sample in members[1:])


def group_weights(
    groups: Sequence[Sequence[int]], aggregation: Aggregation, turns: Sequence[Sequence[int]] | None = None
) -> list[list[float]]:
    """Per-token weights of a batch.

    `groups[g]` holds the response length |o_ij| of every step of every trajectory of group g; the result has the
    same shape. With `step_mean` the weights are 1 / (groups * sum_i L_i * |o_ij|), the paper's objective. With
    `trajectory_mean` they are 1 / (groups * trajectories * sum_j |o_ij|), where `turns[g]` holds the L_i in order;
    without it every step is a trajectory. Raises ValueError when a group or a response is empty.
    """
    if any(not group or min(group) < 1 for group in groups):
        raise ValueError("every group has steps and every step has response tokens")
    if aggregation is Aggregation.TOKEN_SUM:
        return [[1.0] * len(group) for group in groups]
    if aggregation is Aggregation.TOKEN_MEAN:
        tokens = sum(sum(group) for group in groups)
        return [[1.0 / tokens] * len(group) for group in groups]
    if aggregation is Aggregation.TRAJECTORY_MEAN and turns is not None:
        return [_by_trajectory(group, of, len(groups)) for group, of in zip(groups, turns, strict=True)]
    return [[1.0 / (len(groups) * len(group) * length) for length in group] for group in groups]


def _by_trajectory(lengths: Sequence[int], turns: Sequence[int], groups: int) -> list[float]:
    ends = list(accumulate(turns))
    tokens = [sum(lengths[end - count : end]) for end, count in zip(ends, turns, strict=True)]
    return [
        1.0 / (groups * len(turns) * of_own) for of_own, count in zip(tokens, turns, strict=True) for _ in range(count)
    ]


def sample_weights(lengths: Sequence[int], aggregation: Aggregation) -> list[float]:
    """Per-token weights of a cross-entropy batch: its samples are the steps of one group."""
    return group_weights([lengths], aggregation)[0] if lengths else []


def pack(samples: Sequence[PackedSample], token_budget: int, ranks: int = 1) -> list[MicroBatch]:
    """First-fit decreasing: the longest siblings first, each lot into the first micro-batch with room.

    Deterministic (ties keep their order). Siblings are parted only where all of them are longer than `token_budget`. A
    sample that is longer by itself gets a micro-batch of its own. For several data ranks the budget is lowered so far
    that each rank has about as many tokens in as many micro-batches.
    """
    if ranks > 1 and samples:
        tokens = sum(packed_length([samples[i] for i in members]) for members in siblings(samples))
        of_each = -(-tokens // (token_budget * ranks))  # micro-batches
        token_budget = min(token_budget, -(-tokens // (of_each * ranks)))
    lots = [lot for members in siblings(samples) for lot in _lots(members, samples, token_budget)]
    lengths = [packed_length([samples[i] for i in lot]) for lot in lots]
    bins: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lots)), key=lambda n: (-lengths[n], lots[n][0])):
        place = next((k for k, free in enumerate(room) if lengths[number] <= free), None)
        if place is None:
            bins.append(list(lots[number]))
            room.append(token_budget - lengths[number])
        else:
            bins[place].extend(lots[number])
            room[place] -= lengths[number]
    return [MicroBatch(samples=[samples[i] for i in members]) for members in bins]


def deal(batches: Sequence[MicroBatch], ranks: int) -> list[list[MicroBatch]]:
    """The micro-batches of each data rank: the longest first, each to the rank with the fewest tokens so far.

    Each goes to exactly one rank, and keeps its place among those of it. A rank may get none. Deterministic.
    """
    taken: list[list[int]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    lengths = [batch.tokens for batch in batches]
    for index in sorted(range(len(batches)), key=lambda i: -lengths[i]):
        rank = load.index(min(load))
        taken[rank].append(index)
        load[rank] += lengths[index]
    return [[batches[i] for i in sorted(indices)] for indices in taken]


def _lots(members: list[int], samples: Sequence[PackedSample], token_budget: int) -> list[list[int]]:
    """Siblings in as few lots as fit the budget one by one, in order."""
    lots = [[members[0]]]
    for index in members[1:]:
        if packed_length([samples[i] for i in (*lots[-1], index)]) <= token_budget:
            lots[-1].append(index)
        else:
            lots.append([index])
    return lots


def pack_cross_entropy(
    sequences: Sequence[tuple[list[int], list[tuple[int, int]]]],
    token_budget: int,
    aggregation: Aggregation,
    coef: float = 1.0,
    ranks: int = 1,
) -> list[MicroBatch]:
    """Micro-batches of plain training sequences: ids, and the ranges [start, end) of `ids` that are trained on.

    `coef` multiplies the loss; `ranks` are data ranks, as for `pack`. Raises ValueError for a sequence without a
    trained token or with one at position 0.
    """
    lengths = [sum(end - start for start, end in spans) for _, spans in sequences]
    if any(start < 1 for _, spans in sequences for start, _ in spans):
        raise ValueError("the first token has no context to be predicted from")
    weights = sample_weights(lengths, aggregation)
    samples = [
        PackedSample(ids=ids, response_len=length, weight=coef * weight, spans=spans)
        for (ids, spans), length, weight in zip(sequences, lengths, weights, strict=True)
    ]
    return pack(samples, token_budget, ranks)
