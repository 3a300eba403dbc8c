"""What happened at the same time: learner steps beside episodes. Pure.

Invariant: spans are taken from one clock (the run's); nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Span = tuple[float, float]


class Overlap(msgspec.Struct, frozen=True):
    """Seconds of RL, of optimizer steps in it, and of those during which at least one training episode was played."""

    rl_s: float
    learner_s: float
    both_s: float
    episodes_at_once: float  # episodes being played during an optimizer step, on average

    @property
    def share(self) -> float:
        """Share of the optimizer steps' time in which desktops acted."""
        return self.both_s / self.learner_s if self.learner_s else 0.0


def union(spans: Sequence[Span]) -> list[Span]:
    """The same seconds as disjoint spans in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def common_s(a: Sequence[Span], b: Sequence[Span]) -> float:
    """Seconds that lie in a span of `a` and in a span of `b`; each list is disjoint."""
    return sum((max(0.0, min(a1, b1) - max(a0, b0)) for a0, a1 in a for b0, b1 in b), start=0.0)


def overlap(steps: Sequence[Span], episodes: Sequence[Span]) -> Overlap:
    """How optimizer steps of RL and training episodes lie beside each other."""
    learner, acting = union(steps), union(episodes)
    learner_s = sum((end - start for start, end in learner), start=0.0)
    crowd_s = sum((common_s(learner, [span]) for span in episodes), start=0.0)
    times = [moment for span in (*learner, *acting) for moment in span]
    return Overlap(
        rl_s=max(times) - min(times) if times else 0.0,
        learner_s=learner_s,
        both_s=common_s(learner, acting),
        episodes_at_once=crowd_s / learner_s if learner_s else 0.0,
    )
