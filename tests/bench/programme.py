"""Plays a programme: arms over seeds, by stages, one run at a time at the lowest priority until the time is up.

`make programme HOURS=2.5` plays what is missing of deploy/programme.yaml. What is played next is a function of the
file, of the results that are there and of the runs' records. Figures of a run that has ended go to `results/NAME`
next to a file NAME.yaml, and one table with intervals into `results/NAME.md`. Results are never written over. Arms are
compared with the base over seeds and instances that both have, by the mean of their stage's last rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, NamedTuple

import msgspec
import psutil

from actors.cluster import output
from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.suggest import hint
from actors.cluster.report import run_data
from actors.cluster.report.pooled import closed
from actors.cluster.report.run_data import SUFFIX, RunFigures
from actors.cluster.runs import run_folder
from actors.replay.messages import Phase
from actors.replay.statistics import Gain, RoundEpisode, VarianceParts, _inside, gain_of_pairs, quantile95
from runtime.errors import ConfigError

CRASHES = 3  # of a run, before it is left out
GRACE_S = 180.0  # for a run that was asked to end
LOWEST = 19  # nice
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Steps = Annotated[int, msgspec.Meta(ge=1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a programme's file."""


class Arm(_Part, frozen=True, kw_only=True):
    """What differs from the other arms."""

    note: str = ""
    set: list[str] = []
    trunk: str | None = "cloned"  # that it goes on from; null begins from the model
    seed_shift: int = 0  # added to the seed that it draws with
    steps_share: Share = 1.0  # of the stage's RL steps and of those between two rounds


class ArmStage(_Part, frozen=True, kw_only=True):
    """Arms and seeds that are compared with each other. Runs of a stage before it go on."""

    name: str
    seeds: list[Count]
    arms: list[str]
    steps: Steps  # of RL
    every: Steps  # RL steps between two rounds; the learning rate has fallen before each
    rounds: Steps  # last ones, whose mean is what an arm is judged by
    best: Count = 0  # arms of the stage before that come as well
    never: list[str] = []  # arms that are none of the best


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


def load(path: Path) -> Programme:
    """The programme in file `path`. Raises ConfigError naming the key."""
    plan = typed_yaml.build(typed_yaml.plain(path, str(path)), Programme, source=str(path))
    arms = [plan.base, *(arm for stage in plan.stages for arm in (*stage.arms, *stage.never))]
    trunks = [arm.trunk for arm in plan.arms.values() if arm.trunk is not None]
    for name, known in (*((arm, plan.arms) for arm in arms), *((trunk, plan.trunks) for trunk in trunks)):
        if name not in known:
            raise ConfigError(f"{path}: {name}: no such arm or trunk; {hint(name, known)}")
    for stage in plan.stages:
        for arm in stage.arms:  # what a run would refuse is refused before the first one
            deploy_files.load(plan.file, overrides(plan, ProgrammeRun(stage.name, arm, 0)))
    return plan


def overrides(programme: Programme, cell: ProgrammeRun) -> list[str]:
    """The keys of a run, later ones over earlier ones."""
    if cell.stage == TRUNK:
        return [*programme.set, *programme.trunks[cell.arm], f"run.seed={cell.seed}"]
    arm, stage = programme.arms[cell.arm], next(one for one in programme.stages if one.name == cell.stage)
    steps, every = round(stage.steps * arm.steps_share), round(stage.every * arm.steps_share)
    return [
        *programme.set,
        f"entropulse.total_rl_steps={steps}",
        f"evaluation.interval={every}",
        f"learner.rl.lr_cycle_steps={every}",
        *arm.set,
        f"run.seed={cell.seed + arm.seed_shift}",
    ]


def origin(programme: Programme, cell: ProgrammeRun, runs: Path) -> ProgrammeRun | None:
    """The run that a run goes on from: its own of a stage before, else its arm's trunk; None: from none."""
    arm = programme.arms.get(cell.arm)
    if cell.stage == TRUNK or arm is None or arm.trunk is None:
        return None
    for stage in programme.stages:
        before = ProgrammeRun(stage.name, cell.arm, cell.seed)
        if stage.name == cell.stage:
            break
        if run_folder.is_run(runs / before.name) and run_folder.read_record(runs / before.name).has_ended:
            return before
    return ProgrammeRun(TRUNK, arm.trunk, cell.seed)


def cells(stage: ArmStage, best: Sequence[str]) -> list[ProgrammeRun]:
    """The runs of a stage in the order of play."""
    return [ProgrammeRun(stage.name, arm, seed) for seed in stage.seeds for arm in dict.fromkeys([*stage.arms, *best])]


