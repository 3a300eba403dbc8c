"""The page's tables of a run's phases: why each began, and what leaving RL did to variety.

Invariant: a change of phase is one row of the first table; what lies on both sides of it is told once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from actors.cluster.report import history
from actors.cluster.report.gather import RunData
from actors.cluster.report.html import Markup, folded, join, table, tag
from actors.cluster.words import plain
from actors.replay.values import Phase

AROUND = 10  # RL steps on each side of a change of phase
UNFOLDED = 2  # figures of evidence at the most that are shown at once
FIRST, SECOND = "_first_half", "_second_half"
VARIETY = {  # figure -> heading of its change
    "entropy": "Token entropy", "sampled_entropy_nats": "Token entropy of all episodes",
    "action_entropy_nats": "Action entropy",
    "group_call_entropy_nats": "Call entropy in a group", "distinct_trajectories": "Distinct trajectories",
}  # fmt: skip


def phases_of(run: RunData) -> Markup:
    """The segments that `run` went through."""
    rows = [(one.phase, one.start, plain(one.cause), _evidence(one.evidence)) for one in run.switches]
    head = ("Phase", "From step", "Cause", "Evidence")
    segments = table(head, rows, words={"Evidence"})
    return join([tag("h3", run.name), segments, *_variety(run), *_strata(run)])


def _evidence(found: Mapping[str, float]) -> Markup:
    """Figures of a few words at once, more of them folded; a figure of both halves of a segment is one."""
    said = []
    for name, value in found.items():
        whole = name.removesuffix(FIRST)
        if name.endswith(SECOND) and name.removesuffix(SECOND) + FIRST in found:
            continue
        if whole + SECOND in found and name.endswith(FIRST):
            said.append(f"{whole} {value:.4g}, in the second half {found[whole + SECOND]:.4g}")
        else:
            said.append(f"{name} {value:.4g}")
    if len(said) <= UNFOLDED:
        return join([", ".join(said) or "-"])
    return folded(f"{len(said)} figures", *(tag("div", one) for one in said))


def _variety(run: RunData) -> list[Markup]:
    """What each change that ended a segment of RL did; nothing before one that RL steps lie on both sides of."""
    rows = [
        (f"{switch.phase} {switch.start}", *(around(run, figure, at) for figure in VARIETY))
        for at, switch in enumerate(run.switches)
    ]
    told = [row for row in rows if set(row[1:]) != {"-"}]
    if not told:
        return []
    said = (
        f"Variety before and after each change of phase: means over at most {AROUND} steps of the RL that it ended and"
        " of the RL that came next; but for that of all episodes of the batches trained on, so without groups of equal"
        " rewards"
    )
    return [table(("Change", *VARIETY.values()), told, said)]


def _strata(run: RunData) -> list[Markup]:
    """How many demonstrated tasks were always, sometimes or never solved, by family; nothing without strata."""
    kinds = list(dict.fromkeys(name.rpartition("/")[2] for name in run.strata))
    families = list(dict.fromkeys(name.rpartition("/")[0] for name in run.strata))
    if not kinds:
        return []
    rows = [(family, *(run.strata.get(f"{family}/{kind}", 0) for kind in kinds)) for family in families]
    return [table(("Family", *kinds), rows, "Demonstrated tasks by how often they were solved")]


def around(run: RunData, figure: str, at: int) -> str:
    """The figure's mean over the last RL steps before the change of phase number `at`, and over the first after it.

    `-` where it ended no segment with RL steps: a pulse has RL on both sides, and the change that ends it has the same.
    """
    segments = _segments(run, figure)
    before = segments[at - 1][-AROUND:] if at else []
    after = next((segment[:AROUND] for segment in segments[at:] if segment), [])
    return f"{sum(before) / len(before):.3f} -> {sum(after) / len(after):.3f}" if before and after else "-"


def _segments(run: RunData, figure: str) -> list[list[float]]:
    """The figure's values in RL by segment.

    A change of phase may leave the step under way to be made after it: such a step is of the last segment of RL.
    """
    starts, segments = [switch.start for switch in run.switches], [list[float]() for _ in run.switches]
    for step, value in sorted(history.series(run.steps, figure, Phase.RL).items()):
        place = bisect_left(starts, step) - 1
        of_rl = (earlier for earlier in range(place, -1, -1) if run.switches[earlier].phase == Phase.RL)
        segments[next(of_rl, place)].append(value)
    return segments
