"""The tables of a report, for the terminal and for the page, and the page itself.

Invariant: the page needs nothing but itself: no script, no address, every picture inside. Every word of the guest and
of the model is text on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from actors.cluster import output, tables
from actors.cluster.output import plain, plainly
from actors.cluster.report import pooled
from actors.cluster.report.drawing import CURVE, Picture
from actors.cluster.report.episodes import BeforeAndAfter, EpisodeView
from actors.cluster.report.pooled import Difference, Group, PooledGain, PooledRound
from actors.cluster.report.run_data import RunFigures, Switch
from actors.cluster.runs.evaluation_rounds import SCORES, EvaluationRound, instances, spread
from actors.cluster.tables import TableCell, TextTable
from actors.replay.database import queries
from actors.replay.statistics import Gain, Rate
from runtime.messaging.message import Version

SECTIONS = {
    "runs": "Runs", "success": "Success", "phases": "Phases", "learning": "Learning", "groups": "Groups",
    "time": "Time", "episodes": "Episodes", "reading": "How to read this",
}  # fmt: skip
SUCCESS, GROUPS = (CURVE,), ("staleness", "groups")
STEP_PARTS = ("wait_s", "read_s", "pack_s", "reference_s", "forward_s", "backward_s", "rehearsal_s", "optimizer_s")


def page(
    groups: Sequence[Group],
    pictures: Sequence[Picture],
    episodes: Mapping[str, list[EpisodeView]],
    learned: Mapping[str, list[BeforeAndAfter]],
) -> str:
    """The page of `groups` with their `pictures`; by a run's name its `episodes`, and what it has `learned`."""
    runs = [run for group in groups for run in group.runs]
    gains = [(group, pooled.pooled_gains(group.runs)) for group in groups]
    return tables.render(
        "report.html",
        title=f"ComputerRL: {runs[0].name}" if len(runs) == 1 else f"ComputerRL: {len(runs)} runs",
        sections=SECTIONS,
        runs=runs,
        steps=max((len(run.steps) for run in runs), default=0),
        pictures={
            "success": [picture for picture in pictures if picture.name in SUCCESS],
            "groups": [picture for picture in pictures if picture.name in GROUPS],
            "learning": [picture for picture in pictures if picture.name not in (*SUCCESS, *GROUPS)],
        },
        overview=overview(groups),
        gains=gains_of(gains),
        differences=differences_of(pooled.differences(groups)),
        pooled=[rounds_together(group, pooled.pooled_rounds(group.runs)) for group in groups if len(group.runs) > 1],
        rounds={run.name: [rounds_of(run.rounds), scores_of(run), families_of(run.rounds)] for run in runs},
        phases={run.name: [table for table in (_switches(run.switches), trials_of(run)) if table.rows] for run in runs},
        endings={run.name: counted(plainly(run.endings)) or "no group yet" for run in runs},
        times={run.name: times_of(run) for run in runs},
        episodes=episodes,
        learned=learned,
    )


def overview(groups: Sequence[Group]) -> TextTable:
    """Every run, what it is and what became of it."""
    head = ("Run", "Group", "Seed", "File", "Started", "State", "Steps", "Episodes", "Observation")
    rows = [
        (run.name, group.label, "" if run.seed is None else run.seed, run.file, run.started, _state(run),
         counted(plainly(Counter(step.phase for step in run.steps))) or "none yet", counted(run.episodes) or "none yet",
         queries.versions_text(run.observations))
        for group in groups for run in group.runs
    ]  # fmt: skip
    return TextTable(head, rows, sentences={"State"})


def _state(run: RunFigures) -> TableCell:
    kind = "good" if run.state == "ok" else "bad" if run.state in ("failed", "crashed", "killed") else ""
    return TableCell(f"{run.state} - {run.reason}" if run.reason else run.state, kind=kind)


