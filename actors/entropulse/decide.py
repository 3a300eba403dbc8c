"""Which phase comes next, and which evaluation rounds open before it: demo, bc, (demo, bc,) rl, pulse, rl, ..., done.

Invariant: a pure function of the ledger's figures. It keeps no state, so the supervisor may be killed at any moment.
It leaves no counted phase before a checkpoint covers it. It never lets training wait for an evaluation round, and
never ends the run while a round is open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from actors.entropulse.config import EntropulseConfig, EntropulseSettings
from actors.errors import LedgerError
from actors.replay.messages import Figures, Phase, PhaseRef, SetPhase
from runtime.messaging.message import Version

CONFIDENCE = 0.9995  # of each one-sided bound, at each step
LEAVE = 1.15
FIT_MOST = 4  # windows
LOWEST = 1e-6  # nats; a lower entropy counts as this
_Z = 3.2905  # standard normal quantile of CONFIDENCE
_MOST_CORRELATED = 0.9


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The curves' statistics at one step. Rises are shares per `plateau_window` steps, `_upper` marks upper bounds."""

    steps: int  # of the phase segment
    fitted: int  # steps that the line was fitted to
    rise: float
    rise_upper: float
    noise: float  # standard deviation of success about the line
    correlation: float  # of neighbouring residuals
    entropy_start: float  # nats per token, geometric mean
    entropy_now: float
    entropy_ratio: float  # now / start
    entropy_ratio_upper: float

    def begins(self, config: EntropulseConfig) -> bool:
        return self.rise_upper < config.plateau_gain and self.entropy_ratio_upper < config.entropy_share

    def ends(self, config: EntropulseConfig) -> bool:
        return self.rise >= config.plateau_gain or self.entropy_ratio >= LEAVE * config.entropy_share

    def evidence(self) -> dict[str, float]:
        fields = {name: float(getattr(self, name)) for name in self.__struct_fields__}
        return {("stay_steps" if name == "steps" else name): value for name, value in fields.items()}


def plateau(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float] | None:
    """The evidence for a plateau now (success has levelled off and entropy has fallen); None when there is none.

    `success` (shares) and `entropy` (nats per token) hold one value per optimizer step of the segment, oldest first.
    Two hypotheses must both be refuted at a step, against the noise estimated from the curves, at `CONFIDENCE`:

    - *still rising*: success gains `plateau_gain` or more per `plateau_window` steps. A line is fitted to the last half
      of the phase segment, of one to `FIT_MOST` windows. The upper confidence bound of its rise has to be below
      `plateau_gain`. The slope's standard error is s / sqrt(sum (x - mean x)^2), with s^2 the residual variance. It is
      widened by (1 + r) / (1 - r) for residuals with lag-1 correlation r.
    - *entropy has not fallen*: its level now is `entropy_share` of the first or more. Levels are means of ln entropy
      over half a window at either end. Their noise is half the variance of successive differences (von Neumann), which
      a slow fall does not inflate.

    Hysteresis: a plateau begins when both are refuted. It ends only when the fitted rise itself reaches `plateau_gain`,
    or entropy returns to `LEAVE` times its threshold. It counts once it has lasted for `plateau_patience` steps.

    A look at every step of a long segment multiplies the chances of an error, hence `CONFIDENCE`. Where success gains
    exactly the margin for 180 steps, about 2 % of segments fire falsely. With noise correlated by 0.3 these are 7 %.
    With 0.6 they are 14 %, because a fit to 20 steps can't tell such noise from a trend.
    """
    steps = min(len(success), len(entropy))
    lasted, last = 0, None
    # A plateau that counts has begun within the last steps, or would have counted before: older looks decide nothing.
    for end in range(max(_first(config), steps - config.plateau_patience - config.plateau_window), steps + 1):
        last = _look(success[:end], entropy[:end], config)
        lasted = lasted + 1 if last.begins(config) or (lasted and not last.ends(config)) else 0
    if last is None or lasted < config.plateau_patience:
        return None
    return last.evidence() | {"held": float(lasted), **_limits(config)}


def measured(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float]:
    """What the last look found, plateau or not; nothing of a segment that is too short for one."""
    steps = min(len(success), len(entropy))
    if steps < config.plateau_window:
        return {}
    return _look(success[:steps], entropy[:steps], config).evidence() | _limits(config)


def _limits(config: EntropulseConfig) -> dict[str, float]:
    return {"plateau_gain": config.plateau_gain, "entropy_share": config.entropy_share}


def _first(config: EntropulseConfig) -> int:
    return max(config.min_phase_steps, config.plateau_window)


