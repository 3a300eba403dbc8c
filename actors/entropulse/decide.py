"""Which phase comes next, and which evaluation rounds open before it: demo, bc, (demo, bc,) rl, pulse, rl, ..., done.

Invariant: a pure function of the ledger's figures. It keeps no state, so the supervisor may be killed at any moment.
It leaves no counted phase before a checkpoint covers it. It never lets training wait for a round of held-out tasks, but
for those of a trial, and never ends the run while a round is open.
"""

from __future__ import annotations

import msgspec

from actors.entropulse import curves
from actors.entropulse.config import EntropulseConfig, EntropulseSettings
from actors.errors import LedgerError
from actors.replay.messages import (
    KEPT,
    ROLLED_BACK,
    TRIAL,
    Figures,
    Phase,
    PhaseRef,
    SetPhase,
    TrialFigures,
    trial_round,
)
from runtime.messaging.message import Version

AFTER_BC = "after_bc"
FINAL = "final"
MOST_PINNED = 4  # weight versions that an engine keeps next to the newest; the last is left to rounds that must be


class SwitchPhase(msgspec.Struct, frozen=True):
    """Commit this phase change."""

    change: SetPhase


class OpenRound(msgspec.Struct, frozen=True):
    """Open an evaluation round on the learner's weights; `exact` says they must be those of the figures.

    Weights of fewer than `least` optimizer steps are older than what the round is named after.
    """

    name: str
    temperature: float
    exact: bool
    least: int = 0
    trial: bool = False  # on the tasks that trials are judged by


class Remain(msgspec.Struct, frozen=True):
    """Nothing to do until the figures change; `waits_for` is for people."""

    waits_for: str


class Finished(msgspec.Struct, frozen=True):
    """The run is done."""


Decision = SwitchPhase | OpenRound | Remain | Finished


def decide(figures: Figures, settings: EntropulseSettings) -> Decision:
    """What to do now. Raises LedgerError when the run cannot go on (no demonstration succeeds)."""
    match figures.phase.phase:
        case Phase.DEMO:
            return _demo(figures, settings)
        case Phase.BC:
            return _cross_entropy(figures, settings, "bc_complete", AFTER_BC)
        case Phase.PULSE if figures.trials is not None:
            return _trial(figures, settings, figures.trials, {}) or Remain("the pulse that is tried")
        case Phase.PULSE:
            name = f"after_pulse{figures.stays.get(Phase.PULSE, 0)}" if settings.evaluation.interval else ""
            return _cross_entropy(figures, settings, "pulse_complete", name)
        case Phase.RL:
            return _rl(figures, settings)
        case _:
            return Finished()


def _demo(figures: Figures, settings: EntropulseSettings) -> Decision:
    evidence = {"demos": float(figures.demos), "attempts": float(figures.demo_attempts)}
    exhausted = figures.demo_attempts >= settings.demos.attempts
    if figures.demo_left:
        return Remain(f"{figures.demo_left} attempts at demonstrations")
    # With strata a task that was begun gets all its attempts, so the ledger says when the last one is over.
    if figures.demo_left is None and figures.demos < settings.demos.count and not exhausted:
        return Remain(f"{settings.demos.count - figures.demos} demonstrations")
    if settings.demos.count and not figures.demos:
        raise LedgerError(f"none of {figures.demo_attempts} demonstrations succeeded: there is nothing to learn from")
    cause = "demos_complete" if figures.demos >= settings.demos.count else "demos_exhausted"
    steps = settings.entropulse.bc_steps
    if _resamplings(figures):
        cause, steps = "resampled", settings.demos.resample_bc_steps or steps
    if settings.entropulse.bc_steps and figures.demos:
        return _switch(figures, Phase.BC, cause, evidence, steps)
    return _next_round(figures, settings, AFTER_BC, exact=True) or _to_rl(figures, settings, cause, evidence)