def words(programme: Programme, cell: ProgrammeRun, runs: Path) -> list[str]:
    """The command that begins a run, or goes on with it."""
    if run_folder.is_run(runs / cell.name):
        return ["run", programme.file, "--resume", "--name", cell.name, "--runs", str(runs)]
    before = origin(programme, cell, runs)
    sets = [word for one in overrides(programme, cell) for word in ("--set", one)]
    since = [] if before is None else ["--from", before.name]
    return ["run", programme.file, "--name", cell.name, "--runs", str(runs), *since, *sets]


def left_out(run: Path) -> str:
    """Why the run at `run` is not tried again now; "" where it is."""
    if not run_folder.is_run(run):
        return ""
    if run_folder.owner(run) is not None:
        return "another process plays it"
    record = run_folder.read_record(run)
    if record.verdict == "crashed" and record.crashes + 1 >= CRASHES:
        return f"it crashed {CRASHES} times: {record.reason}"
    return ""


def in_background() -> None:
    """Let all else on the machine go first, also of what is started from here, and end by a signal as by Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell has its background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    os.nice(LOWEST - os.nice(0))
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def play(command: Sequence[str], until: float) -> bool:
    """Run `command` of this program to its end, or ask it to end at monotonic moment `until`; whether it ended by
    itself. An interruption of this process ends it likewise, and is raised."""
    line = [sys.executable, "-P", "-m", "actors.cluster.cli", *command]
    # In a session of its own: an interruption of the terminal reaches it once, from here.
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True) as child:
        try:
            child.wait(timeout=max(0.0, until - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            output.news("the time is up: the run is asked to end")
            return False
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


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


def carry_out(file: Path, runs: Path, hours: float) -> int:
    """Play what is missing of the programme in `file` for `hours`; 0 where nothing is left, 1 where the time is up.

    Figures go to the folder `results/NAME` next to a `file` NAME.yaml, and the table into `results/NAME.md`. Raises
    ConfigError while another process plays a run of `runs`.
    """
    plan, into = load(file), file.parent / "results" / file.stem
    for run, _ in run_folder.all_runs(runs):  # what a programme that was killed began may play on
        run_folder.refuse_held(run)
    into.mkdir(parents=True, exist_ok=True)
    in_background()
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
            if not play(words(plan, cell, runs), until):
                return 1
            if _record(runs / cell.name) == before:
                raise ConfigError(f"{cell.name} was refused, as said above: mend that, and start the programme again")
        if _ended(runs / cell.name):
            kept = into / f"{cell.name}{SUFFIX}"
            if not kept.exists():
                kept.with_suffix(".part").write_bytes(slim(run_data.read_run(runs / cell.name)))
                kept.with_suffix(".part").replace(kept)
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
    """The runs without a result in the order of play, each with why it is left out; "" where it is not.

    A trunk that a run goes on from comes before it, also one with a result whose folder is gone.
    """
    for stage in plan.stages:
        for cell in cells(stage, best(plan, stage, found) if stage.best else []):
            if cell.name in found:
                continue
            before = origin(plan, cell, runs)
            if before is not None and before.stage == TRUNK and not _ended(runs / before.name):
                yield before, left_out(runs / before.name)
            yield cell, left_out(runs / cell.name)


def page(plan: Programme, found: Mapping[str, RunFigures], runs: Path) -> str:
    """The table, and below it the runs that are left out."""
    lines = [
        f"- {cell.name} is left out: {' '.join(why.split())[:200]}" for cell, why in _missing(plan, found, runs) if why
    ]
    return "\n".join([table(plan, found), *lines, *([""] if lines else [])]) + probe_tables(plan, found)


def _ended(run: Path) -> bool:
    return (record := _record(run)) is not None and record.has_ended


def _record(run: Path) -> run_folder.RunRecord | None:
    return run_folder.read_record(run) if run_folder.is_run(run) else None


def main() -> int:
    """Play what is missing; 0 where nothing is left or its CPU-hours are spent, 1 where the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=Path("deploy/programme.yaml"))
    parser.add_argument("--hours", type=float, default=2.5, help="wall time at most")
    parser.add_argument("--runs", type=Path, help="where its runs are; else runs/NAME for a file NAME.yaml")
    args = parser.parse_args()
    try:
        return carry_out(args.file, args.runs or Path("runs") / args.file.stem, args.hours)
    except ConfigError as error:
        output.line(str(error), to=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
