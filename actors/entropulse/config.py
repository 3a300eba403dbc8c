"""Settings of the phases and of the evaluation rounds.

Invariant: every trigger is a number in the deploy file. 0 switches a counted trigger off, and never a bound that
keeps the run finite.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from runtime.errors import ConfigError


class EntropulseConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When the phases change. A step is a batch and the version made of it (in RL by `learner.epochs` passes)."""

    bc_steps: int = 200  # behaviour cloning; 0 skips it
    total_rl_steps: int = 100  # over all stays in RL, after which the run is done; see `rl_steps_in_all`
    rl_steps: int = 0  # a stay in RL with a pulse still to come ends after this many; 0: by its plateau alone
    pulses: int = 1  # how often RL is left for a pulse
    pulse_steps: int = 40  # optimizer steps of one pulse
    # `full` is Entropulse, the others are for comparison, see `rl_steps_in_all`
    pulse: Literal["full", "restart", "reference_reset", "none"] = "full"
    rl_steps_for_pulse: int = 0  # RL steps in place of a pulse, in an arm without; 0: as many as `pulse_steps`
    min_stay: int = 20  # a plateau is not looked for before this many steps of a stay
    window: int = 20  # the fewest steps that the slope of success is fitted over
    plateau_gain: float = 0.05  # success has levelled off when it surely gains less than this per window
    entropy_share: float = 0.5  # entropy has fallen when it is surely below this share of its start
    patience: int = 3  # steps that a plateau must hold
    max_waste: int = 0  # a stay of RL ends when so many groups of equal rewards came without a step between; 0: never

    def __post_init__(self) -> None:
        steps = ("bc_steps", "total_rl_steps", "rl_steps", "pulse_steps", "rl_steps_for_pulse")
        for name in (*steps, "pulses", "max_waste"):
            if getattr(self, name) < 0:
                raise ConfigError(f"entropulse.{name} is {getattr(self, name)}: it counts, from 0")
        for name, least in (("window", 2), ("patience", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"entropulse.{name} is {getattr(self, name)}: it is at least {least} steps")
        if not 0 <= self.plateau_gain < math.inf:
            raise ConfigError(f"entropulse.plateau_gain is {self.plateau_gain}: it is not below 0")
        if not 0 < self.entropy_share <= 1:
            raise ConfigError(f"entropulse.entropy_share is {self.entropy_share}: it is a share, above 0 and up to 1")

    @property
    def rl_steps_in_all(self) -> int:
        """RL steps of the whole run. An arm without pulses gets `rl_steps_for_pulse` more in place of each.

        A pulse's step costs no episodes and so a fraction of an RL step's processor time: at equal compute a pulse
        stands for few RL steps. `restart` and `reference_reset` begin a new stay of RL at the same triggers: the one
        with all that a pulse's end renews (reference, optimizer, warm-up of the rate), the other with a new reference
        alone. `none` has one stay.
        """
        instead = 0 if self.pulse == "full" else self.pulses * (self.rl_steps_for_pulse or self.pulse_steps)
        return self.total_rl_steps and self.total_rl_steps + instead


class EvaluationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rounds on held-out tasks: after behaviour cloning, in between, and on the final weights.

    A round beside training lacks its greedy twin where the supervisor was killed before it could open both.
    """

    every_steps: int = 0  # RL steps between rounds, and a round after each pulse; 0: only the first and the last
    temperature: float = 1.0  # of the answers; 0: greedy
    greedy: bool = False  # every round once more at temperature 0, on the very same weights
    enabled: bool = True  # whether there are rounds at all
    episodes: int = 1  # per instance and round; greedy ones would repeat themselves and are played once
    # Where RL has work for every seat, one episode in so many is an open round's, which ends sooner and delays RL a
    # little; 0: none, a round takes only the seats that RL leaves idle, in a pulse for one. Where RL never leaves any,
    # rounds are then played after it, and of the periodic ones only those that engines have room for are opened.
    # SGLang holds one version: with it rounds are played while RL draws nothing, so this stays 0.
    one_in: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"evaluation.episodes is {self.episodes}: it counts from 1")
        if self.every_steps < 0:
            raise ConfigError(f"evaluation.every_steps is {self.every_steps}: it counts steps, and 0 is none")
        if self.one_in < 0 or self.one_in == 1:
            raise ConfigError(f"evaluation.one_in is {self.one_in}: 0 for none of RL's episodes, or one in 2 or more")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"evaluation.temperature is {self.temperature}: it is not below 0")
        if self.temperature == 0 and self.episodes > 1:
            raise ConfigError(f"evaluation.episodes is {self.episodes}: at temperature 0 they would repeat each other")


class EntropulseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the entropulse actor is started with."""

    phases: EntropulseConfig
    evaluation: EvaluationConfig
    eval_tasks: list[str]
    task_set: str  # `apis.tasks.digest` of them
    demos: int  # successful demonstrations before behaviour cloning begins
    demo_attempts: int  # recording stops after this many
    max_new_tokens: int
    samplers: list[str]
    apart: bool = False  # engines hold one version: the oldest open round's, while RL draws nothing
    resample_rounds: int = 0  # after cloning, the policy tries what was sometimes solved, and is cloned again
    resample_bc_steps: int = 0  # of that cloning; 0: as many as of the first
    replay: str = "replay"
    learner: str = "learner"
