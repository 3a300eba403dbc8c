"""The figures of runs: which there are, and the curve of each over the seeds of a group. Pure.

Report, live page and any other reader draw these: a figure has the same name, unit and axis everywhere. A mean is taken
only where every seed has a value, so a run that is behind or was killed bends no curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from actors.cluster.report.pooled import Group, pooled_rounds
from actors.cluster.report.run_data import RunFigures, series
from actors.cluster.words import plainly
from actors.replay.messages import Phase

WINDOW = 5  # steps over which training success is averaged
Series = Mapping[int, float]  # optimizer step -> value


class Figure(NamedTuple):
    """One figure of a step."""

    name: str
    title: str
    caption: str
    keys: tuple[str, ...]  # names in a step's figures, the first that a run has
    unit: str
    phase: str | None = Phase.RL  # None: of all phases
    window: int = 1  # steps of its trailing mean in a report
    share: bool = False  # from 0 to 1
    log: bool = False  # on a logarithmic axis, but for the smallest values
    live: bool = False  # on the live page, too


FIGURES = (
    Figure(
        "loss", "Loss",
        "Mean over the batch; phases minimise different things.",
        ("loss",), "loss", None, log=True, live=True,
    ),
    Figure(
        "token-entropy", "Token entropy", "Of the next token, at temperature 1.", ("entropy",), "nats", None, live=True
    ),
    Figure(
        "sampled-entropy", "Token entropy of all episodes",
        "Minus the mean log-probability of drawn tokens, those of groups with equal rewards too; pulses begin by it.",
        ("sampled_entropy_nats",), "nats per token",
    ),
    Figure(
        "action-entropy", "Action entropy", "Of the parsed actions of a batch, by the function they call.",
        ("action_entropy_nats",), "nats", window=WINDOW,
    ),
    Figure(
        "call-entropy", "Call entropy within a group",
        "Of function and arguments among the episodes of one task, mean over the batch.",
        ("group_call_entropy_nats",), "nats", window=WINDOW,
    ),
    Figure(
        "diversity", "Diversity", "Distinct trajectories among the episodes of one task, as a share.",
        ("distinct_trajectories",), "share distinct", window=WINDOW, share=True,
    ),
    Figure(
        "remembered", "Remembered desktops", "Steps of a batch whose screen and result a memo gave: none was booted.",
        ("remembered",), "share of steps", share=True,
    ),
    Figure("coverage", "Coverage", "Training tasks solved at least once so far.", ("coverage",), "share", share=True),
    Figure(
        "kl", "KL", "k3 estimate of the divergence from the reference policy.", ("kl",), "nats per token", live=True
    ),
    Figure(
        "clip-fraction", "Clip fraction", "Tokens whose gradient was clipped away.", ("clip_fraction",),
        "share of tokens",
    ),
    Figure(
        "mismatch", "Mismatch", "Mean absolute log-ratio of the policy trained to the one that acted.",
        ("mismatch_mean", "mismatch"), "nats",
    ),
    Figure("pace", "Pace", "Training episodes a minute between two steps.", ("episodes_per_min",), "episodes / min"),
)  # fmt: skip
SUCCESS = Figure(
    "training-success", "Success of training episodes", "Of the episodes of a step's batch.", ("success",), "share",
    window=WINDOW, share=True, live=True,
)  # fmt: skip
STALENESS = Figure(
    "staleness", "Staleness", "Age of what was trained: the version trained minus that of a trajectory's oldest token.",
    (), "share of trajectories",
)  # fmt: skip
GROUPS = Figure("groups", "Groups by ending", "Groups that were not trained on taught nothing.", (), "share of groups")
ENDINGS = frozenset(("trained", "stale", "zero_variance", "lost", "phase_closed", "orphaned"))


class Band(NamedTuple):
    """Mean of the seeds with the lowest and the highest one, by step."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int

    def cut(self, at: float) -> tuple[Band, Band]:
        """The part up to step `at`, and the rest."""
        n = sum(step <= at for step in self.steps)
        first, last = (
            Band(self.steps[half], self.mean[half], self.low[half], self.high[half], self.seeds)
            for half in (slice(n), slice(n, None))
        )
        return first, last


def band(curves: Sequence[Series]) -> Band:
    """The band of several seeds' curves over the steps that all of them have; seeds without any value are left out."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return Band([], [], [], [], 0)
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    columns = [[curve[step] for curve in curves] for step in steps]
    # A mean of equal numbers may round to outside of them.
    means = [min(max(sum(values) / len(values), min(values)), max(values)) for values in columns]
    return Band(steps, means, [min(v) for v in columns], [max(v) for v in columns], len(curves))


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Trailing mean over at most `window` values."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def bands(figure: Figure, groups: Sequence[Group]) -> dict[str, Band]:
    """Label of the group -> the figure's band."""

    def curve(run: RunFigures) -> dict[int, float]:
        return next((curve for key in figure.keys if (curve := series(run.steps, key, figure.phase))), {})

    return {group.label: band([curve(run) for run in group.runs]) for group in groups}


class Dots(NamedTuple):
    """Rates with intervals that belong together: a group's rounds of one decoding."""

    label: str
    steps: list[int]
    values: list[float]
    low: list[float]
    high: list[float]
    each: list[list[float]]  # by step, the seeds' own values
    group: str = ""  # label of the group, which has one colour
    nth: int = 0  # which of the group's decodings


def dots(groups: Sequence[Group]) -> list[Dots]:
    """The rounds of every group and decoding; of several seeds, the pooled rate where all of them played the round."""
    made = []
    for group in groups:
        points = pooled_rounds(group.runs)
        for nth, decoding in enumerate(dict.fromkeys(point.decoding for point in points)):
            mine = [point for point in points if point.decoding == decoding]
            seeds = f" over {len(mine[0].each)} {group.called}" * (len(mine[0].each) > 1)
            label = f"held out, {decoding}, n = {mine[0].together.n}{seeds}"
            made.append(
                Dots(
                    label if len(groups) == 1 else f"{group.label}: {label}",
                    [point.step for point in mine],
                    [point.together.value for point in mine],
                    [point.together.interval[0] for point in mine],
                    [point.together.interval[1] for point in mine],
                    [point.each for point in mine],
                    group.label,
                    nth,
                )
            )
    return made


def staleness(run: RunFigures) -> dict[int, int]:
    """Optimizer steps between playing and training -> trajectories."""
    ages: dict[int, int] = {}
    for step in run.steps:
        for age, count in step.staleness.items():
            ages[age] = ages.get(age, 0) + count
    return ages


def endings(run: RunFigures) -> dict[str, int]:
    """How the groups that were played to their end ended."""
    return plainly({name: n for name, n in run.endings.items() if name in ENDINGS})


def shares(groups: Sequence[Group], of: Callable[[RunFigures], Mapping[Any, int]]) -> dict[str, dict[Any, float]]:
    """Label of the group -> each kind's share of all that its runs counted."""
    found: dict[str, dict[Any, float]] = {}
    for group in groups:
        counts: dict[Any, int] = {}
        for run in group.runs:
            for kind, n in of(run).items():
                counts[kind] = counts.get(kind, 0) + n
        whole = sum(counts.values())
        found[group.label] = {kind: n / whole for kind, n in counts.items()} if whole else {}
    return found