def rounds_of(rounds: Sequence[EvaluationRound]) -> TextTable:
    """Every round that was opened, one that goes on included."""
    versions = [Version.parse(played.version) for played in rounds]
    # Steps alone where all are of one lineage: `0.1118` looks like less than `0.900`.
    lineages = len({version.lineage for version in versions}) > 1
    head = ("Round", "Lineage.step" if lineages else "Step", "Decoding", "Success, 95 %", "Feasible", "No fault",
            "Trained families", "Never trained", "Pass", "Remembered", "Task set")  # fmt: skip
    rows = []
    for played, version in zip(rounds, versions, strict=True):
        whole, summary = played.summary.whole, played.summary
        rates = (whole.feasible, whole.without_faults, summary.trained.all, summary.untrained.all)
        passed = ", ".join(f"@{k} {value:.3f}" for k, value in summary.pass_at.items())
        name = played.name if played.closed else f"{played.name} (unfinished)"
        made = played.version if lineages else version.step
        more = passed, f"{played.remembered:.0%}", played.task_set[:12]
        rows.append((name, made, played.decoding, rate(whole.all), *map(share, rates), *more))
    return TextTable(head, rows)


def share(found: Rate) -> str:
    """`0.750 (90/120)`."""
    return f"{found.value:.3f} ({found.successes}/{found.n})" if found.n else "-"


def rate(found: Rate) -> str:
    """`0.750 (90/120), 0.666-0.819`."""
    low, high = found.interval
    return f"{share(found)}, {low:.3f}-{high:.3f}" if found.n else "-"


def gain(found: Gain) -> TableCell:
    """`+0.142 (0.061 to 0.223)`, good or bad where the interval lies on one side of 0."""
    kind = "good" if found.low > 0 else "bad" if found.high < 0 else ""
    return TableCell(f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})", kind=kind)


def scores_of(run: RunFigures) -> TextTable:
    """The scores of the last round, where they differ."""
    rows = run.rounds[-1].score_rows if run.rounds else []
    return TextTable(SCORES, rows, f"Scores of {run.rounds[-1].name}" if rows else "")


def families_of(rounds: Sequence[EvaluationRound]) -> TextTable:
    """What was solved of every family in each of `rounds`; a name has its decoding where that is not all rounds'."""
    one = len({played.decoding for played in rounds}) == 1
    names = [played.name if one else f"{played.name} ({played.decoding})" for played in rounds]
    by_round = [played.summary.families for played in rounds]
    rows = [
        (name, *(share(rates[name].all) if name in rates else "-" for rates in by_round))
        for name in sorted({name for rates in by_round for name in rates})
    ]
    return TextTable(("Family", *names), rows, "By family, all episodes")


def rounds_together(group: Group, rounds: Sequence[PooledRound]) -> TextTable:
    """The rounds that all runs of a group have played."""
    rows = [
        (one.name, one.step, one.decoding, len(one.each), f"{sum(one.each) / len(one.each):.3f}",
         f"{min(one.each):.3f}-{max(one.each):.3f}", rate(one.together))
        for one in rounds
    ]  # fmt: skip
    head = ("Round", "Step", "Decoding", "Runs", "Mean", "Band", "Together, 95 %")
    return TextTable(head, rows, f"{group.label}: rounds of {len(group.runs)} runs")


def gains_of(groups: Sequence[tuple[Group, Sequence[PooledGain]]]) -> TextTable:
    """The gain of every group."""
    head = ("Group", "Decoding", "Rounds", "First", "Last", "Paired gain (95 %)", "Instances",
            "Standard errors in points", "Each")  # fmt: skip
    rows = [
        (group.label, one.decoding, f"{one.before} to {one.after}", rate(one.together.before), rate(one.together.after),
         gain(one.together), instances(one.together), spread(one.together),
         f"{len(one.each)} runs: {', '.join(f'{v:+.3f}' for v in one.each)}" * (len(one.each) > 1))
        for group, gains in groups for one in gains if one.together.instances
    ]  # fmt: skip
    return TextTable(
        head, rows, "Gain from the first to the last round that all of a group's runs played, over the same instances"
    )


