"""Whether RL has nothing more to gain before a pulse: success has levelled off and entropy has fallen.

Invariant: a function of the two curves alone, with the noise estimated from them. Both facts must be shown against
chance, at `CONFIDENCE` in every step. Noise that goes on as it was shows neither, and nor does success that still
rises.

The two hypotheses that must both be refuted at a step:

- *still rising*: success gains `plateau_gain` or more per `window` steps. A line is fitted to the last half of the
  phase segment, which counts from `window` to `FIT_MOST` windows. The upper confidence bound of its rise has to be
  below `plateau_gain`. The slope's standard error is s / sqrt(sum (x - mean x)^2), with s^2 the residual variance. It
  is widened by (1 + r) / (1 - r) for residuals with lag-1 correlation r.
- *entropy has not fallen*: its level now is `entropy_share` of the first or more. Levels are means of ln entropy over
  half a window at either end. Their noise is half the variance of successive differences (von Neumann), which a slow
  fall does not inflate.

Hysteresis: a plateau begins when both are refuted. It ends only when the fitted rise itself reaches `plateau_gain`, or
entropy returns to `LEAVE` times its threshold. It counts once it has held for `patience` steps.

A look at every step of a long segment multiplies the chances of an error, hence `CONFIDENCE`. Where success gains
exactly the margin for 180 steps, about 2 % of segments fire falsely. With noise correlated by 0.3 these are 7 %. With
0.6 they are 14 %, because a fit to 20 steps can't tell such noise from a trend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import msgspec

from actors.entropulse.config import EntropulseConfig

CONFIDENCE = 0.9995  # of each one-sided bound, at each step
LEAVE = 1.15
FIT_MOST = 4  # windows
LOWEST = 1e-6  # nats; a lower entropy counts as this
_Z = 3.2905  # standard normal quantile of CONFIDENCE
_MOST_CORRELATED = 0.9


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one step's look at the curves found. Rises are shares per `window` steps, upper ones their bounds."""

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
        """Whether chance is ruled out."""
        return self.rise_upper < config.plateau_gain and self.entropy_ratio_upper < config.entropy_share

    def ends(self, config: EntropulseConfig) -> bool:
        """Whether a plateau that had begun is over."""
        return self.rise >= config.plateau_gain or self.entropy_ratio >= LEAVE * config.entropy_share

    def evidence(self) -> dict[str, float]:
        """For the log."""
        fields = {name: float(getattr(self, name)) for name in self.__struct_fields__}
        return {("stay_steps" if name == "steps" else name): value for name, value in fields.items()}


def plateau(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float] | None:
    """The evidence for a plateau now; None when there is none.

    `success` (shares) and `entropy` (nats per token) hold one value per optimizer step of the segment, oldest first.
    """
    steps = min(len(success), len(entropy))
    held, last = 0, None
    # A plateau that counts has begun within the last steps, or would have counted before: older looks decide nothing.
    for end in range(max(_first(config), steps - config.plateau_patience - config.plateau_window), steps + 1):
        last = _look(success[:end], entropy[:end], config)
        held = held + 1 if last.begins(config) or (held and not last.ends(config)) else 0
    if last is None or held < config.plateau_patience:
        return None
    return last.evidence() | {"held": float(held), **_limits(config)}


def measured(success: Sequence[float], entropy: Sequence[float], config: EntropulseConfig) -> dict[str, float]:
    """What the last look found, plateau or not. A segment that is too short for a look gives the means of its two
    halves.
    """
    steps = min(len(success), len(entropy))
    if steps >= config.plateau_window:
        return _look(success[:steps], entropy[:steps], config).evidence() | _limits(config)
    half = steps // 2
    if not half:
        return {}
    return {
        "success_first_half": fmean(success[:half]), "success_second_half": fmean(success[steps - half : steps]),
        "entropy_first_half": fmean(entropy[:half]), "entropy_second_half": fmean(entropy[steps - half : steps]),
    }  # fmt: skip


def _limits(config: EntropulseConfig) -> dict[str, float]:
    return {"plateau_gain": config.plateau_gain, "entropy_share": config.entropy_share}


def _first(config: EntropulseConfig) -> int:
    """The first step that is looked at."""
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
