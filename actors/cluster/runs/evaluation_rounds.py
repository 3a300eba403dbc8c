"""A run's evaluation rounds, the gain between two alike, and whether a run did what its deploy file asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from actors.cluster.config.schema import RequireConfig
from actors.cluster.config.suites import untrained_families
from actors.cluster.runs import ledgers
from actors.replay.database import queries
from actors.replay.messages import Figures, Phase
from actors.replay.statistics import Gain, RoundEpisode, Summary, gain, side_by_side, summarise
from runtime.errors import ConfigError
from runtime.messaging.message import Version

if TYPE_CHECKING:
    from actors.cluster.runs.compose import Plan

Verdict = tuple[str, str | None]  # "ok", "failed", "crashed" or "stopped", and the reason
ROUND = "eval"  # the one round of a run that `eval` made
FAULTS_MOST = 0.02  # share of a round's episodes beyond which its numbers are not to be trusted


class EvaluationRound(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation round."""

    name: str
    version: str
    step: int  # optimizer steps of its weights
    temperature: float
    max_new_tokens: int
    task_set: str  # `apis.tasks.registry.digest` of its tasks
    closed: bool
    summary: Summary
    episodes: list[RoundEpisode]  # what it was made of: episodes still to be played are not among them
    remembered: float = 0.0  # share of its steps that a memo gave
    trained: frozenset[str] = frozenset()  # families that its run trains on; none where nothing was trained

    @property
    def decoding(self) -> str:
        """`greedy` or `T=1`."""
        return "greedy" if self.temperature == 0 else f"T={self.temperature:g}"

    @property
    def judged(self) -> list[RoundEpisode]:
        """What a run is judged by: the episodes of families that it trains on, where it has any."""
        never = untrained_families(self.summary.families, self.trained)
        return [episode for episode in self.episodes if episode.family not in never] or self.episodes

    @property
    def score_rows(self) -> list[tuple[str, ...]]:
        """Its scores side by side under `SCORES`; none where no task is infeasible and all scores are alike."""
        scores = side_by_side(self.episodes)
        if not scores[0].infeasible.n and len({one.whole.successes for one in scores[:3]}) == 1:
            return []
        means = ((one.name, (one.whole, one.feasible, one.infeasible)) for one in scores)
        return [
            (name, *(f"{m.value:.3f} ({m.successes:g}/{m.n})" if m.n else "-" for m in three)) for name, three in means
        ]


SCORES = ("Score", "All", "Feasible", "Infeasible")


def read_rounds(run: Path) -> list[EvaluationRound]:
    """The rounds of the run at `run` that count, as they were opened. Raises ConfigError without a readable ledger."""
    with ledgers.opened(run) as db:
        return rounds_of(db)


def rounds_of(db: queries.Database) -> list[EvaluationRound]:
    """The same from an open ledger whose rows have names."""
    trained = frozenset(queries.trained_families(db))
    return [
        _round(row, queries.round_episodes(db, row["id"]), trained, queries.round_remembered(db, row["id"]))
        for row in queries.rounds(db)
    ]


