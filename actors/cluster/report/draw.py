"""Draws a run's curve as a PNG.

Invariant: all points of one curve share decoding and task set; each has its 95 % interval.
"""

from __future__ import annotations

from pathlib import Path

from actors.cluster.report.read import RunFigures
from runtime.errors import ConfigError

COLOURS = {"bc": "#dfe8f5", "rl": "#e6f3e6", "pulse": "#fbeed5"}
WINDOW = 5  # optimizer steps over which training success is averaged


def smooth(values: list[float], window: int) -> list[float]:
    """Trailing mean over at most `window` values."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def curve(figures: RunFigures, into: Path) -> None:
    """Write the curve. Raises ConfigError where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("drawing needs matplotlib: make setup, or pip install 'computerrl[report]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.2), dpi=120)
    last = max([point.step for point in figures.points], default=1)
    rl = [stay.start for stay in figures.stays if stay.phase == "rl"]
    first = max(0, rl[0] - 0.1 * last) if rl else 0  # cloning is long and has no curve: its end is enough
    ends = [stay.start for stay in figures.stays[1:]] + [last]
    for stay, end in zip(figures.stays, ends, strict=True):
        if end > stay.start and stay.phase in COLOURS:
            axes.axvspan(stay.start, end, color=COLOURS[stay.phase], lw=0)
            axes.text((max(stay.start, first) + end) / 2, 1.02, stay.phase, ha="center", fontsize=9)
    label: str | None = f"training episodes (mean of {WINDOW} steps)"
    for stay, end in zip(figures.stays, ends, strict=True):
        inside = [point for point in figures.points if stay.start < point.step <= end and point.success is not None]
        if stay.phase == "rl" and inside:  # in cross-entropy phases no training episode is played
            values = smooth([point.success or 0.0 for point in inside], WINDOW)
            axes.plot([point.step for point in inside], values, color="#8a8a8a", lw=1, label=label)
            label = None
    closed = [found for found in figures.rounds if found.closed]
    for temperature in sorted({found.temperature for found in closed}, reverse=True):
        rounds = [found for found in closed if found.temperature == temperature]
        rates = [found.summary.whole.all for found in rounds]
        low = [rate.value - rate.interval[0] for rate in rates]
        high = [rate.interval[1] - rate.value for rate in rates]
        label = f"held out, {'greedy' if temperature == 0 else f'T = {temperature:g}'}, n = {rates[0].n}"
        x = [found.step for found in rounds]
        axes.errorbar(x, [rate.value for rate in rates], yerr=[low, high], marker="o", capsize=3, lw=1.8, label=label)
    axes.set(xlabel="optimizer step", ylabel="success", ylim=(0, 1), xlim=(first, last + 1))
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:  # a run without a round or an RL step has nothing to name
        axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(into, metadata={"Software": None})
    plt.close(figure)
