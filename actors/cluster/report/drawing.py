"""Which figures of runs there are, the curve of each over the seeds of a group, and their pictures.

A mean is taken only where every seed has a value, so a run that is behind or was killed bends no curve. A picture of a
single point is not drawn: tables have it.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from actors.cluster.output import plain, plainly
from actors.cluster.report.pooled import Group, PooledRound, pooled_rounds
from actors.cluster.report.run_data import RunFigures, Stretch, series
from actors.replay.messages import Phase
from runtime.errors import ConfigError

INK, PAPER, FAINT = "#1b1b1b", "#fefefe", "#8a8a8a"  # of text and axes, behind a legend, of training success
SHADES: dict[str, str] = {Phase.BC: "#dfe8f5", Phase.RL: "#e6f3e6", Phase.PULSE: "#fbeed5"}
LINES = (
    "#1f5f99", "#b5482a", "#2f7d46", "#7a4a9e", "#8a6d1f", "#3f7f86",
    "#c23b75", "#5b6b1a", "#4458c4", "#d0872c", "#5f5f5f", "#20a39e",
)  # fmt: skip
STEPS, RL_STEPS = "step (one batch)", "step of RL"
CURVE = "curve"  # the name of the picture of success
WIDE = (4.8, 3.0)  # inches: as wide as a phone, where letters of 9 points can be read
LEAST = 2  # points of a line, and bars of a picture
MARKERS = "osD^v"  # of one group's decodings
WINDOW = 5  # steps over which training success is averaged
Series = Mapping[int, float]  # optimizer step -> value


class Figure(NamedTuple):
    """One figure of a step."""

    title: str
    caption: str
    keys: tuple[str, ...]  # names in a step's figures, the first that a run has
    unit: str
    phase: str | None = Phase.RL  # None: of all phases
    window: int = 1  # steps of its trailing mean in a report
    share: bool = False  # from 0 to 1
    log: bool = False  # on a logarithmic axis of a report, but for the smallest values

    @property
    def name(self) -> str:
        """Of its picture."""
        return self.title.lower().replace(" ", "-")


FIGURES = (
    Figure("Loss", "Mean over the batch; phases minimise different things.", ("loss",), "loss", None, log=True),
    Figure("Token entropy", "Of the next token, at temperature 1.", ("entropy",), "nats", None),
    Figure("Token entropy of all episodes", "Minus the mean log-probability of drawn tokens, those of groups with equal"
           " rewards too; pulses begin by it.", ("sampled_entropy_nats",), "nats per token"),
    Figure("Action entropy", "Of the parsed actions of a batch, by the function they call.", ("action_entropy_nats",),
           "nats", window=WINDOW),
    Figure("Call entropy within a group", "Of function and arguments among the episodes of one task, mean over the"
           " batch.", ("group_call_entropy_nats",), "nats", window=WINDOW),
    Figure("Diversity", "Distinct trajectories among the episodes of one task, as a share.", ("distinct_trajectories",),
           "share distinct", window=WINDOW, share=True),
    Figure("Pass at 1", "Of the groups that were completed since the step before, those of equal rewards too.",
           ("pass_at_1",), "share of episodes", window=WINDOW, share=True),
    Figure("Pass at 8", "Chance that one of eight episodes of a task succeeds, mean over the same groups.",
           ("pass_at_8",), "share of tasks", window=WINDOW, share=True),
    Figure("Equal groups", "Of the same groups those whose episodes all succeeded, or all failed.", ("equal_groups",),
           "share of groups", window=WINDOW, share=True),
    Figure("Advantage and log-probability", "Covariance over a batch's tokens; above 0 entropy is about to fall.",
           ("advantage_logprob_cov",), "nats", window=WINDOW),
    Figure("Effective samples", "What a batch's tokens are worth, as a share of as many with equal ratios.",
           ("effective_samples",), "share of tokens", share=True),
    Figure("Gradient norm", "Before clipping, mean over a step's passes.", ("grad_norm",), "norm", None, log=True),
    Figure("Entropy of the probe", "Of the next token and of eight answers, on prompts that a run and its forks keep.",
           ("probe_entropy", "probe_answer_entropy"), "nats"),
    Figure("Remembered desktops", "Steps of a batch whose screen and result a memo gave: none was booted.",
           ("remembered",), "share of steps", share=True),
    Figure("Coverage", "Training tasks solved at least once so far.", ("coverage",), "share", share=True),
    Figure("KL", "k3 estimate of the divergence from the reference policy.", ("kl",), "nats per token"),
    Figure("Clip fraction", "Tokens whose gradient was clipped away.", ("clip_fraction",), "share of tokens"),
    Figure("Mismatch", "Mean absolute log-ratio of the policy trained to the one that acted.",
           ("mismatch_mean", "mismatch"), "nats"),
    Figure("Pace", "Training episodes a minute between two steps.", ("episodes_per_min",), "episodes / min"),
)  # fmt: skip
SUCCESS = Figure("Success of training episodes", "Of the episodes of a step's batch.", ("success",), "share",
                 window=WINDOW, share=True)  # fmt: skip
STALENESS = Figure("Staleness", "Age of what was trained: the version trained minus that of a trajectory's oldest"
                   " token.", (), "share of trajectories")  # fmt: skip
GROUPS = Figure("Groups", "Groups by how they ended: those that were not trained on taught nothing.", (),
                "share of groups")  # fmt: skip
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
    """A group's rounds of one decoding."""

    label: str
    points: list[PooledRound]
    group: str = ""  # label of the group, which has one colour
    nth: int = 0  # which of the group's decodings


