"""The page's table of a run's phases: what each is and why it began."""

from __future__ import annotations

from collections.abc import Mapping

from actors.cluster.report.gather import RunData
from actors.cluster.report.html import Markup, folded, join, table, tag
from actors.cluster.words import plain

UNFOLDED = 2  # figures of evidence at the most that are shown at once
FIRST, SECOND = "_first_half", "_second_half"


def phases_of(run: RunData) -> Markup:
    """The segments that `run` went through."""
    rows = [(one.phase, one.start, plain(one.cause), _evidence(one.evidence)) for one in run.switches]
    head = ("Phase", "From step", "Cause", "Evidence")
    segments = table(head, rows, words={"Evidence"})
    return join([tag("h3", run.name), segments])


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