def _cross_entropy(figures: Figures, settings: EntropulseSettings, cause: str, name: str) -> Decision:
    if not _limit_reached(figures):
        return Remain(f"steps {figures.phase_steps} of {figures.phase_limit}")
    if figures.checkpointed != figures.trained:
        return Remain("a checkpoint of the last step")
    evidence = {"steps": float(figures.phase_steps)}
    again = figures.phase.phase is Phase.BC and _resamplings(figures) < settings.demos.resample_rounds
    sometimes = sum(count for name, count in figures.demo_tasks.items() if name.endswith("/sometimes"))
    if again and sometimes:  # tasks that the pool solved sometimes
        return _switch(figures, Phase.DEMO, "resample", evidence | {"sometimes": float(sometimes)}, None)
    due = _next_round(figures, settings, name, exact=True)
    if isinstance(due, Remain):  # training waits for no round: one without room is left out, and the switch says so
        evidence["rounds_left_out"] = 1.0
    return due if isinstance(due, OpenRound) else _to_rl(figures, settings, cause, evidence)


def _resamplings(figures: Figures) -> int:
    """Rounds of resampling begun: segments of demonstrations but the first."""
    return max(0, figures.stays.get(Phase.DEMO, 0) - 1)


def _rl(figures: Figures, settings: EntropulseSettings) -> Decision:
    config = settings.entropulse
    done = figures.steps.get(Phase.RL, 0)
    evidence = {"steps": float(figures.phase_steps), "rl_steps": float(done), "wasted": float(figures.groups_wasted)}
    if figures.trials is not None and (due := _trial(figures, settings, figures.trials, evidence)) is not None:
        return due
    if done >= config.total_rl_steps or figures.phase_limit == 0:
        return _finish(figures, settings, evidence)
    pulse_can_follow = figures.trials is None and _pulses_left(figures, config) > 0 and bool(figures.successes_kept)
    if config.max_unused_groups and figures.groups_wasted >= config.max_unused_groups:
        if pulse_can_follow:
            return _pulse(figures, settings, "no_signal", evidence)
        # A segment without steps: the learner rests while its final weights are evaluated.
        return _switch(figures, Phase.RL, "no_signal", evidence, 0)
    if _limit_reached(figures):
        if figures.checkpointed != figures.trained:
            return Remain("a checkpoint of the last step")
        if _pulses_left(figures, config) <= 0:  # a resume took them away
            return _to_rl(figures, settings, "counted", evidence)
        if not pulse_can_follow:
            return _switch(figures, Phase.RL, "no_success", evidence, 0)
        if (due := _periodic(figures, settings, done, exact=True)) is not None:
            return due
        # What decided is the count; the evidence of the plateau test is added.
        seen = curves.measured(figures.train_success, figures.entropy, config)
        return _pulse(figures, settings, "counted", evidence | {"limit": float(figures.phase_limit or 0)} | seen)
    if (due := _periodic(figures, settings, done, exact=False)) is not None:
        return due
    if pulse_can_follow:
        levelled = curves.plateau(figures.train_success, figures.entropy, config)
        if levelled is not None:
            return _pulse(figures, settings, "plateau", evidence | levelled)
    return Remain(f"RL steps {done} of {config.total_rl_steps}")


def _trial(
    figures: Figures, settings: EntropulseSettings, trials: TrialFigures, evidence: dict[str, float]
) -> Decision | None:
    """What is due at a segment's end in a run with trials: a verdict, another trial, or RL as before.

    None while the segment makes its steps, and at the end of RL.
    """
    config = settings.entropulse
    if trials.state == "going_back":
        return Remain(f"the learner to go back to the weights before trial {trials.begun}")
    if trials.state == "left":
        return _to_rl(figures, settings, "after_trial", evidence)
    if not figures.phase_limit or not _limit_reached(figures):
        return None
    if figures.checkpointed != figures.trained:
        return Remain("a checkpoint of the last step")
    if trials.under_way:
        return _verdict(figures, settings, trials, evidence)
    done = figures.steps.get(Phase.RL, 0)
    if (due := _periodic(figures, settings, done, exact=True)) is not None:
        return due
    if done >= config.total_rl_steps:
        return None
    seen = None
    if _pulses_left(figures, config) > 0 and figures.successes_kept:
        seen = curves.collapsed(trials.success, trials.entropy, config)
    if seen is None:
        return _to_rl(figures, settings, "counted", evidence)
    if (due := _round(figures, settings, trial_round(trials.begun + 1, after=False), exact=True, trial=True)) is None:
        return _switch(figures, Phase.PULSE, TRIAL, evidence | seen, config.pulse_steps)
    return due


