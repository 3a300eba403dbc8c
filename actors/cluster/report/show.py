"""What `report` prints and writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from actors.cluster import criterion, say
from actors.cluster.evaluation import Round
from actors.cluster.report.bars import bars
from actors.cluster.report.draw import curve
from actors.cluster.report.machine import MachineTime
from actors.cluster.report.read import RunFigures, last_picture, read_run
from actors.cluster.report.seats import SeatTime
from actors.replay.intervals import Rate


def show(path: Path, out: Path | None, *, as_json: bool) -> int:
    """Print the report of the run at `path` and draw it into `out`; 1 when no evaluation round was played."""
    figures = read_run(path)
    written: list[Path] = []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        curve(figures, out / "curve.png")
        written.append(out / "curve.png")
        if figures.seats is not None:
            bars(figures.seats, figures.machine, out / "seats.png")
            written.append(out / "seats.png")
        picture = last_picture(path)
        if picture is not None:
            (out / "desktop.jpg").write_bytes(picture[1])
            written.append(out / "desktop.jpg")
    if as_json:
        say.document({"figures": figures, "files": [str(file) for file in written]})
    else:
        _print(figures, written)
    return 0 if figures.rounds else 1


def _print(figures: RunFigures, written: list[Path]) -> None:
    say.line(f"{figures.run}\n")
    rows = [_round(found) for found in figures.rounds]
    say.table(("ROUND", "WEIGHTS", "DECODING", "SUCCESS", "95 %", "FEASIBLE", "NO FAULT", "TASKS", "FAMILIES"), rows)
    for compared in figures.gains:
        say.line(f"gain      {criterion.told(compared)}")
    phases = [f"{stay.phase} from step {stay.start} ({stay.cause})" for stay in figures.stays]
    say.line(f"\nphases    {', '.join(phases)}")
    say.line(f"groups    {_counts(figures.endings)}")
    say.line(f"episodes  {_counts(figures.episodes)}")
    found = figures.overlap
    say.line(
        f"overlap   desktops played training episodes during {found.share:.0%} of the learner's {found.learner_s:.1f} s"
        f" in RL steps, {found.episodes_at_once:.1f} at once; RL took {say.duration(found.rl_s)}"
    )
    if figures.seats is not None:
        _print_seats(figures.seats)
    if figures.machine is not None:
        _print_machine(figures.machine)
    for file in written:
        say.line(f"wrote     {file}")


def _print_seats(seats: SeatTime) -> None:
    whole = seats.seats * seats.wall_s or 1.0
    say.line(
        f"\nseats     busy {seats.busy:.1%} of {seats.seats} seats x {say.duration(seats.wall_s)}"
        " (reservation granted to verified, waits for the model included)"
    )
    phases = ", ".join(f"{phase} {share:.1%}" for phase, share in seats.busy_by_phase.items())
    say.line(f"          busy within each phase: {phases}")
    rows = [(f"busy: {stage}", f"{s:.1f}", f"{s / whole:.1%}") for stage, s in seats.stages_s.items()]
    rows += [(cause, f"{s:.1f}", f"{s / whole:.1%}") for cause, s in seats.idle_s.items()]
    say.table(("SEAT TIME", "SECONDS", "SHARE"), rows)


def _print_machine(machine: MachineTime) -> None:
    used = ", ".join(f"{part} {machine.share(part):.1%}" for part in machine.cpu_s)
    say.line(f"\nprocessor {used} of {machine.cores} cores x {say.duration(machine.span_s)}")
    up = f"{machine.desktops_up:.1f} up at once, {machine.spares:.1f} of them spares"
    say.line(f"desktops  {machine.desktops} used up, {up}")


def _round(found: Round) -> tuple[str, ...]:
    whole = found.summary.whole
    low, high = whole.all.interval
    families = ", ".join(f"{family} {_share(rates.all)}" for family, rates in found.summary.families.items())
    shares = (_share(whole.all), f"{low:.3f}-{high:.3f}", _share(whole.feasible), _share(whole.without_faults))
    name = found.name if found.closed else f"{found.name} (open)"
    return name, found.version, found.decoding, *shares, found.task_set[:12], families


def _share(rate: Rate) -> str:
    return f"{rate.value:.3f} ({rate.successes}/{rate.n})"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def show_all(paths: Sequence[Path], out: Path | None, *, as_json: bool) -> int:
    """Print the reports of the runs at `paths`, one after the other."""
    return max((show(path, out / path.name if out else None, as_json=as_json) for path in paths), default=1)
