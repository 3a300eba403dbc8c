"""How reports write rounds: their weights, their headings, their shares. Pure.

Invariant: the same in print and on the page; of one run no two rounds look alike that are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.statistics.intervals import Rate
from runtime.messaging.message import Version


def weights(found: Sequence[EvaluationRound]) -> tuple[str, list[str]]:
    """A heading and each round's weights: steps alone where all are of one lineage, as `0.1118` looks like less than
    `0.900`.
    """
    versions = [Version.parse(one.version) for one in found]
    if len({version.lineage for version in versions}) > 1:
        return "Lineage.step", [one.version for one in found]
    return "Step", [str(version.step) for version in versions]


def names(found: Sequence[EvaluationRound]) -> list[str]:
    """Each round's name, with its decoding where that is not all rounds' own."""
    if len({one.decoding for one in found}) == 1:
        return [one.name for one in found]
    return [f"{one.name} ({one.decoding})" for one in found]


def share(rate: Rate) -> str:
    """`0.750 (90/120)`."""
    return f"{rate.value:.3f} ({rate.successes}/{rate.n})" if rate.n else "-"