def _verdict(
    figures: Figures, settings: EntropulseSettings, trials: TrialFigures, evidence: dict[str, float]
) -> Decision:
    """Whether the pulse that was tried is kept, once both of its rounds are over."""
    after = _round(figures, settings, trial_round(trials.begun, after=True), exact=True, trial=True)
    if after is not None or not trials.judged:
        return after or Remain(f"the verdict of trial {trials.begun}")
    keep, seen = curves.worth_keeping(trials.gained, trials.lost)
    if keep:
        return _to_rl(figures, settings, KEPT, evidence | seen)
    return _switch(figures, Phase.RL, ROLLED_BACK, evidence | seen, 0)


def _pulses_left(figures: Figures, config: EntropulseConfig) -> int:
    """How many of the run's pulses, or trials of one, are still to come."""
    if figures.trials is not None:
        return config.pulses - figures.trials.begun
    return config.pulses - figures.stays.get(Phase.PULSE, 0) if config.pulse_steps else 0


def _pulse(figures: Figures, settings: EntropulseSettings, cause: str, evidence: dict[str, float]) -> SwitchPhase:
    return _switch(figures, Phase.PULSE, cause, evidence, settings.entropulse.pulse_steps)


def _finish(figures: Figures, settings: EntropulseSettings, evidence: dict[str, float]) -> Decision:
    if _limit_reached(figures) and figures.phase_limit and figures.checkpointed != figures.trained:
        return Remain("a checkpoint of the last step")
    if figures.groups_leased:
        return Remain("the step under way")
    if (opening := _next_round(figures, settings, FINAL, exact=True)) is not None:
        return opening
    left = [round_.round for round_ in figures.evals if not round_.closed]
    if left:
        return Remain(f"evaluation {left[0]}")
    cause = "counted" if figures.phase_limit else "finished"
    return _switch(figures, Phase.DONE, cause, evidence, None)


def _periodic(figures: Figures, settings: EntropulseSettings, done: int, *, exact: bool) -> OpenRound | Remain | None:
    """The round that is due after `done` RL steps, from within the segment that made the last of them.

    A round that found no room until its segment was over is left out, because a later segment begins with a pulse's
    weights.
    """
    every = settings.evaluation.interval
    due = done // every * every if every else 0
    if due <= done - figures.phase_steps or len(_pinned(figures, settings)) >= MOST_PINNED - 1:
        return None
    opening = _next_round(figures, settings, f"rl{due}", exact=exact)
    if not isinstance(opening, OpenRound) or exact:
        return opening
    return msgspec.structs.replace(opening, least=figures.trained.step - (done - due))


def _pinned(figures: Figures, settings: EntropulseSettings) -> set[Version]:
    """The weights of open rounds that engines keep next to the newest; those that hold one version keep none."""
    return set() if settings.single_version else {round_.version for round_ in figures.evals if not round_.closed}


def _next_round(figures: Figures, settings: EntropulseSettings, name: str, *, exact: bool) -> OpenRound | Remain | None:
    """Round `name`, where it was not opened yet, once engines have room for it; "" is none."""
    if not name or not settings.evaluation.enabled or not settings.eval_tasks:
        return None
    return _round(figures, settings, name, exact=exact, trial=False)


def _round(
    figures: Figures, settings: EntropulseSettings, name: str, *, exact: bool, trial: bool
) -> OpenRound | Remain | None:
    pinned = _pinned(figures, settings)
    if any(one.round == name for one in figures.evals):
        return None
    if exact and figures.trained not in pinned and len(pinned) >= MOST_PINNED:
        return Remain("an open evaluation round to close")
    return OpenRound(name, settings.sampling.eval_temperature, exact, trial=trial)


def _to_rl(figures: Figures, settings: EntropulseSettings, cause: str, evidence: dict[str, float]) -> SwitchPhase:
    config = settings.entropulse
    counted = config.rl_steps_per_phase and _pulses_left(figures, config) > 0
    # What the total leaves is the ledger's to say: a step may be under way that these figures do not hold yet.
    steps = config.rl_steps_per_phase if counted else None
    return _switch(figures, Phase.RL, cause, evidence, steps)


def _switch(figures: Figures, phase: Phase, cause: str, evidence: dict[str, float], steps: int | None) -> SwitchPhase:
    now = figures.phase
    after = PhaseRef(phase=phase, index=now.index + 1)
    return SwitchPhase(SetPhase(expected=now, next=after, cause=cause, evidence=evidence, steps=steps))


def _limit_reached(figures: Figures) -> bool:
    return figures.phase_limit is not None and figures.phase_steps >= figures.phase_limit
