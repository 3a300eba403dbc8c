"""Which wordings of tasks a policy follows and which it misses. Pure.

Invariant: rounds stand side by side only where task set and decoding are the last closed round's. Episodes lost to
faults are left out. Families that are never trained on are left out where there are others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from actors.cluster.runs.evaluation_rounds import EvaluationRound
from apis.tasks import registry as tasks
from apis.tasks.registry import FAMILIES
from runtime.errors import ConfigError

_HOLE = re.compile(r"\\\{\w+\\\}")
MOST_TOLD = 3


class Worded(NamedTuple):
    """One wording's episodes, (solved, played) by round."""

    family: str
    wording: str
    rounds: list[tuple[int, int]]

    @property
    def missed(self) -> int:
        """Episodes of the last round that were not solved."""
        solved, played = self.rounds[-1]
        return played - solved

    @property
    def always(self) -> bool:
        """Whether all episodes of the last round, and there are some, were solved."""
        return not self.missed and self.rounds[-1][1] > 0


@lru_cache(maxsize=4096)
def wording_of(task: str) -> str:
    """The text with holes that the task's instruction was made of; "" where its family has none that fits."""
    family, _, rest = task.partition("/")
    split = rest.partition("/")[0]
    if family not in FAMILIES:
        return ""
    try:
        said = tasks.goal(task).instruction
    except ConfigError:  # an instance of another build, say of a family that is trained on no more
        return ""
    found = (text for kind in FAMILIES[family].templates.values() for text in kind.get(split, ()))
    fits = [text for text in found if re.fullmatch(_HOLE.sub("(.+)", re.escape(text)), said, re.DOTALL)]
    return max(fits, key=lambda text: len(_HOLE.sub("", re.escape(text))), default="")


def _of_today(found: EvaluationRound) -> bool:
    try:
        return tasks.digest(episode.task for episode in found.episodes) == found.task_set
    except ConfigError:
        return False


def alike(rounds: Sequence[EvaluationRound]) -> list[EvaluationRound]:
    """The closed rounds that the last can be set beside, itself included; none where those tasks are others today."""
    closed = [found for found in rounds if found.closed]
    if not closed or not _of_today(closed[-1]):
        return []
    return [f for f in closed if (f.task_set, f.decoding) == (closed[-1].task_set, closed[-1].decoding)]


def by_wording(rounds: Sequence[EvaluationRound]) -> list[Worded]:
    """Over rounds that are `alike`, what was missed most in the last one first."""
    found: dict[tuple[str, str], list[list[int]]] = {}
    for n, each in enumerate(rounds):
        for episode in each.judged:
            if not episode.fault and (wording := wording_of(episode.task)):
                counts = found.setdefault((episode.family, wording), [[0, 0] for _ in rounds])[n]
                counts[0] += episode.success
                counts[1] += 1
    rows = [Worded(*key, [(solved, played) for solved, played in counts]) for key, counts in found.items()]
    return sorted(rows, key=lambda row: (-row.missed, row.family, row.wording))


def told(rounds: Sequence[EvaluationRound]) -> str:
    """`22 of 49 always solved in final; missed most: "Put {file} in {folder}" 3 of 11`; "" without a closed round."""
    beside = alike(rounds)
    rows = by_wording(beside)
    if not rows:
        return ""
    always = sum(row.always for row in rows)
    most = [f'"{row.wording}" {row.rounds[-1][0]} of {row.rounds[-1][1]}' for row in rows[:MOST_TOLD] if row.missed]
    said = f"; missed most: {', '.join(most)}" if most else ""
    return f"{always} of {len(rows)} always solved in {beside[-1].name}{said}"
