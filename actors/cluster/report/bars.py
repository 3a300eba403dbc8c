"""Draws where seats and processor time went: one stacked bar each.

Invariant: a bar's pieces add up to all of it; what is too thin for a label is still in the legend.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.cluster.report.curves import png, pyplot
from actors.cluster.report.machine import MachineTime
from actors.cluster.report.seats import BUSY, SeatTime

LABEL_SHARE = 0.04
BUSY_COLOURS = ("#1f6f3d", "#2f8f4f", "#43a764", "#64bd80", "#8dd1a2", "#b7e3c4")
IDLE_COLOURS = ("#d98c3f", "#e3a867", "#ecc391", "#c46a5a", "#d89085", "#b7a0c4", "#cfcfcf", "#a8a8a8", "#e0d6c0")
CPU_COLOURS = ("#2d5f8b", "#4a80b0", "#75a3cb", "#a3c3df", "#cbdcec", "#dddddd")


def shares(seats: SeatTime) -> dict[str, float]:
    """All of seats x wall by stage and cause, as shares."""
    whole = seats.seats * seats.wall_s or 1.0
    return {name: seconds / whole for name, seconds in {**seats.stages_s, **seats.idle_s}.items()}


def ink(colour: str) -> str:
    """Black or white, whichever is told apart better from `colour`, as the WCAG measures contrast."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    light = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def bars_png(seats: SeatTime, machine: MachineTime | None) -> bytes:
    """The picture. Raises ConfigError where matplotlib is missing."""
    plt = pyplot()
    rows: list[tuple[str, Mapping[str, float]]] = [(f"{seats.seats} seats", shares(seats))]
    if machine is not None:
        used = {part: machine.share(part) for part in machine.cpu_s}
        rows.append((f"{machine.cores} cores", {**used, "idle": max(0.0, 1.0 - sum(used.values()))}))
    figure, axes = plt.subplots(len(rows), 1, figsize=(9, 2.0 * len(rows)), dpi=140, squeeze=False)
    for row, (name, pieces) in enumerate(rows):
        _bar(axes[row][0], name, pieces, CPU_COLOURS if row else None)
    return png(figure)


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
                left + share / 2, 0, f"{share:.0%}", ha="center", va="center", fontsize=8, color=ink(colour)
            )  # fmt: skip
        left += share
    axes.set(xlim=(0, max(1.0, left)), xticks=[])
    axes.legend(ncol=4, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.02), frameon=False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
