"""An axis of optimizer steps on which steps of cloning and of pulses take less room than those of RL. Pure.

Invariant: the axis is strictly increasing, and equal steps of one segment are equally wide.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.replay.messages import Phase

NARROWED = "step (cloning and pulses narrower)"
SHARE = 0.2  # of RL's width, which a pulse is given at the most
FAR = 1e9  # beyond every step


def knots(segments: Sequence[tuple[str, int, int]]) -> list[tuple[float, float]]:
    """(step, place) where the axis bends; none where RL has as many steps as all pulses, so that nothing is narrower.

    `segments`: phase, first step and step after the last, in order. A step of RL is one place wide.
    """
    rl = sum(end - start for phase, start, end in segments if phase == Phase.RL)
    pulses = sum(end - start for phase, start, end in segments if phase == Phase.PULSE)
    if not rl or pulses <= rl:
        return []
    widest = max(end - start for phase, start, end in segments if phase == Phase.PULSE)
    narrow = min(1.0, SHARE * rl / widest)
    found = [(-FAR, -FAR)]
    place = step = 0.0
    for phase, start, end in segments:
        place += start - step
        found.append((float(start), place))
        place += (end - start) * (1.0 if phase == Phase.RL else narrow)
        step = float(end)
    return [*found, (step, place), (step + FAR, place + FAR)]
