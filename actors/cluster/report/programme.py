"""What a programme's runs come to: a small file of figures each, and one table with intervals.

The table is a function of the files of figures. Arms are compared with the base over seeds and instances
that both have, by the mean of their stage's last rounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from actors.cluster import output
from actors.cluster.report import run_data
from actors.cluster.report.pooled import closed
from actors.cluster.report.run_data import SUFFIX, RunFigures
from actors.cluster.runs import programme, run_folder
from actors.cluster.runs.programme import ArmStage, Programme, ProgrammeRun
from actors.replay.messages import Phase
from actors.replay.statistics import Gain, RoundEpisode, gain_of_pairs, p_value
from runtime.errors import ConfigError

MOST_BYTES = 40 << 10  # of a run's figures
LAST_STEPS = 12  # of RL, over which an arm's other figures are means
# Of an RL step, what is kept and shown; the rest can be had by playing the run again.
SHOWN = {
    "pass_at_1": "pass@1",
    "pass_at_8": "pass@8",
    "equal_groups": "equal groups",
    "distinct_trajectories": "distinct",
    "entropy": "entropy",
    "effective_samples": "ESS",
}
KEPT = (*SHOWN, "success", "grad_norm", "advantage_logprob_cov", "sampled_entropy_nats", "loss")
AFTER_PULSE = "after_pulse"  # what a round's name begins with
MARK = "\n---\n"  # of the page: what follows is written again


class ArmRow(NamedTuple):
    """An arm in a stage."""

    stage: str
    arm: str
    seeds: list[int]
    success: float
    gain: Gain | None  # over the base; None of the base, and where no seed is in both
    p: float | None  # that chance alone differs so much; None without two seeds
    holm: float | None  # the same corrected for the stage's comparisons; None of a repeat of the base
    cpu_s: float  # of its runs, their trunks left out
    figures: dict[str, float]


def slim(run: RunFigures) -> bytes:
    """The run's file of figures without what the table does not need. Raises ConfigError where it is too large."""
    steps = [
        msgspec.structs.replace(
            step, figures={name: float(f"{n:.4g}") for name, n in step.figures.items() if name in KEPT}, staleness={}
        )
        for step in run.steps
        if step.phase == Phase.RL
    ]
    rounds = [msgspec.structs.replace(one, episodes=list(map(_bare, one.episodes))) for one in closed(run)]
    packed = run_data.packed(msgspec.structs.replace(run, steps=steps, rounds=rounds, gains=[]))
    if len(packed) > MOST_BYTES:
        raise ConfigError(f"{run.name}: its figures take {len(packed)} bytes, and {MOST_BYTES} are kept at most")
    return packed


def _bare(episode: RoundEpisode) -> RoundEpisode:
    return msgspec.structs.replace(episode, reason="", token=0, score=None)


def results(folder: Path) -> dict[str, RunFigures]:
    """The figures that lie in `folder`, by the name of their run."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    return {path.name.removesuffix(SUFFIX): run_data.read_file(path) for path in files}


def judged(run: RunFigures, rounds: int) -> list[RoundEpisode]:
    """The episodes of a run's last rounds, by which it is judged: none that only an arm with pulses plays."""
    shared = [one for one in closed(run) if not one.name.startswith(AFTER_PULSE)]
    return [episode for one in shared[-rounds:] for episode in one.judged]


def _ends(stage: ArmStage, arm: str, found: Mapping[str, RunFigures]) -> dict[int, list[RoundEpisode]]:
    names = {seed: ProgrammeRun(stage.name, arm, seed).name for seed in stage.seeds}
    return {seed: judged(found[name], stage.rounds) for seed, name in names.items() if name in found}


def rows(plan: Programme, found: Mapping[str, RunFigures]) -> list[ArmRow]:
    """Trunks and arms with a result, by stage in the order of play."""
    seeds = sorted({seed for stage in plan.stages for seed in stage.seeds})
    trunks = ArmStage(name=programme.TRUNK, seeds=seeds, arms=[], steps=1, every=1, rounds=2)
    return [row for stage in (trunks, *plan.stages) for row in _corrected(plan, _rows_of(plan, stage, found))]


