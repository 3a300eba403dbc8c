"""Settings of the phases and of the evaluation rounds.

Invariant: every trigger is a number in the deploy file; 0 switches a counted trigger off, never a bound that keeps
the run finite.
"""

from __future__ import annotations

import msgspec

from runtime.errors import ConfigError


class EntropulseConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When the phases change. Steps are optimizer steps."""

    bc_steps: int = 200  # behaviour cloning; 0 skips it
    total_rl_steps: int = 100  # over all stays in RL, after which the run is done
    rl_steps: int = 0  # a stay in RL with a pulse still to come ends after this many; 0: by its plateau alone
    pulses: int = 1
    pulse_steps: int = 40
    min_stay: int = 20  # a plateau is not looked for before this many steps of a stay
    window: int = 20  # steps over which the slope of success is fitted
    plateau_gain: float = 0.02  # success has levelled off when the fitted rise over the window is below this
    entropy_share: float = 0.5  # entropy has fallen when it is below this share of its start
    patience: int = 3  # steps in a row that must agree
    max_waste: int = 0  # RL ends when so many groups in a row ended without a step; 0: never

    def __post_init__(self) -> None:
        for name in ("bc_steps", "total_rl_steps", "rl_steps", "pulses", "pulse_steps", "max_waste"):
            if getattr(self, name) < 0:
                raise ConfigError(f"entropulse.{name} is {getattr(self, name)}: it counts, from 0")
        if self.window < 2 or self.patience < 1:
            raise ConfigError("entropulse.window is at least 2 steps and entropulse.patience at least 1")


class EvaluationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rounds on held-out tasks: after behaviour cloning, in between, and on the final weights."""

    every_steps: int = 0  # RL steps between rounds, and a round after each pulse; 0: only the first and the last
    temperature: float = 1.0
    greedy: bool = False  # every round once more at temperature 0
    enabled: bool = True
    episodes: int = 1  # per instance and round; greedy ones would repeat themselves and are played once

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"evaluation.episodes is {self.episodes}: it counts from 1")
        if self.every_steps < 0 or self.temperature < 0:
            raise ConfigError("evaluation.every_steps and evaluation.temperature are not below 0")


class EntropulseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the entropulse actor is started with."""

    phases: EntropulseConfig
    evaluation: EvaluationConfig
    eval_tasks: list[str]
    demos: int  # successful demonstrations before behaviour cloning begins
    demo_attempts: int  # recording stops after this many
    max_new_tokens: int
    samplers: list[str]
    replay: str = "replay"
    learner: str = "learner"
