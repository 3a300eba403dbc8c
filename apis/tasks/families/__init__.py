"""The families of generated tasks: modules below that declare `FAMILIES`, and how their instances are worded.

Invariant: a suite shares out its instances in the order of `wordings.yaml`. Another family comes last.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import msgspec

Wordings = dict[str, dict[str, tuple[str, ...]]]  # kind -> split -> wordings


@cache
def every() -> dict[str, Wordings]:
    """The wordings of all families, in the order of suites."""
    text = Path(__file__).with_name("wordings.yaml").read_text("utf-8")
    return msgspec.yaml.decode(text, type=dict[str, Wordings])


def wordings(family: str) -> Wordings:
    """The wordings of one family. Raises KeyError."""
    return every()[family]


def kind_of(random: Random, family: str) -> str:
    """One of the kinds of a family's tasks."""
    return random.choice(sorted(every()[family]))


def worded(random: Random, family: str, kind: str, split: str, **values: object) -> str:
    """An instruction of a kind of task, with `values` in their places."""
    return random.choice(every()[family][kind][split]).format(**values)
