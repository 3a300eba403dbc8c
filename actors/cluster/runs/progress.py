"""What a person sees of a run while it runs.

Invariant: a terminal shows one live block, any other output one plain line in `every_s` seconds. Both show what the
live page shows. Showing never changes the run.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Self

from actors.cluster import output
from actors.cluster.runs.run_reader import RunNow
from actors.replay.messages import Phase

_GAP = 2  # characters between two columns of the block
_MEAN_OF = 5  # steps, whose success is shown together


def cells(now: RunNow, seats: int) -> list[tuple[str, str]]:
    """Label and value, in order, of a run with `seats`; what is not known yet is left out."""
    going = now.rounds[-1] if now.rounds and not now.phase else None  # the one round of a run that only plays it
    phase, done, whole = (going.name, going.played, going.planned) if going else (now.phase, now.done, now.whole)
    count = f"{done}/{whole}" if whole is not None else str(done)
    shown = [("phase", phase or "start"), ("demos" if phase == Phase.DEMO else "step", count)]
    if now.left_s is not None:
        shown.append(("left", output.duration(now.left_s)))
    won = [step.success for step in now.curve if step.success is not None][-_MEAN_OF:] if phase == Phase.RL else []
    rounds = [one for one in now.rounds if one.played and (one.closed or one is going)]
    newest, trained = now.curve[-1].figures if now.curve else {}, sum(now.staleness.values())
    figures = {
        "success": sum(won) / len(won) if won else None,
        "held-out": rounds[-1].successes / (rounds[-1].planned if rounds[-1].closed else done) if rounds else None,
        "loss": newest.get("loss"),
        "entropy": newest.get("entropy"),
    }
    shown += [(label, f"{value:.2f}") for label, value in figures.items() if value is not None]
    busy = sum(bool(seat.trace) for seat in now.seats)
    shown += [("episodes/min", f"{now.episodes_per_min or 0:.0f}"), ("seats busy", f"{busy}/{seats}")]
    if trained:
        shown.append(("staleness", f"{sum(int(age) * n for age, n in now.staleness.items()) / trained:.2f}"))
    return shown


class PlainLines:
    """Shows a run every `every_s` seconds, for pipes, files and CI."""

    every_s = 5.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left on the screen."""

    def note(self, text: str) -> None:
        output.news(text)

    def show(self, now: RunNow, seats: int, elapsed_s: float) -> None:
        """A line on what the run does now, `elapsed_s` seconds after its start."""
        pairs = "  ".join(f"{label} {value}" for label, value in cells(now, seats))
        output.news(f"{output.duration(elapsed_s):>7}  {pairs}")


class LiveBlock(PlainLines):
    """For a terminal. One that is gone (EIO, after a SIGHUP) ends the telling and not the work."""

    every_s = 1.0

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._live = Live(console=Console(), auto_refresh=False, transient=False)
        self._phase = ""

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._live.stop()

    def note(self, text: str) -> None:
        from rich.text import Text

        with suppress(OSError):
            self._live.console.print(Text(output.clean(text, lines=True)))

    def show(self, now: RunNow, seats: int, elapsed_s: float) -> None:
        """Redraw the block; a phase that ends leaves a line."""
        from rich.columns import Columns
        from rich.panel import Panel

        at = output.duration(elapsed_s)
        if self._phase and now.phase != self._phase:
            self.note(f"{at}  {self._phase} -> {now.phase}")
        self._phase = now.phase
        parts = [f"[dim]{label}[/dim]\n[bold]{value}[/bold]" for label, value in cells(now, seats)]
        columns = Columns(parts, padding=(0, _GAP))
        with suppress(OSError):
            block = Panel(columns, title=f"{self._title}  {at}", title_align="left", expand=False)
            self._live.update(block, refresh=True)


def display(title: str) -> PlainLines:
    """The display that suits standard output."""
    return LiveBlock(title) if sys.stdout.isatty() else PlainLines()