def differences_of(found: Sequence[Difference]) -> TextTable:
    """How much groups differ."""
    head = ("Decoding", "Round", "Groups", "Seeds", "First one's", "Second one's", "Difference (95 %)", "Instances",
            "Standard errors in points")  # fmt: skip
    rows = [
        (one.decoding, one.round, f"{one.more} - {one.less}", ", ".join(map(str, one.seeds)), rate(one.together.after),
         rate(one.together.before), gain(one.together).text, instances(one.together),
         spread(one.together) or "one seed: how seeds vary is not in it")
        for one in found
    ]  # fmt: skip
    caption = "Differences between groups in the last round that all of them played, paired by instance"
    return TextTable(head, rows, caption)


def trials_of(run: RunFigures) -> TextTable:
    """Each decision of a supervisor that tries pulses, with what it was made by."""
    return _switches(run.trials, "Pulses that the supervisor tried")


def _switches(switches: Iterable[Switch], caption: str = "") -> TextTable:
    rows = []
    for one in switches:
        evidence = ", ".join(f"{name} {value:.4g}" for name, value in one.evidence.items())
        rows.append((plain(one.phase), one.start, plain(one.cause), evidence or "-"))
    return TextTable(("Phase", "From step", "Cause", "Evidence"), rows, caption, sentences={"Evidence"})


def times_of(run: RunFigures) -> list[TextTable]:
    """Where the time of seats, processor and optimizer steps went, as far as it was measured."""
    return [table for table in (_seats(run), _machine(run), _steps(run)) if table.rows]


def _seats(run: RunFigures) -> TextTable:
    seats = run.seats
    if seats is None:
        return TextTable((), [])
    whole = seats.seats * seats.wall_s or 1.0
    rows = [(f"busy: {stage}", f"{s:.1f}", f"{s / whole:.1%}") for stage, s in seats.stages_s.items()]
    rows += [(cause, f"{s:.1f}", f"{s / whole:.1%}") for cause, s in seats.idle_s.items()]
    phases = ", ".join(f"{plain(phase)} {part:.1%}" for phase, part in seats.busy_by_phase.items())
    caption = (
        f"Seats were busy {seats.busy:.1%} of {seats.seats} seats x {output.duration(seats.wall_s)} (reservation"
        f" granted to verified, waits for the model included); within each phase: {phases}"
    )
    return TextTable(("Seat time", "Seconds", "Share"), rows, caption)


def _machine(run: RunFigures) -> TextTable:
    machine = run.machine
    if machine is None:
        return TextTable((), [])
    rows = [(part, f"{seconds:.1f}", f"{machine.share(part):.1%}") for part, seconds in machine.cpu_s.items()]
    rows += [(f"{part}, on other machines", f"{seconds:.1f}", "") for part, seconds in machine.elsewhere_s.items()]
    phases = ", ".join(f"{plain(phase)} {seconds:,.0f}" for phase, seconds in machine.by_phase_s.items())
    caption = (
        f"{machine.cores} cores x {output.duration(machine.span_s)}; {machine.desktops} desktops were used up;"
        f" {machine.own_s:,.0f} CPU-seconds of this run{f': {phases}' if phases else ''}"
    )
    return TextTable(("Processor", "CPU seconds", "Share"), rows, caption)


def _steps(run: RunFigures) -> TextTable:
    rows = []
    for phase in dict.fromkeys(step.phase for step in run.steps):
        steps = [step for step in run.steps if step.phase == phase]
        parts = [[step.figures[part] for step in steps if part in step.figures] for part in STEP_PARTS]
        if any(parts):
            means = (f"{sum(values) / len(values):.3f}" if values else "-" for values in parts)
            rows.append((plain(phase), len(steps), *means))
    head = ("Phase", "Steps", *(part.removesuffix("_s") for part in STEP_PARTS))
    return TextTable(head, rows, "Seconds of a step by part, mean; with `learner.rl.epochs` of all its passes")


def counted(counts: Mapping[str, int]) -> str:
    """`RL 40, cloning 600`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
