"""What the curves of RL say beyond chance: a plateau, collapsed entropy, and what a trial was worth.

Pure functions of success and entropy, one value for each optimizer step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from actors.entropulse.config import EntropulseConfig

CONFIDENCE = 0.9995  # of each one-sided bound, at each step
LEAVE = 1.15
FIT_MOST = 4  # windows
LOWEST = 1e-6  # nats; a lower entropy counts as this
_Z = 3.2905  # standard normal quantile of CONFIDENCE
_FALLEN_Z, _RISING_Z = 2.807, 1.645  # of 0.9975 and 0.95, one-sided
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
    start, now, bound = _entropy_change(entropy, config)
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


def _entropy_change(entropy: Sequence[float], config: EntropulseConfig) -> tuple[float, float, float]:
    """Means of ln entropy over half a window at its start and now, and the upper bound of the second less the first."""
    logs = [math.log(max(value, LOWEST)) for value in entropy]
    few = max(1, config.plateau_window // 2)
    start, now = sum(logs[:few]) / few, sum(logs[-few:]) / few
    return start, now, now - start + quantile(len(logs) - 2) * successive_noise(logs) * math.sqrt(2 / few)


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


def quantile(freedom: int, z: float = _Z) -> float:
    """Student's t quantile for the normal one `z`, by the Cornish-Fisher expansion about it; inf below 1 `freedom`."""
    if freedom < 1:
        return math.inf
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


KEEP_CHANCE = 0.3  # a pulse is kept if two equal policies differ so much in fewer cases than this


def collapsed(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float] | None:
    """The evidence that entropy has collapsed, so that a pulse is tried; None where that is not sure.

    `success` (shares) and `entropy` (nats per token) hold a value for each step of RL since the last pulse that was
    kept. A line is fitted to ln entropy over all steps, and one to the last steps of success, at most `FIT_MOST`
    windows. Entropy has collapsed where the upper bound of its end against its start is below `entropy_share`, unless
    the lower bound of success's rise per window is `plateau_gain` or more.

    A batch's entropy scatters by a factor of two from task to task, hence a line over all steps. A pulse that brings
    nothing is undone, so these bounds are less strict than those of `plateau`.
    """
    steps = min(len(success), len(entropy))
    if steps < _first(config):
        return None
    fitted = min(steps, FIT_MOST * config.plateau_window)
    slope, error, noise, _ = fit(success[steps - fitted : steps])
    lower = (slope - quantile(fitted - 2, _RISING_Z) * error) * config.plateau_window
    fall, doubt, _, _ = fit([math.log(max(value, LOWEST)) for value in entropy[:steps]])
    ratio, upper = (math.exp((fall + z * doubt) * (steps - 1)) for z in (0.0, quantile(steps - 2, _FALLEN_Z)))
    if lower >= config.plateau_gain or upper >= config.entropy_share:
        return None
    seen = {"fitted": float(fitted), "slope": slope, "noise": noise, "rise_lower": lower}
    return seen | {"entropy_ratio": ratio, "entropy_ratio_upper": upper} | _limits(config)


def worth_keeping(gained: int, lost: int) -> tuple[bool, dict[str, float]]:
    """Whether a pulse that was tried is kept: an exact sign test, one-sided, on instances that one round alone solved.

    `gained` were solved after the trial and not before it, `lost` the reverse. Also the evidence. The bound is loose:
    on a hundred instances a strict one would undo most pulses that help by a few points.
    """
    differ = gained + lost
    chance = sum(math.comb(differ, n) for n in range(gained, differ + 1)) / 2**differ
    return chance < KEEP_CHANCE, {"gained": float(gained), "lost": float(lost), "chance": chance}
