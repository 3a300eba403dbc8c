"""The learning rate of a step.

Invariant: a pure function of the settings and of the step's place in its stay, which the ledger counts, so a resume
goes on with the very rates that the run would have had.
"""

from __future__ import annotations

import math

from actors.learner.config import LearnerConfig, Schedule
from actors.replay.messages import Phase


def learning_rate(config: LearnerConfig, phase: Phase, stay_step: int, stay_limit: int | None) -> float:
    """Rate of 0-based step `stay_step` of a stay of at most `stay_limit` steps.

    It rises linearly over the first `warmup_steps` (`rl_warmup_steps` in RL, where set) to the phase's rate, and then
    stays there (`constant`) or falls to `lr_floor` of it at the stay's last step, along a line or half a cosine. A stay
    without a limit does not fall. One that a trigger ends early has not fallen all the way. Cloning and pulses follow
    `sft_lr_schedule` where it is set, RL always `lr_schedule`. With `rl_cycle` RL's rises and falls over each so many
    steps of a stay, so that arms of other stays have annealed alike before rounds at its multiples.
    """
    if phase is Phase.RL and config.rl_cycle:
        stay_step, stay_limit = stay_step % config.rl_cycle, config.rl_cycle
    full = {Phase.BC: config.bc_lr, Phase.PULSE: config.pulse_lr}.get(phase, config.rl_lr)
    warmup = config.warmup_steps
    if phase is Phase.RL and config.rl_warmup_steps is not None:
        warmup = config.rl_warmup_steps
    if stay_step < warmup:
        return full * (stay_step + 1) / (warmup + 1)
    schedule = config.lr_schedule if phase is Phase.RL else config.sft_lr_schedule or config.lr_schedule
    if schedule is Schedule.CONSTANT or stay_limit is None:
        return full
    last = stay_limit - 1 - warmup  # steps from the top to the end
    done = min(1.0, (stay_step - warmup) / last) if last > 0 else 0.0
    left = 1.0 - done if schedule is Schedule.LINEAR else 0.5 * (1.0 + math.cos(math.pi * done))
    return full * (config.lr_floor + (1.0 - config.lr_floor) * left)