def _rows_of(plan: Programme, stage: ArmStage, found: Mapping[str, RunFigures]) -> list[ArmRow]:
    made, bases = [], _ends(stage, plan.base, found)
    for arm in plan.trunks if stage.name == programme.TRUNK else plan.arms:
        if not (ends := _ends(stage, arm, found)):
            continue
        runs = [found[ProgrammeRun(stage.name, arm, seed).name] for seed in ends]
        pairs = [(bases[seed], episodes) for seed, episodes in ends.items() if seed in bases]
        gain = gain_of_pairs(pairs) if arm != plan.base and pairs else None
        spread = gain.spread if gain is not None else None
        made.append(
            ArmRow(
                stage=stage.name,
                arm=arm,
                seeds=[*ends],
                success=fmean(float(episode.success) for episodes in ends.values() for episode in episodes),
                gain=gain,
                p=None if gain is None or spread is None else p_value(gain.value, spread),
                holm=None,
                cpu_s=sum(run.machine.own_s for run in runs if run.machine is not None),
                figures=_means(runs),
            )
        )
    return made


def _means(runs: Iterable[RunFigures]) -> dict[str, float]:
    last = [step.figures for run in runs for step in run.steps[-LAST_STEPS:]]
    values = {name: [step[name] for step in last if name in step] for name in SHOWN}
    return {name: fmean(of) for name, of in values.items() if of}


def _corrected(plan: Programme, made: list[ArmRow]) -> list[ArmRow]:
    """With Holm's correction (S. Holm, Scandinavian Journal of Statistics 6, 1979) over the arms that are no repeat."""
    tested = sorted((row.p, row.arm) for row in made if row.p is not None and not _repeats(plan, row.arm))
    most, corrected = 0.0, dict[str, float]()
    for number, (p, arm) in enumerate(tested):
        most = corrected[arm] = max(most, min(1.0, (len(tested) - number) * p))
    return [row._replace(holm=corrected.get(row.arm)) for row in made]


def _repeats(plan: Programme, arm: str) -> bool:
    """Whether an arm is the base drawn with another seed."""
    return plan.arms[arm].seed_shift != 0 and not plan.arms[arm].set


def best(plan: Programme, stage: ArmStage, found: Mapping[str, RunFigures]) -> list[str]:
    """The arms of the stage before `stage` that it takes over: the largest gains over the base."""
    before = plan.stages[plan.stages.index(stage) - 1]
    gains = [
        (row.gain.value, row.arm)
        for row in _rows_of(plan, before, found)
        if row.gain is not None and row.arm not in stage.never and not _repeats(plan, row.arm)
    ]
    return [arm for _, arm in sorted(gains, reverse=True)[: stage.best]]


def table(plan: Programme, found: Mapping[str, RunFigures]) -> str:
    """The table in Markdown, and what was spent."""
    head = ["stage", "arm", "seeds", "success", "less the base (95 %)", "p", "Holm", "CPU-s a run", *SHOWN.values()]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows(plan, found):
        points = [] if row.gain is None else [f"{100 * n:+.1f}" for n in (row.gain.value, row.gain.low, row.gain.high)]
        gain = "{} ({} to {})".format(*points) if points else ""
        p, holm = ("" if value is None else f"{value:.3f}" for value in (row.p, row.holm))
        seeds = " ".join(map(str, row.seeds))
        figures = [f"{row.figures[name]:.3f}" if name in row.figures else "" for name in SHOWN]
        cells = [row.stage, row.arm, seeds, f"{row.success:.3f}", gain, p, holm, f"{row.cpu_s / len(row.seeds):,.0f}"]
        lines.append(f"| {' | '.join([*cells, *figures])} |")
    spent = f"{spent_hours(found):.1f} of at most {plan.most_cpu_hours:g} CPU-hours"
    return "\n".join([f"{len(found)} runs have ended, in {spent}.", "", *lines, ""])


