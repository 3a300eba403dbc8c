"""The learning rate of a step.

Invariant: a pure function of the settings and of the step's place in its phase segment. The ledger counts that place,
so a resume goes on with the rates that the run would have had.
"""

from __future__ import annotations

import math

from actors.learner.config import LearnerConfig, Schedule
from actors.replay.messages import Phase


def learning_rate(config: LearnerConfig, phase: Phase, segment_step: int, segment_limit: int | None) -> float:
    """Rate of 0-based step `segment_step` of a phase segment of at most `segment_limit` steps.

    It rises linearly over the first `warmup_steps` to the phase's rate. Then it stays there (`constant`), or falls
    along a line or half a cosine to `lr_floor` of it at the segment's last step. A segment without a limit keeps its
    rate. A segment that a trigger ends early has not fallen all the way. RL follows `learner.rl`, cloning and pulses
    `learner.sft`. With `lr_cycle_steps` RL's rate rises and falls again in every cycle of so many steps. Arms with
    segments of other lengths have then annealed alike before rounds at its multiples.
    """
    rl, sft = config.rl, config.sft
    if phase is Phase.RL and rl.lr_cycle_steps:
        segment_step, segment_limit = segment_step % rl.lr_cycle_steps, rl.lr_cycle_steps
    full = {Phase.BC: sft.lr, Phase.PULSE: sft.pulse_lr}.get(phase, rl.lr)
    warmup = rl.warmup_steps if phase is Phase.RL else sft.warmup_steps
    if segment_step < warmup:
        return full * (segment_step + 1) / (warmup + 1)
    schedule = rl.lr_schedule if phase is Phase.RL else sft.lr_schedule
    if schedule is Schedule.CONSTANT or segment_limit is None:
        return full
    last = segment_limit - 1 - warmup  # steps from the top to the end
    done = min(1.0, (segment_step - warmup) / last) if last > 0 else 0.0
    left = 1.0 - done if schedule is Schedule.LINEAR else 0.5 * (1.0 + math.cos(math.pi * done))
    return full * (config.lr_floor + (1.0 - config.lr_floor) * left)
