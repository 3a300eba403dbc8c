"""When a group may open, and how many demonstrations are still wanted.

Invariant: a group opens only while open + ready + leased < (S + 1) * groups per step. So the groups in flight can all
be trained while they are fresh enough. With S = 0 desktops idle while the learner steps.
"""

from __future__ import annotations

from actors.replay.rules.staleness import Lineages
from runtime.messaging.message import Version


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
