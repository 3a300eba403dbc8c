"""Whether RL has nothing more to gain before a pulse: success has levelled off and entropy has fallen.

Invariant: a function of the two curves alone. Both must hold at each of the last `patience` steps, so one noisy
step neither makes nor undoes a plateau, and a killed supervisor sees the same one again.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.entropulse.config import EntropulseConfig


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of `values` over 0, 1, 2, ... (per step); 0 for fewer than two values."""
    count = len(values)
    if count < 2:
        return 0.0
    mean_x, mean_y = (count - 1) / 2, sum(values) / count
    spread = sum((x - mean_x) ** 2 for x in range(count))
    return sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / spread


def plateau(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float] | None:
    """The evidence for a plateau now; None when there is none.

    `success` (shares) and `entropy` (nats per token) hold one value per optimizer step of the stay, oldest first.
    """
    steps = min(len(success), len(entropy))
    if steps < max(config.min_stay, config.window) + config.patience - 1:
        return None
    evidence: dict[str, float] = {}
    for end in range(steps - config.patience + 1, steps + 1):
        found = _at(success[:end], entropy[:end], config)
        if found is None:
            return None
        evidence = found
    return evidence


def _at(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float] | None:
    # A few steps at either end: one step's entropy depends on which tasks it held.
    few = max(1, config.window // 4)
    start, now = sum(entropy[:few]) / few, sum(entropy[-few:]) / few
    rise = slope(success[-config.window :]) * (config.window - 1)
    if rise >= config.plateau_gain or now >= config.entropy_share * start:
        return None
    return {"rise": rise, "entropy_start": start, "entropy_now": now, "steps": float(len(success))}
