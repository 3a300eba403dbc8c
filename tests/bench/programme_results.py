"""What the runs of a programme say: what is kept of a run, and the tables of arms and of probes.

Arms are compared with the base over seeds and instances that both have, by the mean of their stage's last rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, NamedTuple

import msgspec

from actors.cluster.report import run_data
from actors.cluster.report.pooled import closed
from actors.cluster.report.run_data import SUFFIX, RunFigures
from actors.replay.messages import Phase
from actors.replay.statistics import Gain, RoundEpisode, VarianceParts, _inside, gain_of_pairs, quantile95
from runtime.errors import ConfigError

Count = Annotated[int, msgspec.Meta(ge=0)]
Steps = Annotated[int, msgspec.Meta(ge=1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a programme's file."""


class Arm(_Part, frozen=True, kw_only=True):
    """What differs from the other arms."""

    note: str = ""
    set: list[str] = []
    trunk: str = "cloned"  # that it goes on from
    seed_shift: int = 0  # added to the seed that it draws with


class ArmStage(_Part, frozen=True, kw_only=True):
    """Arms and seeds that are compared with each other."""

    name: str
    seeds: list[Count]
    arms: list[str]
    steps: Steps  # of RL
    every: Steps  # RL steps between two rounds; before each the learning rate is the same
    rounds: Steps  # last ones, whose mean is what an arm is judged by
    once: list[str] = []  # arms of the first seed alone


class Programme(_Part, frozen=True, kw_only=True):
    """The whole file."""

    file: str
    most_cpu_hours: Annotated[float, msgspec.Meta(gt=0)]
    base: str  # the arm that the others are compared with
    set: list[str] = []
    trunks: dict[str, list[str]] = {}
    arms: dict[str, Arm]
    stages: list[ArmStage]


class ProgrammeRun(NamedTuple):
    """One run: a trunk's, or a stage's arm with a seed."""

    stage: str  # "trunk" of a trunk
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """Of its run and of its file of figures."""
        return f"{self.stage}-{self.arm}-{self.seed}"


TRUNK = "trunk"


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
PROBES = {"probe_entropy": "Probe entropy, nats per token", "probe_answer_entropy": "Entropy of eight answers, nats"}
KEPT = (*SHOWN, *PROBES, "success", "grad_norm", "advantage_logprob_cov", "sampled_entropy_nats", "loss")
LAST_PROBES = 5  # of a run, which are shown
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


def p_value(value: float, parts: VarianceParts) -> float:
    """Two-sided chance of a mean as far from 0 as `value`, if it is 0 but for what `parts` says varies."""
    if not parts.half:
        return float(value == 0.0)
    t = abs(value) * quantile95(parts.freedom) / parts.half
    return max(0.0, 1.0 - _inside(math.atan(t / math.sqrt(parts.freedom)), parts.freedom))


def rows(plan: Programme, found: Mapping[str, RunFigures]) -> list[ArmRow]:
    """Trunks and arms with a result, by stage in the order of play."""
    seeds = sorted({seed for stage in plan.stages for seed in stage.seeds})
    trunks = ArmStage(name=TRUNK, seeds=seeds, arms=[], steps=1, every=1, rounds=2)
    return [row for stage in (trunks, *plan.stages) for row in _corrected(plan, _rows_of(plan, stage, found))]


def _rows_of(plan: Programme, stage: ArmStage, found: Mapping[str, RunFigures]) -> list[ArmRow]:
    made, bases = [], _ends(stage, plan.base, found)
    for arm in plan.trunks if stage.name == TRUNK else plan.arms:
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


def probe_tables(plan: Programme, found: Mapping[str, RunFigures]) -> str:
    """For each stage whose runs looked at their probe, what it said after so many RL steps, as means over seeds.

    An arm's difference from the base is by seed at the same step, with Student's interval over seeds. "" without any.
    """
    lines: list[str] = []
    for stage, (name, title) in ((stage, one) for stage in plan.stages for one in PROBES.items()):
        seen = {arm: _probes(stage, arm, name, found) for arm in plan.arms}
        if not (after := sorted({step for seeds in seen.values() for of in seeds.values() for step in of})):
            continue
        shown = after[-LAST_PROBES:]
        lines += ["", f"| {title}: {stage.name} | seeds | {' | '.join(f'step {step}' for step in shown)} |"]
        lines += ["|---" * (len(shown) + 2) + "|"]
        for arm, seeds in seen.items():
            base = {} if arm == plan.base else seen[plan.base]
            cells = [_probe_cell(seeds, base, step) for step in shown]
            lines += [f"| {arm} | {' '.join(map(str, seeds))} | {' | '.join(cells)} |"] * bool(seeds)
    return "\n".join([*lines, *([""] if lines else [])])


def _probes(stage: ArmStage, arm: str, name: str, found: Mapping[str, RunFigures]) -> dict[int, dict[int, float]]:
    """seed -> RL steps before the look -> what it said."""
    runs = {seed: found.get(ProgrammeRun(stage.name, arm, seed).name) for seed in stage.seeds}
    seen = {
        seed: {n: step.figures[name] for n, step in enumerate(run.steps) if name in step.figures}
        for seed, run in runs.items()
        if run is not None
    }
    return {seed: looks for seed, looks in seen.items() if looks}


def _probe_cell(seeds: Mapping[int, Mapping[int, float]], base: Mapping[int, Mapping[int, float]], step: int) -> str:
    if not (values := [looks[step] for looks in seeds.values() if step in looks]):
        return ""
    less = [
        looks[step] - base[seed][step] for seed, looks in seeds.items() if step in looks and step in base.get(seed, {})
    ]
    cell = f"{fmean(values):.3f}"
    if len(less) < 2:
        return cell
    half = quantile95(len(less) - 1) * stdev(less) / math.sqrt(len(less))
    return f"{cell}, {fmean(less):+.3f} ({fmean(less) - half:+.3f} to {fmean(less) + half:+.3f})"


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
