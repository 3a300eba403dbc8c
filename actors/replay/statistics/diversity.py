"""How varied a batch's actions are.

Invariant: pure. A refused action is in no entropy, yet it does tell two trajectories apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from actors.replay.messages import StepRef

Group = Sequence[Sequence[StepRef]]  # the steps of each trajectory of one task


class Diversity(msgspec.Struct, frozen=True, kw_only=True):
    """Entropies in nats. An action's *line* is its function with its arguments."""

    parsed: int  # steps whose answer was an action
    refused: int
    functions: float  # entropy over all groups' functions
    lines: float  # entropy over all groups' lines
    lines_in_group: float  # entropy of lines within a group, mean over groups weighted by their parsed steps
    distinct: float  # different trajectories / trajectories of a group, mean over groups


def entropy(items: Iterable[Hashable]) -> float:
    """Shannon entropy H = -sum_k p_k ln p_k in nats, with p_k the share of kind k among `items`; 0 of none.

    The plug-in estimate of few items is too low, by about (kinds - 1) / (2 * items): compare batches of like size.
    """
    counts = Counter(items)
    total = sum(counts.values())
    return sum(count / total * math.log(total / count) for count in counts.values())


def distinct_share(group: Group) -> float:
    """Different sequences of lines over trajectories, from 1/G (all alike) to 1; 0 of an empty group."""
    return len({tuple(step.line for step in steps) for steps in group}) / len(group) if group else 0.0


def diversity(groups: Sequence[Group]) -> Diversity:
    """Of a whole batch."""
    parsed = [[step for steps in group for step in steps if step.function] for group in groups]
    flat = [step for steps in parsed for step in steps]
    total = sum(len(steps) for group in groups for steps in group)
    within = sum(len(steps) * entropy(step.line for step in steps) for steps in parsed)
    return Diversity(
        parsed=len(flat),
        refused=total - len(flat),
        functions=entropy(step.function for step in flat),
        lines=entropy(step.line for step in flat),
        lines_in_group=within / len(flat) if flat else 0.0,
        distinct=sum(map(distinct_share, groups)) / len(groups) if groups else 0.0,
    )
