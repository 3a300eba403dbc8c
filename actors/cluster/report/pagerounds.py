"""The page's tables of a run's rounds: weights and families.

Invariant: every round that was opened is there, one that goes on included; no column is wholly empty. In print and on
the page a round is written alike, and no two rounds of a run look alike that are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.cluster.report.gather import RunData
from actors.cluster.report.html import Markup, join, table, tag
from actors.cluster.runs.evaluation_rounds import SCORES, EvaluationRound
from actors.replay.statistics import Rate
from runtime.messaging.message import Version


def round_weights(found: Sequence[EvaluationRound]) -> tuple[str, list[str]]:
    """A heading and each round's weights: steps alone where all are of one lineage, as `0.1118` looks like less than
    `0.900`.
    """
    versions = [Version.parse(one.version) for one in found]
    if len({version.lineage for version in versions}) > 1:
        return "Lineage.step", [one.version for one in found]
    return "Step", [str(version.step) for version in versions]


def round_names(found: Sequence[EvaluationRound]) -> list[str]:
    """Each round's name, with its decoding where that is not all rounds' own."""
    if len({one.decoding for one in found}) == 1:
        return [one.name for one in found]
    return [f"{one.name} ({one.decoding})" for one in found]


def share(rate: Rate) -> str:
    """`0.750 (90/120)`."""
    return f"{rate.value:.3f} ({rate.successes}/{rate.n})" if rate.n else "-"


def rate_said(found: Rate) -> str:
    """`0.750 (90/120), 0.666-0.819`."""
    low, high = found.interval
    return f"{share(found)}, {low:.3f}-{high:.3f}" if found.n else "-"


def rounds_of(run: RunData) -> Markup:
    """What was measured of `run`, as a whole and by parts."""
    head = tag("h3", f"Rounds of {run.name}")
    if not run.rounds:
        return join([head, tag("p", "No evaluation round has been opened.")])
    heading, weights = round_weights(run.rounds)
    titles = ("Round", heading, "Decoding", "All, 95 %", "Feasible", "No fault", "Trained families", "Never trained",
              "pass", "Task set")  # fmt: skip
    rows = [
        (found.name if found.closed else f"{found.name} (going on)", made, *_shares(found), found.task_set[:12])
        for found, made in zip(run.rounds, weights, strict=True)
    ]
    sides = run.rounds[-1].score_rows
    scores = [table(SCORES, sides, f"Scores of {run.rounds[-1].name}")] if sides else []
    return join([head, table(titles, rows), *scores, _families(run.rounds)])


def _shares(found: EvaluationRound) -> tuple[str, ...]:
    whole, summary = found.summary.whole, found.summary
    apart = (whole.feasible, whole.without_faults, summary.trained.all, summary.untrained.all)
    passed = ", ".join(f"@{k} {value:.3f}" for k, value in summary.pass_at.items())
    return found.decoding, rate_said(whole.all), *map(_short, apart), passed


def _families(found: Sequence[EvaluationRound]) -> Markup:
    by_round = [one.summary.families for one in found]
    rows = [
        (name, *(_short(rates[name].all) if name in rates else "-" for rates in by_round))
        for name in sorted({name for rates in by_round for name in rates})
    ]
    return table(("Family", *round_names(found)), rows, "By family, all episodes")


def _short(found: Rate) -> str:
    return share(found) if found.n else "-"
