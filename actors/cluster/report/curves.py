"""Draws curves of one or several runs over optimizer steps.

Invariant: runs of one group are one line with a band. A picture of a single point is not drawn: tables have it. Where
pulses are longer than RL, their steps are drawn narrower and the axis says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from actors.cluster.report.axis import NARROWED, knots
from actors.cluster.report.bands import Band, Series, band, smooth
from actors.cluster.report.drawing import INK, LINES, SHADES, Drawing, drawn, pyplot
from actors.replay.messages import Phase

STEPS = "step (one batch)"
WIDE = (5.4, 3.2)  # inches: as wide as a phone, where letters of 9 points can be read
LEAST = 2  # points of a line, and bars of a picture
WINDOW = 5  # steps over which training success is averaged
USUAL = 98  # percentile of a segment's values up to which a cut axis reaches at the least
MARKERS = "osD^v"  # of one group's decodings
FLAT = 1.5  # how much higher than the axis' cut part the highest value must be for a cut to be worth it


class Stretch(NamedTuple):
    """A phase segment, in optimizer steps."""

    phase: str
    start: int
    end: int


class Dots(NamedTuple):
    """Points with intervals that belong together: a round's decoding of one group of runs."""

    label: str
    steps: list[int]
    values: list[float]
    low: list[float]
    high: list[float]
    each: list[list[float]]  # by step, the seeds' own values
    group: str = ""  # label of the group, which has one colour
    nth: int = 0  # which of the group's decodings


def lines(
    groups: Mapping[str, Sequence[Series]],
    stretches: Sequence[Stretch],
    ylabel: str,
    *,
    window: int = 1,
    whole: bool = False,
    share: bool = False,
    cut: bool = False,
    axis: str = STEPS,
    called: str = "seeds",
) -> Drawing | None:
    """One line per group over the steps, or None without two values. `whole`: cloning in full; `share`: from 0 to 1.

    `cut`: a few values far above all others are off the axis, which says so. `called`: what the runs of a group are.
    """
    bands = {label: band(several) for label, several in groups.items()}
    if max((len(found.steps) for found in bands.values()), default=0) < LEAST:
        return None
    plt = pyplot()
    figure, axes = plt.subplots(figsize=WIDE, dpi=150)
    last = max(found.steps[-1] for found in bands.values() if found.steps)
    first = 0.0 if whole else _first_shown(stretches, last)
    parts: list[Band] = []
    for (label, found), colour in zip(bands.items(), _colours(), strict=False):
        _, shown = _cut(found, first)  # what lies before must not stretch the other axis
        for part in _parts(shown, stretches):
            parts.append(part)
            said = _named(label, found, called) if part.steps[0] == shown.steps[0] else None
            _line(axes, part, colour, said, window)
    if not parts:
        plt.close(figure)
        return None
    axes.set(xlabel=_dress(axes, stretches, last, axis, whole=whole), ylabel=ylabel)
    if share:
        axes.set_ylim(0, 1)
    if cut:
        _shorten(axes, parts)
    if len(bands) > 1 or any(found.seeds > 1 for found in bands.values()):
        axes.legend(fontsize=9)
    return drawn(figure)


def success(
    groups: Mapping[str, Sequence[Series]],
    dots: Sequence[Dots],
    stretches: Sequence[Stretch],
    axis: str = STEPS,
    called: str = "seeds",
) -> Drawing | None:
    """Held-out rounds with intervals over training success; None where neither has two points."""
    bands = {label: band(several) for label, several in groups.items()}
    steps = [one.steps for one in dots] + [found.steps for found in bands.values()]
    if max(map(len, steps), default=0) < LEAST:
        return None
    plt = pyplot()
    figure, axes = plt.subplots(figsize=WIDE, dpi=200)
    for (label, found), colour in zip(
        bands.items(), _colours() if len(bands) > 1 else cycle(["#8a8a8a"]), strict=False
    ):
        for part in _parts(found, stretches):
            said = f"training, {_named(label, found, called)} (mean of {WINDOW} steps)"
            first = part.steps[0] == found.steps[0]
            _line(axes, part, colour, said if first else None, WINDOW, faint=True)
    coloured = dict(zip(bands, _colours(), strict=False)) if len(bands) > 1 else {}
    for one, other in zip(dots, _colours(), strict=False):
        colour, marker = coloured.get(one.group, other), MARKERS[one.nth % len(MARKERS)]
        below = [max(0.0, value - low) for value, low in zip(one.values, one.low, strict=True)]
        above = [max(0.0, high - value) for value, high in zip(one.values, one.high, strict=True)]
        axes.errorbar(
            one.steps, one.values, yerr=[below, above], marker=marker, capsize=3, lw=1.8, label=one.label, color=colour
        )
        for step, values in zip(one.steps, one.each, strict=True):
            if len(values) > 1:
                axes.plot([step] * len(values), values, "_", color=colour, markersize=7, alpha=0.6)
    last = max(several[-1] for several in steps if several)
    said = _dress(axes, stretches, last, axis, whole=False)
    axes.set(xlabel=said, ylabel="success", ylim=(0, 1))
    axes.legend(fontsize=9, loc="best")
    return drawn(figure, file=True)


def _shorten(axes: Any, drawn: Sequence[Band]) -> None:
    """End the other axis above the highest of the segments' usual values where what lies beyond would flatten the rest.

    By segment, as each minimises something else and a short one's values must not be taken for rare ones of a long one.
    """
    import numpy

    usual = max((float(numpy.percentile(part.high, USUAL)) for part in drawn), default=0.0)
    least = min((min(part.low) for part in drawn), default=0.0)
    most = max((max(part.high) for part in drawn), default=0.0)
    room = 0.05 * (usual - least)
    if room <= 0 or most - least <= FLAT * (usual - least):
        return
    axes.set_ylim(least - room, usual + room)
    said = f"off the axis: up to {most:.3g}"
    axes.text(0.99, 0.97, said, ha="right", va="top", fontsize=9, color=INK, transform=axes.transAxes)