def dots(groups: Sequence[Group]) -> list[Dots]:
    """The rounds of every group and decoding; of several seeds, the pooled rate where all of them played the round."""
    made = []
    for group in groups:
        points = pooled_rounds(group.runs)
        for nth, decoding in enumerate(dict.fromkeys(point.decoding for point in points)):
            mine = [point for point in points if point.decoding == decoding]
            over = f" over {len(mine[0].each)} runs" * (len(mine[0].each) > 1)
            label = f"{group.label}: " * (len(groups) > 1) + f"held out, {decoding}, n = {mine[0].together.n}{over}"
            made.append(Dots(label, mine, group.label, nth))
    return made


def staleness(run: RunFigures) -> dict[int, int]:
    """Optimizer steps between playing and training -> trajectories."""
    ages = Counter[int]()
    for step in run.steps:
        ages.update(step.staleness)
    return ages


def endings(run: RunFigures) -> dict[str, int]:
    """How the groups that were played to their end ended."""
    return plainly({name: n for name, n in run.endings.items() if name in ENDINGS})


def shares(groups: Sequence[Group], of: Callable[[RunFigures], Mapping[Any, int]]) -> dict[str, dict[Any, float]]:
    """Label of the group -> each kind's share of all that its runs counted."""
    found: dict[str, dict[Any, float]] = {}
    for group in groups:
        counts = Counter[Any]()
        for run in group.runs:
            counts.update(of(run))
        whole = counts.total()
        found[group.label] = {kind: n / whole for kind, n in counts.items()} if whole else {}
    return found


class Picture(NamedTuple):
    """One picture."""

    name: str  # of its file, without an ending
    title: str
    caption: str  # what it shows, in a sentence
    png: bytes


class _Axis(NamedTuple):
    stretches: Sequence[Stretch]  # phase segments to be shaded
    label: str


def pictures(groups: Sequence[Group]) -> list[Picture]:
    """All pictures of the runs, in the order of the page. Raises ConfigError where matplotlib is missing.

    What RL alone has is drawn over steps of RL where pulses are longer than RL, and for groups whose runs clone or
    pulse for different numbers of steps; what cloning and pulses have, too, is drawn over all steps.
    """
    runs = [run for group in groups for run in group.runs]
    alike = len({tuple(run.stretches()) for run in runs}) == 1
    whole = of_rl = _Axis(runs[0].stretches() if alike else [], STEPS)
    placed = groups
    lasted = Counter(step.phase for run in runs for step in run.steps)
    apart = lasted[Phase.PULSE] > lasted[Phase.RL] or (not alike and len(groups) > 1)
    if apart and all(any(step.phase == Phase.RL for step in run.steps) for run in runs):
        placed = [Group(group.label, [run.by_rl_steps() for run in group.runs]) for group in groups]
        of_rl = _Axis([], RL_STEPS)
    made = [success(bands(SUCCESS, placed), dots(placed), of_rl)]
    for figure in FIGURES:
        over, axis = (groups, whole) if figure.phase is None else (placed, of_rl)
        made.append(lines(figure, bands(figure, over), axis))
    made.append(counts(STALENESS, shares(groups, staleness), "versions"))
    made.append(counts(GROUPS, shares(groups, endings), "how a group ended"))
    return [picture for picture in made if picture is not None]


