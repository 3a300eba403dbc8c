"""Settings of the phases and of the evaluation rounds.

Invariant: every trigger is a number in the deploy file. 0 switches a counted trigger off, and never a bound that
keeps the run finite.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from actors.settings import DemosConfig, SamplingConfig
from runtime.settings import Section, key, tuning

FEWEST_TRIAL_TASKS = 20


class EntropulseConfig(Section, frozen=True, kw_only=True):
    """When the phases change. A step is a batch and the version made of it (in RL by `learner.rl.epochs` passes)."""

    AT: ClassVar[str] = "entropulse"

    bc_steps: Annotated[int, key("Sets the optimizer steps of behaviour cloning. 0 skips it.", ge=0)] = 200
    total_rl_steps: Annotated[int, key("Sets the RL steps of the whole run.", ge=0)] = 100
    rl_steps_per_phase: Annotated[
        int, key("Ends an RL phase before a pulse after this many steps. 0 waits for its plateau.", ge=0)
    ] = 0
    pulses: Annotated[int, key("Sets how often RL is left for a pulse, or one is tried.", ge=0)] = 1
    pulse_steps: Annotated[int, key("Sets the optimizer steps of one pulse.", ge=0)] = 40
    pulse: Annotated[
        Literal["full", "trials"],
        tuning("Chooses what happens at a pulse. full is Entropulse; trials tries one and may undo it."),
    ] = "full"
    trial_tasks: Annotated[
        int, tuning("Judges a trial on up to so many training tasks, before it and after it.", ge=FEWEST_TRIAL_TASKS)
    ] = 100
    min_phase_steps: Annotated[int, tuning("Looks for a plateau only after this many RL steps of a phase.", ge=0)] = 20
    plateau_window: Annotated[int, tuning("Fits the slope of success over at least this many steps.", ge=2)] = 20
    plateau_gain: Annotated[
        float, tuning("Calls success flat when its gain per window is surely below this share.", ge=0)
    ] = 0.05
    entropy_share: Annotated[
        float, tuning("Calls entropy fallen when it is surely below this share of its start.", gt=0, le=1)
    ] = 0.5
    plateau_patience: Annotated[int, tuning("Waits until a plateau has held for this many steps.", ge=1)] = 3
    max_unused_groups: Annotated[
        int, tuning("Ends an RL phase after this many groups of equal rewards without a step. 0 never does.", ge=0)
    ] = 0


class EvaluationConfig(Section, frozen=True, kw_only=True):
    """Rounds on held-out tasks: after behaviour cloning, in between, and on the final weights.

    `rollout_share` is for users who want figures of a round soon: RL is delayed a little. With 0 a round takes only the
    seats that RL leaves idle, as in a pulse. Where RL leaves none, rounds are played after it. Of the periodic rounds
    only as many are opened as engines have room for. SGLang holds one version, so it plays rounds while RL draws
    nothing, and the share stays 0.
    """

    AT: ClassVar[str] = "evaluation"

    enabled: Annotated[bool, key("Plays evaluation rounds at all.")] = True
    interval: Annotated[
        int, key("Plays a round after this many RL steps, and after each pulse. 0 plays the first and the last.", ge=0)
    ] = 0
    episodes: Annotated[int, tuning("Sets the episodes per instance and round.", ge=1)] = 1
    published_metrics: Annotated[
        bool,
        tuning("Judges a task file by the published package where no metric here does. `eval` sets it where that is."),
    ] = False
    rollout_share: Annotated[
        float, tuning("Gives an open round this share of RL's episodes. 0 gives it what RL leaves idle.", ge=0, le=0.5)
    ] = 0.0


class EntropulseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the entropulse actor is started with."""

    entropulse: EntropulseConfig
    evaluation: EvaluationConfig
    sampling: SamplingConfig
    demos: DemosConfig
    eval_tasks: list[str]
    task_set: str  # `apis.tasks.registry.digest` of them
    samplers: list[str]
    trial_tasks: list[str] = []  # that trials are judged on, and their digest likewise
    trial_set: str = ""
    single_version: bool = False  # engines hold one version: the oldest open round's, while RL draws nothing
    replay: str = "replay"
    learner: str = "learner"
