"""What a person sees of a run while it runs.

Invariant: a terminal shows one live block, any other output at most one plain line in `every_s` seconds besides phase
changes. Showing never waits for the run and never changes it.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from actors.cluster import output
from actors.cluster.runs import criterion
from actors.replay.messages import Figures, Phase, PhaseRef

WINDOW_S = 60.0
_GAP = 2  # characters between two columns of the block


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one moment in the words of the display."""

    phase: str
    step: int
    steps: int | None  # of this segment; None when a condition ends it
    success: float | None  # train lane, mean over the last steps of the segment
    held_out: float | None  # last closed evaluation round, share of all tasks
    loss: float | None  # of the newest optimizer step
    entropy: float | None  # nats per token
    episodes_min: float
    seats_busy: int
    seats: int
    learner_busy: float | None  # share of the last minute inside optimizer steps; None where nothing learns
    staleness: float | None  # mean over trained trajectories
    demos: str
    left_s: float | None  # of this segment, at its mean pace since it was first seen
    elapsed_s: float


class Meter:
    """Turns figures into snapshots; keeps a minute of counts for the rates."""

    def __init__(self, seats: int, demos_wanted: int, round_name: str = "") -> None:
        self.seats = seats  # of now
        self._demos_wanted, self._round = demos_wanted, round_name  # the round that is all there is to play
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=600)
        self._segment: tuple[PhaseRef, float, int] | None = None  # when it was first seen, and what was done then

    def read(
        self, now: float, started: float, figures: Figures, busy_s: float | None = None, loss: float | None = None
    ) -> Snapshot:
        """The snapshot at monotonic second `now`; `busy_s` and `loss` are the learner's, None where nothing learns."""
        episodes = sum(figures.episodes.values())
        self._recent.append((now, episodes, busy_s or 0.0))
        while len(self._recent) > 2 and now - self._recent[0][0] > WINDOW_S:
            self._recent.popleft()
        before, episodes_before, busy_before = self._recent[0]
        span = max(now - before, 1e-6)
        tail = figures.train_success[-5:] if figures.phase.phase is Phase.RL else []
        trained = sum(figures.staleness.values())
        closed = criterion.complete(figures)
        shot = Snapshot(
            phase=figures.phase.phase.value,
            step=figures.phase_steps,
            steps=figures.phase_limit,
            success=sum(tail) / len(tail) if tail else None,
            held_out=closed[-1].successes / closed[-1].planned if closed else None,
            loss=loss,
            entropy=figures.entropy[-1] if figures.entropy else None,
            episodes_min=(episodes - episodes_before) / span * 60 if span > 1 else 0.0,
            seats_busy=figures.seats_busy,
            seats=self.seats,
            learner_busy=None if busy_s is None else min(1.0, max(0.0, busy_s - busy_before) / span) * (span > 1),
            staleness=sum(int(k) * n for k, n in figures.staleness.items()) / trained if trained else None,
            demos=f"{figures.demos}/{self._demos_wanted}" if figures.phase.phase is Phase.DEMO else "",
            left_s=self._left_s(now, figures),
            elapsed_s=now - started,
        )
        if not self._round:
            return shot
        played = next((one for one in figures.evals if one.round == self._round), None)
        if played is None:
            return msgspec.structs.replace(shot, phase="start", demos="")
        done = played.played + played.faults
        rate = played.successes / done if done else None
        return msgspec.structs.replace(
            shot, phase=self._round, demos="", step=done, steps=played.planned, held_out=rate
        )

    def _left_s(self, now: float, figures: Figures) -> float | None:
        done, whole = figures.phase_steps, figures.phase_limit
        if figures.phase.phase is Phase.DEMO:
            done, whole = figures.demos, self._demos_wanted
        if self._segment is None or self._segment[0] != figures.phase:
            self._segment = figures.phase, now, done
        _, since, before = self._segment
        if whole is None or done <= before:
            return None
        return (now - since) / (done - before) * max(0, whole - done)


def cells(shot: Snapshot) -> list[tuple[str, str]]:
    """Label and value, in order; what is not known yet is left out."""
    step = f"{shot.step}/{shot.steps}" if shot.steps is not None else str(shot.step)
    found = [("phase", shot.phase), ("demos", shot.demos) if shot.demos else ("step", step)]
    if shot.left_s is not None:
        found.append(("left", output.duration(shot.left_s)))
    optional = (
        ("success", shot.success), ("held-out", shot.held_out), ("loss", shot.loss), ("entropy", shot.entropy),
    )  # fmt: skip
    found += [(label, f"{value:.2f}") for label, value in optional if value is not None]
    found += [("episodes/min", f"{shot.episodes_min:.0f}"), ("seats busy", f"{shot.seats_busy}/{shot.seats}")]
    if shot.learner_busy is not None:
        found.append(("learner busy", f"{shot.learner_busy:.0%}"))
    if shot.staleness is not None:
        found.append(("staleness", f"{shot.staleness:.2f}"))
    return found


class Display(Protocol):
    """Shows snapshots between `__enter__` and `__exit__`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def note(self, text: str) -> None:
        """A line that stays."""

    def show(self, shot: Snapshot) -> None:
        """The newest snapshot."""


class PlainLines:
    """For pipes, files and CI."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s = every_s
        self._last: tuple[float, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def note(self, text: str) -> None:
        """A line that stays."""
        output.news(text)

    def show(self, shot: Snapshot) -> None:
        """A line, unless one was shown less than `every_s` ago in the same phase."""
        if self._last and shot.elapsed_s - self._last[0] < self._every_s and shot.phase == self._last[1]:
            return
        self._last = (shot.elapsed_s, shot.phase)
        output.news(
            f"{output.duration(shot.elapsed_s):>7}  " + "  ".join(f"{label} {value}" for label, value in cells(shot))
        )


class LiveBlock:
    """For a terminal. One that is gone (EIO, after a SIGHUP) ends the telling and not the work."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):
            self._live.stop()

    def note(self, text: str) -> None:
        """A line above the block."""
        from rich.text import Text

        with suppress(OSError):
            self._live.console.print(Text(output.clean(text, lines=True)))

    def show(self, shot: Snapshot) -> None:
        """Redraw the block; a phase that ends leaves a line."""
        if self._phase and shot.phase != self._phase:
            self.note(f"{output.duration(shot.elapsed_s)}  {self._phase} -> {shot.phase}")
        self._phase = shot.phase
        with suppress(OSError):
            self._live.update(self._block(shot), refresh=True)

    def _block(self, shot: Snapshot) -> Any:
        from rich.columns import Columns
        from rich.panel import Panel

        parts = [f"[dim]{label}[/dim]\n[bold]{value}[/bold]" for label, value in cells(shot)]
        title = f"{self._title}  {output.duration(shot.elapsed_s)}"
        return Panel(Columns(parts, padding=(0, _GAP)), title=title, title_align="left", expand=False)


def display(title: str) -> Display:
    """The display that suits standard output."""
    return LiveBlock(title) if sys.stdout.isatty() else PlainLines()