def _look(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> Look:
    steps = len(success)
    fitted = min(steps, max(config.plateau_window, min(steps // 2, FIT_MOST * config.plateau_window)))
    slope, error, noise, correlation = fit(success[-fitted:])
    logs = [math.log(max(value, LOWEST)) for value in entropy]
    few = max(1, config.plateau_window // 2)
    start, now = sum(logs[:few]) / few, sum(logs[-few:]) / few
    bound = now - start + quantile(steps - 2) * successive_noise(logs) * math.sqrt(2 / few)
    return Look(
        steps=steps,
        fitted=fitted,
        rise=slope * config.plateau_window,
        rise_upper=(slope + quantile(fitted - 2) * error) * config.plateau_window,
        noise=noise,
        correlation=correlation,
        entropy_start=math.exp(start),
        entropy_now=math.exp(now),
        entropy_ratio=math.exp(now - start),
        entropy_ratio_upper=math.exp(bound),
    )


def fit(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Least-squares line through `values` over 0, 1, 2, ...

    Slope per step, its standard error, the residuals' standard deviation and lag-1 correlation (not below 0). Below
    three values the error is infinite.
    """
    count = len(values)
    if count < 3:
        return 0.0, math.inf, 0.0, 0.0
    mean_x, mean_y = (count - 1) / 2, sum(values) / count
    spread = count * (count**2 - 1) / 12
    slope = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / spread
    rest = [y - mean_y - slope * (x - mean_x) for x, y in enumerate(values)]
    squares = sum(value * value for value in rest)
    noise = math.sqrt(squares / (count - 2))
    following = sum(a * b for a, b in pairwise(rest)) / squares if squares > 1e-18 else 0.0
    # What is left of a fitted line looks less correlated than it is, by (2 + 4 r) / count (Marriott and Pope, 1954).
    correlation = min(_MOST_CORRELATED, max(0.0, following + (2 + 4 * following) / count)) if squares > 1e-18 else 0.0
    inflation = (1 + correlation) / (1 - correlation)
    return slope, noise * math.sqrt(inflation / spread), noise, correlation


def successive_noise(values: Sequence[float]) -> float:
    """Standard deviation of the noise on a slowly moving curve: that of successive differences / sqrt 2.

    von Neumann, "Distribution of the ratio of the mean square successive difference to the variance", 1941.
    """
    steps = [after - before for before, after in pairwise(values)]
    if len(steps) < 2:
        return math.inf
    mean = sum(steps) / len(steps)
    return math.sqrt(sum((step - mean) ** 2 for step in steps) / (len(steps) - 1) / 2)


def quantile(freedom: int) -> float:
    """Student's t quantile of `CONFIDENCE`, by the Cornish-Fisher expansion about the normal one; inf below 1."""
    if freedom < 1:
        return math.inf
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)


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
    if done >= config.rl_steps_in_all or figures.phase_limit == 0:
        return _finish(figures, settings, evidence)
    pulse_can_follow = _pulses_left(figures, config) > 0 and bool(figures.successes_kept or config.pulse != "full")
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
        seen = measured(figures.train_success, figures.entropy, config)
        return _pulse(figures, settings, "counted", evidence | {"limit": float(figures.phase_limit or 0)} | seen)
    if (due := _periodic(figures, settings, done, exact=False)) is not None:
        return due
    if pulse_can_follow:
        levelled = plateau(figures.train_success, figures.entropy, config)
        if levelled is not None:
            return _pulse(figures, settings, "plateau", evidence | levelled)
    return Remain(f"RL steps {done} of {config.rl_steps_in_all}")


def _pulses_left(figures: Figures, config: EntropulseConfig) -> int:
    """How many of the run's pulses (or their replacements) are still to come."""
    if config.pulse == "none" or not config.pulse_steps:
        return 0
    begun = figures.stays.get(Phase.PULSE, 0) if config.pulse == "full" else max(0, figures.stays.get(Phase.RL, 0) - 1)
    return config.pulses - begun


def _pulse(figures: Figures, settings: EntropulseSettings, cause: str, evidence: dict[str, float]) -> SwitchPhase:
    if settings.entropulse.pulse == "full":
        return _switch(figures, Phase.PULSE, cause, evidence, settings.entropulse.pulse_steps)
    # A reset is a new segment of RL and nothing else. The ledger's settings say what its first batch renews.
    return _to_rl(figures, settings, cause, evidence, resets=1)


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
    evaluation, pinned = settings.evaluation, _pinned(figures, settings)
    if not name or not evaluation.enabled or not settings.eval_tasks or any(one.round == name for one in figures.evals):
        return None
    if exact and figures.trained not in pinned and len(pinned) >= MOST_PINNED:
        return Remain("an open evaluation round to close")
    return OpenRound(name, settings.sampling.eval_temperature, exact)


def _to_rl(
    figures: Figures, settings: EntropulseSettings, cause: str, evidence: dict[str, float], *, resets: int = 0
) -> SwitchPhase:
    config = settings.entropulse
    counted = config.rl_steps_per_phase and _pulses_left(figures, config) > resets
    # What the total leaves is the ledger's to say: a step may be under way that these figures do not hold yet.
    steps = config.rl_steps_per_phase if counted else None
    return _switch(figures, Phase.RL, cause, evidence, steps)


def _switch(figures: Figures, phase: Phase, cause: str, evidence: dict[str, float], steps: int | None) -> SwitchPhase:
    now = figures.phase
    after = PhaseRef(phase=phase, index=now.index + 1)
    return SwitchPhase(SetPhase(expected=now, next=after, cause=cause, evidence=evidence, steps=steps))


def _limit_reached(figures: Figures) -> bool:
    return figures.phase_limit is not None and figures.phase_steps >= figures.phase_limit