def counts(groups: Mapping[str, Mapping[Any, float]], xlabel: str, ylabel: str) -> Drawing | None:
    """Bars side by side by category, None without two."""
    names = sorted({name for found in groups.values() for name in found})
    if len(names) < LEAST:
        return None
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(WIDE[0], 2.4), dpi=150)
    wide = 0.8 / len(groups)
    for number, ((label, found), colour) in enumerate(zip(groups.items(), _colours(), strict=False)):
        places = [place - 0.4 + wide * (number + 0.5) for place in range(len(names))]
        axes.bar(places, [found.get(name, 0) for name in names], width=wide, label=label, color=colour)
    axes.set(xticks=range(len(names)), xlabel=xlabel, ylabel=ylabel)
    axes.set_xticklabels([str(name) for name in names])
    if len(groups) > 1:
        axes.legend(fontsize=9)
    return drawn(figure)


def _colours() -> Iterator[str]:
    """One for each line, from the first again after the last."""
    return cycle(LINES)


def _named(label: str, found: Band, called: str) -> str:
    return f"{label}, {found.seeds} {called}" if found.seeds > 1 else label


def _parts(found: Band, stretches: Sequence[Stretch]) -> list[Band]:
    """`found` cut at changes of phase, so that no line joins what was not trained in between."""
    cuts = [found]
    for start in sorted({one.start for one in stretches}):
        head, tail = _cut(cuts.pop(), start)
        cuts += [part for part in (head, tail) if part.steps] or [tail]
        if not cuts[-1].steps:
            break
    return [part for part in cuts if part.steps]


def _cut(found: Band, at: float) -> tuple[Band, Band]:
    n = sum(step <= at for step in found.steps)
    halves = (slice(None, n), slice(n, None))
    one, two = (
        Band(found.steps[half], found.mean[half], found.low[half], found.high[half], found.seeds) for half in halves
    )
    return one, two


def _line(axes: Any, found: Band, colour: str, label: str | None, window: int, *, faint: bool = False) -> None:
    alone = "o" if len(found.steps) == 1 else None  # a line of one point has no length
    axes.plot(
        found.steps, smooth(found.mean, window), color=colour, lw=1 if faint else 1.5, label=label, marker=alone, ms=5
    )
    if found.seeds > 1:
        low, high = smooth(found.low, window), smooth(found.high, window)
        axes.fill_between(found.steps, low, high, color=colour, alpha=0.18, lw=0)


def _dress(axes: Any, stretches: Sequence[Stretch], last: int, axis: str, *, whole: bool) -> str:
    """Shade phases; cloning is long and mostly has no curve, so unless `whole` its end is enough. The axis' name."""
    told, narrowed = _told(stretches, last)
    first = 0.0 if whole else _first_shown(stretches, last)
    if narrowed:
        _narrow(axes, narrowed, [one.start for one in told if one.start >= first] + [last])
    else:
        axes.locator_params(axis="x", integer=True)
    axes.set_xlim(first, last + 1)
    for one in told:
        if (end := one.end) > first:
            axes.axvspan(max(one.start, first), end, color=SHADES[one.phase], lw=0, zorder=0)
            _name(axes, one.phase, max(one.start, first), end)
    axes.grid(alpha=0.25)
    return NARROWED if narrowed else axis


def _name(axes: Any, name: str, start: float, end: float) -> None:
    """Over [start, end], where there is room for it, so that it lies on no neighbour's."""
    # Between its ends as they are drawn, which is not half of its steps where a part is narrower.
    left, right = axes.transData.transform([(start, 0), (end, 0)])[:, 0]
    place = axes.transData.inverted().transform(((left + right) / 2, 0))[0]
    text = axes.text(place, 1.02, name, ha="center", fontsize=9, transform=axes.get_xaxis_transform())
    if text.get_window_extent().width > right - left:
        text.remove()


def _told(stretches: Sequence[Stretch], last: int) -> tuple[list[Stretch], list[tuple[float, float]]]:
    """The shaded stretches up to step `last`, and where they bend the axis."""
    told = [one._replace(end=min(one.end, last)) for one in stretches if one.phase in SHADES]
    told = [one for one in told if one.start < one.end]
    return told, knots([(one.phase, one.start, one.end) for one in told])


def _first_shown(stretches: Sequence[Stretch], last: int) -> float:
    """The first step drawn where cloning is not drawn in full."""
    told, narrowed = _told(stretches, last)
    rl = [one for one in told if one.phase == Phase.RL]
    width = sum(one.end - one.start for one in rl) if narrowed else last
    return max(0.0, rl[0].start - 0.1 * width) if rl else 0.0


def _narrow(axes: Any, narrowed: Sequence[tuple[float, float]], ticks: Sequence[int]) -> None:
    import numpy

    steps, places = zip(*narrowed, strict=True)
    axes.set_xscale(
        "function", functions=(lambda x: numpy.interp(x, steps, places), lambda y: numpy.interp(y, places, steps))
    )
    apart = 0.06 * (numpy.interp(max(ticks), steps, places) - numpy.interp(min(ticks), steps, places))
    shown: list[int] = []
    for tick in sorted(set(ticks), reverse=True):
        if not shown or numpy.interp(shown[-1], steps, places) - numpy.interp(tick, steps, places) > apart:
            shown.append(tick)
    axes.set_xticks(shown)
    axes.minorticks_off()