def pyplot() -> Any:
    """Matplotlib's, drawing into memory. Raises ConfigError where it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        mend = f"make setup, or {sys.executable} -m pip install matplotlib"
        raise ConfigError(f"drawing needs matplotlib: {mend}") from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "legend.facecolor": PAPER,
    })  # fmt: skip
    from matplotlib import pyplot as plt

    return plt


def drawn(plot: Any, name: str, title: str, caption: str) -> Picture:
    """The picture of a figure of matplotlib, of which nothing is left in memory."""
    png = io.BytesIO()
    plot.tight_layout()
    plot.savefig(png, format="png", metadata={"Software": None})
    pyplot().close(plot)
    return Picture(name, title, caption, png.getvalue())


def lines(figure: Figure, curves: Mapping[str, Band], axis: _Axis) -> Picture | None:
    """One line per group over the steps, or None without two values."""
    if max((len(curve.steps) for curve in curves.values()), default=0) < LEAST:
        return None
    last = max(curve.steps[-1] for curve in curves.values() if curve.steps)
    first = 0.0 if figure.log else _first_shown(axis.stretches, last)
    # What lies before the first step shown must not stretch the other axis.
    shown = {label: _parts(curve.cut(first)[1], axis.stretches) for label, curve in curves.items()}
    parts = [part for several in shown.values() for part in several]
    if not parts:
        return None
    plot, axes = pyplot().subplots(figsize=WIDE, dpi=150)
    for (label, several), colour in zip(shown.items(), cycle(LINES), strict=False):
        for number, part in enumerate(several):
            _line(axes, part, colour, _named(label, curves[label]) if not number else None, figure.window)
    _dress(axes, axis, first, last, figure.unit)
    if figure.share:
        axes.set_ylim(0, 1)
    if figure.log:
        axes.set_yscale("symlog", linthresh=0.1)
        axes.yaxis.set_major_formatter("{x:g}")  # without small raised digits
    if len(curves) > 1 or any(curve.seeds > 1 for curve in curves.values()):
        axes.legend(fontsize=9)
    return drawn(plot, figure.name, figure.title, figure.caption)


def success(curves: Mapping[str, Band], rounds: Sequence[Dots], axis: _Axis) -> Picture | None:
    """Held-out rounds with intervals over training success; None where neither has two points."""
    steps = [[point.step for point in one.points] for one in rounds] + [curve.steps for curve in curves.values()]
    if max(map(len, steps), default=0) < LEAST:
        return None
    plot, axes = pyplot().subplots(figsize=WIDE, dpi=200)
    several = len(curves) > 1
    for (label, curve), colour in zip(curves.items(), cycle(LINES if several else [FAINT]), strict=False):
        words = f"training, {_named(label, curve)} (mean of {SUCCESS.window} steps)"
        for number, part in enumerate(_parts(curve, axis.stretches)):
            _line(axes, part, colour, words if not number else None, SUCCESS.window, faint=True)
    coloured = dict(zip(curves, cycle(LINES), strict=False)) if several else {}
    for one, other in zip(rounds, cycle(LINES), strict=False):
        colour, marker = coloured.get(one.group, other), MARKERS[one.nth % len(MARKERS)]
        rates = [point.together for point in one.points]
        errors = [[max(0.0, side * (rate.interval[n] - rate.value)) for rate in rates] for n, side in ((0, -1), (1, 1))]
        looks = {"marker": marker, "capsize": 3, "lw": 1.8, "label": one.label, "color": colour}
        axes.errorbar([point.step for point in one.points], [rate.value for rate in rates], yerr=errors, **looks)
        for point in one.points:
            if len(point.each) > 1:
                axes.plot([point.step] * len(point.each), point.each, "_", color=colour, markersize=7, alpha=0.6)
    last = max(several[-1] for several in steps if several)
    _dress(axes, axis, _first_shown(axis.stretches, last), last, "success")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=9, loc="best")
    caption = (
        "Held-out rounds with 95 % intervals, over training episodes. Families that are never trained on are left out"
        " where there are others."
    )
    return drawn(plot, CURVE, "Success", caption)


def counts(figure: Figure, groups: Mapping[str, Mapping[Any, float]], xlabel: str) -> Picture | None:
    """Bars side by side by category, None without two."""
    kinds = sorted({kind for shares in groups.values() for kind in shares})
    if len(kinds) < LEAST:
        return None
    plot, axes = pyplot().subplots(figsize=(WIDE[0], 2.4), dpi=150)
    wide = 0.8 / len(groups)
    for number, ((label, shares), colour) in enumerate(zip(groups.items(), cycle(LINES), strict=False)):
        places = [place - 0.4 + wide * (number + 0.5) for place in range(len(kinds))]
        axes.bar(places, [shares.get(kind, 0) for kind in kinds], width=wide, label=label, color=colour)
    axes.set(xticks=range(len(kinds)), xlabel=xlabel, ylabel=figure.unit)
    axes.set_xticklabels([str(kind) for kind in kinds])
    if len(groups) > 1:
        axes.legend(fontsize=9)
    return drawn(plot, figure.name, figure.title, figure.caption)


def _named(label: str, curve: Band) -> str:
    return f"{label}, {curve.seeds} runs" if curve.seeds > 1 else label


def _parts(curve: Band, stretches: Sequence[Stretch]) -> list[Band]:
    """`curve` cut at changes of phase, so that no line joins what was not trained in between."""
    parts, rest = [], curve
    for start in sorted({stretch.start for stretch in stretches}):
        part, rest = rest.cut(start)
        parts.append(part)
    return [part for part in (*parts, rest) if part.steps]


def _line(axes: Any, curve: Band, colour: str, label: str | None, window: int, *, faint: bool = False) -> None:
    alone = "o" if len(curve.steps) == 1 else None  # a line of one point has no length
    width = 1 if faint else 1.5
    axes.plot(curve.steps, smooth(curve.mean, window), color=colour, lw=width, label=label, marker=alone, ms=5)
    if curve.seeds > 1:
        low, high = smooth(curve.low, window), smooth(curve.high, window)
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.18, lw=0)


def _dress(axes: Any, axis: _Axis, first: float, last: int, ylabel: str) -> None:
    axes.set(xlabel=axis.label, ylabel=ylabel, xlim=(first, last + 1))
    axes.locator_params(axis="x", integer=True)
    for stretch in axis.stretches:
        start, end = max(stretch.start, first), min(stretch.end, last)
        if stretch.phase in SHADES and end > start:
            axes.axvspan(start, end, color=SHADES[stretch.phase], lw=0, zorder=0)
            _name(axes, plain(stretch.phase), start, end)
    axes.grid(alpha=0.25)


def _name(axes: Any, name: str, start: float, end: float) -> None:
    """Write the name over [start, end], where there is room for it, so that it lies on no neighbour's."""
    place = axes.get_xaxis_transform()
    text = axes.text((start + end) / 2, 1.02, name, ha="center", fontsize=9, transform=place)
    left, right = axes.transData.transform([(start, 0), (end, 0)])[:, 0]
    if text.get_window_extent().width > right - left:
        text.remove()


def _first_shown(stretches: Sequence[Stretch], last: int) -> float:
    """The first step drawn: cloning is long and mostly has no curve, so its end is enough."""
    rl = [stretch.start for stretch in stretches if stretch.phase == Phase.RL and stretch.start < last]
    return max(0.0, rl[0] - 0.1 * last) if rl else 0.0