def spent_hours(found: Mapping[str, RunFigures]) -> float:
    """CPU-hours of all runs that have ended."""
    return sum(run.machine.own_s for run in found.values() if run.machine is not None) / 3600


def write_page(page: Path, content: str) -> None:
    """Write `content` below the mark of the page, a new one where there is none; what is above the mark stays.

    Raises ConfigError where the page has no mark, or can't be written.
    """
    try:
        text = page.read_text("utf-8") if page.exists() else f"# {page.stem}\n{MARK}"
        above, mark, _ = text.partition(MARK)
        if not mark:
            raise ConfigError(f"{page}: a line --- says where the table begins, and there is none")
        partial = page.with_suffix(".part")
        partial.write_text(f"{above}{MARK}\n{content}", "utf-8")
        partial.replace(page)
    except OSError as error:
        raise ConfigError(f"{page}: the table can't be written: {error.strerror}") from None


def carry_out(file: Path, runs: Path, hours: float) -> int:
    """Play what is missing of the programme in `file` for `hours`; 0 where nothing is left, 1 where the time is up.

    Figures go to `results/programme` in the folder of `file`, and the table into `results/programme.md`. Raises
    ConfigError while another process plays a run of `runs`.
    """
    plan, into = programme.load(file), file.parent / "results" / "programme"
    for run, _ in run_folder.all_runs(runs):  # what a programme that was killed began may play on
        run_folder.refuse_held(run)
    into.mkdir(parents=True, exist_ok=True)
    programme.in_background()
    until = time.monotonic() + 3600 * hours
    while time.monotonic() < until:
        found = results(into)
        # Before the first run, so that a page without its line is refused now; later for what a kill left untold.
        write_page(into.with_suffix(".md"), page(plan, found, runs))
        if spent_hours(found) >= plan.most_cpu_hours:
            output.news(f"{plan.most_cpu_hours:g} CPU-hours are spent: the programme has ended")
            return 0
        if (cell := next_cell(plan, found, runs)) is None:
            output.news("nothing is left to play")
            return 0
        if not _ended(runs / cell.name):
            output.news(f"programme: {cell.name}")
            before = _record(runs / cell.name)
            if not programme.play(programme.words(plan, cell, runs), until):
                return 1
            if _record(runs / cell.name) == before:
                raise ConfigError(f"{cell.name} was refused, as said above: mend that, and start the programme again")
        if _ended(runs / cell.name):
            _keep(into / f"{cell.name}{SUFFIX}", slim(run_data.read_run(runs / cell.name)))
            write_page(into.with_suffix(".md"), page(plan, results(into), runs))
    return 1


def next_cell(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> ProgrammeRun | None:
    """The first run without a result; of a stage, only once the stages before it have theirs."""
    for cell, why in _missing(plan, found, runs):
        if not why:
            return cell
        output.news(f"programme: {cell.name} is passed by: {why}")
    return None


def _missing(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> Iterator[tuple[ProgrammeRun, str]]:
    """The runs without a result in the order of play, each with why it is left out; "" where it is not."""
    for stage in plan.stages:
        chosen = best(plan, stage, found) if stage.best else []
        for cell in dict.fromkeys(programme.cells(plan, stage, chosen, runs)):
            if cell.name not in found:
                yield cell, programme.left_out(runs / cell.name)


def page(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> str:
    """The table, and below it the runs that are left out."""
    lines = [
        f"- {cell.name} is left out: {' '.join(why.split())[:200]}" for cell, why in _missing(plan, found, runs) if why
    ]
    return "\n".join([table(plan, found), *lines, *([""] if lines else [])])


def _ended(run: Path) -> bool:
    record = _record(run)
    return record is not None and record.has_ended


def _record(run: Path) -> run_folder.RunRecord | None:
    return run_folder.read_record(run) if run_folder.is_run(run) else None


def _keep(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(content)
    os.replace(partial, path)
