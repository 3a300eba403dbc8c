"""The page's section on time: seats, processor, and the seconds of an optimizer step.

Invariant: what a run did not measure is left out, never shown as nothing.
"""

from __future__ import annotations

from actors.cluster import output
from actors.cluster.report.gather import RunData
from actors.cluster.report.html import Markup, join, table, tag
from actors.cluster.report.machine import by_phase

PARTS = ("wait_s", "read_s", "pack_s", "reference_s", "forward_s", "backward_s", "rehearsal_s", "optimizer_s")


def time_of(run: RunData) -> Markup:
    """Where the run's time went."""
    parts = [tag("h3", run.name)]
    overlap = run.figures.overlap
    if overlap.learner_s:
        parts.append(
            tag(
                "p",
                f"Desktops played training episodes during {overlap.share:.0%} of the learner's"
                f" {overlap.learner_s:.1f} s in RL steps, {overlap.episodes_at_once:.1f} at once;"
                f" {output.duration(overlap.rl_s)} of RL and pulses.",
            )
        )
    parts += [part for part in (_seats(run), _machine(run), _steps(run)) if part]
    if len(parts) == 1:
        parts.append(tag("p", "Nothing was measured yet."))
    return join(parts)


def _seats(run: RunData) -> Markup | None:
    seats = run.figures.seats
    if seats is None:
        return None
    whole = seats.seats * seats.wall_s or 1.0
    rows = [(f"busy: {stage}", f"{s:.1f}", f"{s / whole:.1%}") for stage, s in seats.stages_s.items()]
    rows += [(cause, f"{s:.1f}", f"{s / whole:.1%}") for cause, s in seats.idle_s.items()]
    return table(
        ("Seat time", "Seconds", "Share"),
        rows,
        f"Seats were busy {seats.busy:.1%} of {seats.seats} seats x {output.duration(seats.wall_s)}",
    )


def _machine(run: RunData) -> Markup | None:
    machine = run.figures.machine
    if machine is None:
        return None
    rows = [(part, f"{seconds:.1f}", f"{machine.share(part):.1%}") for part, seconds in machine.cpu_s.items()]
    rows += [(f"{part}, on other machines", f"{seconds:.1f}", "") for part, seconds in machine.elsewhere_s.items()]
    return table(
        ("Processor", "CPU seconds", "Share"),
        rows,
        f"{machine.cores} cores x {output.duration(machine.span_s)}; {machine.desktops} desktops were used up, "
        f"{machine.desktops_up:.1f} were up at once, {machine.spares:.1f} of them spares; {by_phase(machine)}",
    )


def _steps(run: RunData) -> Markup | None:
    rows = []
    for phase in dict.fromkeys(step.phase for step in run.steps):
        steps = [step for step in run.steps if step.phase == phase]
        means = []
        for part in PARTS:
            told = [step.figures[part] for step in steps if part in step.figures]
            means.append(f"{sum(told) / len(told):.3f}" if told else "-")
        if set(means) != {"-"}:
            rows.append((phase, len(steps), *means))
    if not rows:
        return None
    head = ("Phase", "Steps", *(part.removesuffix("_s") for part in PARTS))
    return table(head, rows, "Seconds of a step by part, mean; with `learner.rl.epochs` of all its passes")