def _round(
    row: queries.Row, episodes: list[RoundEpisode], trained: frozenset[str], remembered: float
) -> EvaluationRound:
    return EvaluationRound(
        name=row["name"],
        version=row["version"],
        step=Version.parse(row["version"]).step,
        temperature=row["temperature"],
        max_new_tokens=row["max_new_tokens"],
        task_set=row["task_set"],
        closed=bool(row["closed"]),
        summary=summarise(episodes, untrained_families({episode.family for episode in episodes}, trained)),
        episodes=episodes,
        trained=trained,
        remembered=remembered,
    )


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The paired gain between two rounds, of all instances and of each part that has any."""

    before: str  # names of the rounds
    after: str
    decoding: str
    task_set: str
    whole: Gain
    trained: Gain | None
    untrained: Gain | None
    families: dict[str, Gain]


def compare(before: EvaluationRound, after: EvaluationRound) -> Compared:
    """What changed from one round to the other. Raises ConfigError unless they are alike."""
    if (first := _kind(before)) != (last := _kind(after)):
        raise ConfigError(f"{before.name} and {after.name} can't be compared: {_said(first)} and {_said(last)}")
    one, two = before.episodes, after.episodes
    families = sorted({episode.family for episode in one})
    never = untrained_families(families, after.trained)
    apart = {family: gain(_of(one, [family]), _of(two, [family])) for family in families}
    trained, untrained = ([f for f in families if (f in never) is kind] for kind in (False, True))
    return Compared(
        before=before.name,
        after=after.name,
        decoding=after.decoding,
        task_set=after.task_set,
        whole=gain(one, two),
        trained=gain(_of(one, trained), _of(two, trained)) if trained else None,
        untrained=gain(_of(one, untrained), _of(two, untrained)) if untrained else None,
        families=apart,
    )


def gains(rounds: Sequence[EvaluationRound]) -> list[Compared]:
    """From the first to the last closed round of every kind, where they are of other weights; first kinds first."""
    kinds: dict[tuple[object, ...], list[EvaluationRound]] = {}
    for found in rounds:
        if found.closed:
            kinds.setdefault(_kind(found), []).append(found)
    return [compare(alike[0], alike[-1]) for alike in kinds.values() if alike[0].step != alike[-1].step]


def _kind(found: EvaluationRound) -> tuple[str, float, int]:
    return found.task_set, found.temperature, found.max_new_tokens


def _said(kind: tuple[str, float, int]) -> str:
    return f"task set {kind[0]} at temperature {kind[1]:g}, {kind[2]} tokens"


def _of(episodes: Sequence[RoundEpisode], families: Sequence[str]) -> list[RoundEpisode]:
    return [episode for episode in episodes if episode.family in families]


def judge_training(plan: Plan, figures: Figures) -> Verdict:
    """Whether the run did what its file requires."""
    compared = gains(read_rounds(plan.run_dir))
    missing = unmet(plan.deploy.run.require, figures, compared)
    return "failed" if missing else "ok", "; ".join([*missing, *map(gain_line, compared[:1])]) or None


def judge_recording(plan: Plan, figures: Figures) -> Verdict:
    """Whether as many demonstrations were recorded as were wanted."""
    wanted, attempts = plan.deploy.demos.count, f"demonstrations in {figures.demo_attempts} attempts"
    if figures.demos >= wanted:
        return "ok", f"{figures.demos} {attempts}"
    return "failed", f"{figures.demos} of {wanted} {attempts}"


def judge_round(_: Plan, figures: Figures) -> Verdict:
    """Whether the round of `eval` was played, and its faults are few enough to trust its numbers."""
    played = next((one for one in figures.evals if one.round == ROUND), None)
    if played is None:
        return "failed", "the round was never opened"
    if not played.closed:
        return "failed", f"{played.played} of {played.planned} episodes"
    if played.faults > FAULTS_MOST * played.planned:
        return "failed", f"{played.faults} of {played.planned} episodes were lost to faults, {FAULTS_MOST:.0%} may be"
    return "ok", None


def recorded(figures: Figures) -> str:
    """`recorded: text_editor/gui 12`: by family and route, and on another line tasks by how often they were solved."""
    counts = [("recorded: ", figures.demo_strata), ("tasks: ", figures.demo_tasks)]
    lines = [head + ", ".join(f"{name} {n}" for name, n in sorted(some.items())) for head, some in counts if some]
    return "\n".join(lines)


def unmet(require: RequireConfig, figures: Figures, compared: Sequence[Compared] = ()) -> list[str]:
    """What is missing, in words; empty when all is there. `compared`: the gains between its rounds."""
    missing: list[str] = []
    for phase, wanted in ((Phase.BC, require.bc_steps), (Phase.RL, require.rl_steps)):
        done = figures.steps.get(phase.value, 0)
        if done < wanted:
            missing.append(f"{done} of {wanted} {phase.value} steps")
    if require.rl_steps and not figures.endings.get("trained", 0):
        missing.append("no group with differing rewards was trained")
    if require.gain_above is not None:
        if not compared:
            missing.append("no two evaluation rounds to compare, a paired gain needs them")
        elif (low := headline(compared[0]).low) <= require.gain_above:
            missing.append(
                f"the paired gain's interval begins at {low:+.3f}, above {require.gain_above:+.3f} was asked"
            )
    return missing


def headline(compared: Compared) -> Gain:
    """The gain that a run is judged by: over the families that may be trained on, where it has any."""
    return compared.trained or compared.whole


def instances(found: Gain) -> str:
    """Over how many instances, and how many faults have left out."""
    counted = f"{found.instances} instance{'s' * (found.instances != 1)}"
    return counted + (f", {found.left_out} left out for faults" if found.left_out else "")


def spread(found: Gain) -> str:
    """What its interval is made of, "" of one run: standard errors in points."""
    if found.spread is None:
        return ""
    of = found.spread
    said = ", ".join(f"{name} {100 * part:.1f}" for name, part in (
        ("runs", of.seeds), ("instances", of.instances), ("both at once", of.rest)
    ))  # fmt: skip
    return f"{said} (t of {of.freedom:.1f} degrees of freedom)"


def gain_line(compared: Compared) -> str:
    """The gain with its numbers in one line."""
    found = headline(compared)
    kind = "trained families, " if compared.trained and compared.untrained else ""
    if not found.instances:
        lost = f"all {found.left_out} instances lost to faults in one of them"
        return f"no held-out gain from {compared.before} to {compared.after}: {lost}"
    return (
        f"held-out success {found.before.value:.3f} -> {found.after.value:.3f} from {compared.before} to"
        f" {compared.after}: {found.value:+.3f} (95 % {found.low:+.3f} to {found.high:+.3f}; {kind}"
        f"{instances(found)}, {compared.decoding}, task set {compared.task_set[:12]})"
    )
