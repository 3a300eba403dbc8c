"""The bound on staleness: when a group may open, which weights may fill it, and when it is too old for a batch.

Invariant: with bound S (`replay.max_staleness`) a group opens only while open + ready + leased < (S + 1) * groups per
step. So the groups in flight can all be trained while they are fresh enough. With S = 0 desktops idle while the learner
steps. A version never names two different weights: a step past the checkpoint that a lineage started from is abandoned,
and no later lineage descends from it.

The ledger asks `may_open` and `serving_is_fresh` before it hands out a slot (`ledger/episodes.py`), and `Lineages` and
`too_stale` before it gives a group to the learner (`ledger/training.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runtime.messaging.message import Version


class Lineages:
    """The tree of lineages: each but the first names the checkpoint it started from."""

    def __init__(self, parents: Mapping[int, Version | None]) -> None:
        self._parents = dict(parents)

    def staleness(self, trained: Version, version: Version) -> int | None:
        """Optimizer steps from `version` to `trained`; None when `version` is not among its ancestors.

        A version above `trained` in the same lineage is no ancestor either.
        """
        lineage, newest = trained.lineage, trained.step
        while lineage != version.lineage:
            parent = self._parents.get(lineage)
            if parent is None:
                return None
            lineage, newest = parent.lineage, min(newest, parent.step)
        return trained.step - version.step if version.step <= newest else None

    def abandoned(self, trained: Version, version: Version) -> bool:
        """Whether no path leads from `version` to `trained`."""
        return self.staleness(trained, version) is None

    def oldest_staleness(self, trained: Version, versions: Iterable[Version]) -> int | None:
        """The largest staleness over `versions`, 0 of none; None when any is abandoned."""
        worst = 0
        for version in versions:
            behind = self.staleness(trained, version)
            if behind is None:
                return None
            worst = max(worst, behind)
        return worst


def too_stale(staleness: int, max_staleness: int) -> bool:
    """Whether a batch taken now may no longer hold it."""
    return staleness > max_staleness


def may_open(live: int, max_staleness: int, groups_per_step: int, steps_left: int | None = None) -> bool:
    """Whether one more group may open beside `live` open, ready and leased ones.

    `steps_left` are the optimizer steps of this segment that are not trained yet: nothing opens that none is left for.
    """
    steps = max_staleness + 1 if steps_left is None else min(max_staleness + 1, steps_left)
    return live < steps * groups_per_step


def serving_is_fresh(
    served: Version | None, phase_start: Version, trained: Version, max_staleness: int, lineages: Lineages
) -> bool:
    """Whether what samplers serve may fill a group.

    The phase's first weights must be served (after a pulse, the pulse's). The served weights must not be too stale for
    a batch already. With S = 0 a group begun now is then fresh when it is complete, for nothing is trained meanwhile.
    With S > 0 steps made while it is played may still end it as stale, at the next request for a batch. False while no
    sampler has reported what it serves.
    """
    if served is None or served.step < phase_start.step:
        return False
    behind = lineages.staleness(trained, served)
    return behind is not None and behind <= max_staleness


def demos_wanted(target: int, stored: int, outstanding: int, attempts: int, max_attempts: int) -> bool:
    """Whether another demonstration should be tried: never more in flight than are missing."""
    return stored + outstanding < target and attempts < max_attempts
