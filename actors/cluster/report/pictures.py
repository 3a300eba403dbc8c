"""Which pictures a report has, by name.

Invariant: a figure has the same name, unit and axis in every report; what no run has is no picture.
The pieces of a bar of time add up to all of it; what is too thin for a label is still in the legend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from actors.cluster.report import curves, history
from actors.cluster.report.curves import Dots
from actors.cluster.report.drawing import Drawing, drawn, pyplot
from actors.cluster.report.evaluated import pooled
from actors.cluster.report.gather import Group, RunData
from actors.cluster.report.machine import MachineTime
from actors.cluster.report.seats import BUSY, SeatTime
from actors.cluster.words import plainly
from actors.replay.messages import Phase


class Picture(NamedTuple):
    """One picture."""

    name: str  # of its file, without an ending
    title: str
    said: str  # what it shows, in a sentence
    content: Drawing


class _Curve(NamedTuple):
    name: str
    title: str
    said: str
    figure: str | tuple[str, ...]  # names in `figures`, the first that a run has
    label: str
    phase: str | None = Phase.RL
    window: int = 1
    share: bool = False
    whole: bool = False
    cut: bool = False


CURVES = (
    _Curve(
        "loss", "Loss",
        "Mean over the batch; phases minimise different things. Rare values far above all others are off the axis.",
        "loss", "loss", None, whole=True, cut=True,
    ),
    _Curve("token-entropy", "Token entropy", "Of the next token, at temperature 1.", "entropy", "nats", None),
    _Curve(
        "sampled-entropy", "Token entropy of all episodes",
        "Minus the mean log-probability of drawn tokens, those of groups with equal rewards too; pulses begin by it.",
        "sampled_entropy_nats", "nats per token",
    ),
    _Curve(
        "action-entropy", "Action entropy", "Of the parsed actions of a batch, by the function they call.",
        "action_entropy_nats", "nats", window=curves.WINDOW,
    ),
    _Curve(
        "call-entropy", "Call entropy within a group",
        "Of function and arguments among the episodes of one task, mean over the batch.", "group_call_entropy_nats",
        "nats", window=curves.WINDOW,
    ),
    _Curve(
        "diversity", "Diversity", "Distinct trajectories among the episodes of one task, as a share.",
        "distinct_trajectories", "share distinct", window=curves.WINDOW, share=True,
    ),
    _Curve("coverage", "Coverage", "Training tasks solved at least once so far.", "coverage", "share", share=True),
    _Curve("kl", "KL", "k3 estimate of the divergence from the reference policy.", "kl", "nats per token"),
    _Curve(
        "clip-fraction", "Clip fraction", "Tokens whose gradient was clipped away.", "clip_fraction", "share of tokens"
    ),
    _Curve(
        "mismatch", "Mismatch", "Mean absolute log-ratio of the policy trained to the one that acted.",
        ("mismatch_mean", "mismatch"), "nats",
    ),
    _Curve("pace", "Pace", "Training episodes a minute between two steps.", "episodes_per_min", "episodes / min"),
)  # fmt: skip


def pictures(groups: Sequence[Group]) -> Iterator[Picture]:
    """All pictures of the runs, in the order of the page.

    Groups whose runs clone or pulse for different numbers of steps are drawn over steps of RL, which they share; what
    cloning and pulses have, too, over all steps.
    """
    runs = [run for group in groups for run in group.runs]
    alike = len({tuple(one[:3] for one in run.stretches()) for run in runs}) == 1
    stretches, placed, axis = runs[0].stretches() if alike else [], groups, curves.STEPS
    if not alike and len(groups) > 1 and all(history.has_rl(run.steps) for run in runs):
        placed = [Group(group.label, [run.by_rl_steps() for run in group.runs]) for group in groups]
        axis = "step of RL"
    trained = {group.label: [history.series(run.steps, "success", Phase.RL) for run in group.runs] for group in placed}
    called = "runs" if any(group.called == "runs" for group in groups if len(group.runs) > 1) else "seeds"
    made = curves.success(trained, dots(placed), stretches, axis, called)
    said = (
        "Held-out rounds with 95 % intervals, over training episodes. Families that are never trained on are left out"
        " where there are others."
    )
    yield from _if("curve", "Success", said, made)
    for curve in CURVES:
        names = (curve.figure,) if isinstance(curve.figure, str) else curve.figure
        of, along = (placed, axis) if curve.phase == Phase.RL else (groups, curves.STEPS)
        found = {group.label: [_first(run, names, curve.phase) for run in group.runs] for group in of}
        made = curves.lines(
            found, stretches, curve.label, window=curve.window, whole=curve.whole, share=curve.share, axis=along,
            called=called, cut=curve.cut,
        )  # fmt: skip
        yield from _if(curve.name, curve.title, curve.said, made)
    made = curves.counts(
        _shares(groups, lambda run: history.total(run.steps, lambda step: step.staleness)),
        "versions", "share of trajectories",
    )  # fmt: skip
    said = "Age of what was trained: the version trained minus that of a trajectory's oldest token."
    yield from _if("staleness", "Staleness", said, made)
    made = curves.counts(
        _shares(groups, lambda run: plainly({name: n for name, n in run.figures.endings.items() if name in ENDINGS})),
        "how a group ended", "share of groups",
    )  # fmt: skip
    yield from _if("groups", "Groups by ending", "Groups that were not trained on taught nothing.", made)
    for run in runs:
        if run.figures.seats is not None:
            name = "seats" if len(runs) == 1 else f"seats-{run.name}"
            said = "Above, the seats' time by what they did or waited for; below, the processor's by part of the run."
            yield Picture(name, f"Time of {run.name}", said, bars(run.figures.seats, run.figures.machine))


ENDINGS = frozenset(("trained", "stale", "zero_variance", "lost", "phase_closed", "orphaned"))


def dots(groups: Sequence[Group]) -> list[Dots]:
    """The rounds of every group and decoding; of several seeds, the pooled rate where all of them played the round."""
    found = []
    for group in groups:
        for nth, (decoding, points) in enumerate(pooled(group.runs).items()):
            n = points[0].rate.n
            seeds = f" over {len(points[0].each)} {group.called}" * (len(points[0].each) > 1)
            label = f"held out, {decoding}, n = {n}{seeds}"
            found.append(
                Dots(
                    label if len(groups) == 1 else f"{group.label}: {label}",
                    [point.step for point in points],
                    [point.rate.value for point in points],
                    [point.rate.interval[0] for point in points],
                    [point.rate.interval[1] for point in points],
                    [point.each for point in points],
                    group.label,
                    nth,
                )
            )
    return found


def _first(run: RunData, names: Sequence[str], phase: str | None) -> dict[int, float]:
    return next((found for name in names if (found := history.series(run.steps, name, phase))), {})


def _shares(groups: Sequence[Group], of: Callable[[RunData], dict[str, int]]) -> dict[str, dict[str, float]]:
    shares: dict[str, dict[str, float]] = {}
    for group in groups:
        counts: dict[str, int] = {}
        for run in group.runs:
            for name, n in of(run).items():
                counts[name] = counts.get(name, 0) + n
        whole = sum(counts.values())
        shares[group.label] = {name: n / whole for name, n in counts.items()} if whole else {}
    return shares


def _if(name: str, title: str, said: str, made: Drawing | None) -> Iterator[Picture]:
    if made is not None:
        yield Picture(name, title, said, made)


LABEL_SHARE = 0.04
BUSY_COLOURS = ("#1f6f3d", "#2f8f4f", "#43a764", "#64bd80", "#8dd1a2", "#b7e3c4")
IDLE_COLOURS = ("#d98c3f", "#e3a867", "#ecc391", "#c46a5a", "#d89085", "#b7a0c4", "#cfcfcf", "#a8a8a8", "#e0d6c0")
CPU_COLOURS = ("#2d5f8b", "#4a80b0", "#75a3cb", "#a3c3df", "#cbdcec", "#dddddd")


def seat_shares(seats: SeatTime) -> dict[str, float]:
    """All of seats x wall by stage and cause, as seat_shares."""
    whole = seats.seats * seats.wall_s or 1.0
    return {name: seconds / whole for name, seconds in {**seats.stages_s, **seats.idle_s}.items()}


def ink(colour: str) -> str:
    """Black or white, whichever is told apart better from `colour`, as the WCAG measures contrast."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    light = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def bars(seats: SeatTime, machine: MachineTime | None) -> Drawing:
    """The picture. Raises ConfigError where matplotlib is missing."""
    plt = pyplot()
    rows: list[tuple[str, Mapping[str, float]]] = [(f"{seats.seats} seats", seat_shares(seats))]
    if machine is not None:
        used = {part: machine.share(part) for part in machine.cpu_s}
        rows.append((f"{machine.cores} cores", {**used, "idle": max(0.0, 1.0 - sum(used.values()))}))
    figure, axes = plt.subplots(len(rows), 1, figsize=(curves.WIDE[0], 3.0 * len(rows)), dpi=140, squeeze=False)
    for row, (name, pieces) in enumerate(rows):
        _bar(axes[row][0], name, pieces, CPU_COLOURS if row else None)
    return drawn(figure)


def _bar(axes: object, name: str, pieces: Mapping[str, float], colours: tuple[str, ...] | None) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    left, idle = 0.0, 0
    for number, (piece, share) in enumerate(pieces.items()):
        if colours is not None:
            colour = "#f2f2f2" if piece == "idle" else colours[number % len(colours)]
        elif piece in BUSY:
            colour = BUSY_COLOURS[BUSY.index(piece)]
        else:
            colour, idle = IDLE_COLOURS[idle % len(IDLE_COLOURS)], idle + 1
        axes.barh([name], [share], left=left, color=colour, label=f"{piece} {share:.0%}")
        if share >= LABEL_SHARE:
            axes.text(
                left + share / 2, 0, f"{share:.0%}", ha="center", va="center", fontsize=9, color=ink(colour)
            )  # fmt: skip
        left += share
    axes.set(xlim=(0, max(1.0, left)), xticks=[])
    axes.legend(ncol=2, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.02), frameon=False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
