"""What a person sees of a check while it runs.

Invariant: a terminal shows one live table, any other output at most one line in `EVERY_S` seconds. With JSON, standard
output holds nothing but the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from actors.cluster import output
from actors.cluster.checks.tasks.tally import Row

EVERY_S = 5.0
NARROW = (0, 2, 3, 4, 6, 8)  # columns of the live table: a terminal may be 80 wide
HEAD = ("FAMILY", "SPLIT", "ROUTE", "PLAYED", "SOLVED", "95 %", "FAULTS", "STEPS", "WALL S", "CPU S")


def cells(row: Row) -> tuple[str, ...]:
    """One row of the table."""
    low, high = row.interval
    return (
        row.family if row.trained else f"{row.family} (never trained)",
        row.split,
        row.route,
        f"{row.played}/{row.wanted}",
        f"{row.solved}" if not row.played or row.good else f"{row.solved}!",
        f"{low:.3f}-{high:.3f}",
        str(row.faults),
        *("-" if value is None else f"{value:.1f}" for value in (row.steps, row.wall_s)),
        "-" if row.cpu_s is None else f"{row.cpu_s:.2f}",
    )


class Progress:
    """Shows rows as they fill. Quiet on standard output when `to` is standard error."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._begun = time.monotonic()
        self._shown = self._begun
        self._live: Any = None

    def __enter__(self) -> Self:
        if self._to.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._to), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def due(self) -> bool:
        """Whether enough time has passed to show something."""
        return time.monotonic() - self._shown >= (0.5 if self._live is not None else EVERY_S)

    def line(self, text: str) -> None:
        """One plain line, if one is due."""
        if not self.due:
            return
        self._shown = time.monotonic()
        stamped = f"{output.duration(self._shown - self._begun):>7}  {text}"
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(output.clean(stamped)), refresh=True)
        else:
            output.line(stamped, to=self._to)

    def rows(self, rows: Sequence[Row], trouble: str) -> None:
        """All rows, if they are due."""
        if self._live is None:
            played, wanted = sum(row.played for row in rows), sum(row.wanted for row in rows)
            solved, faults = sum(row.solved for row in rows), sum(row.faults for row in rows)
            note = f"  {trouble}" if trouble else ""
            self.line(f"played {played}/{wanted}  solved {solved}  faults {faults}{note}")
        elif self.due:
            self._shown = time.monotonic()
            self._live.update(self._table(rows, trouble), refresh=True)

    def _table(self, rows: Sequence[Row], trouble: str) -> Any:
        from rich.table import Table
        from rich.text import Text

        caption = (
            f"{output.duration(self._shown - self._begun)}  {output.clean(trouble)}  (Ctrl-C: finish what is under way)"
        )
        table = Table(box=None, caption=Text(caption), caption_justify="left")
        for column in NARROW:
            table.add_column(HEAD[column], no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cells(row)[column]) for column in NARROW))
        return table


def stream(*, as_json: bool) -> TextIO:
    """Where progress goes: standard output is the document's when there is to be one."""
    return sys.stderr if as_json else sys.stdout
