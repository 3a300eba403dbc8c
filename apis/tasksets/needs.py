"""What a task file needs that is not here, and the verdict that comes of it.

Invariant: the verdict is a function of the needs alone. A task is runnable exactly when nothing is lacking.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

NeedKind = Literal["step", "application", "getter", "metric", "fixture", "network", "root", "account", "judge", "task"]
Verdict = Literal["runnable", "needs_file", "needs_network", "needs_app", "needs_judge", "unsound", "unsupported"]
# The first kind that is lacking decides: what nothing here can give, then what can be installed, reached or fetched.
_DECIDES: tuple[tuple[NeedKind, Verdict], ...] = (
    ("step", "unsupported"),
    ("getter", "unsupported"),
    ("metric", "unsupported"),
    ("root", "unsupported"),
    ("account", "unsupported"),
    ("application", "needs_app"),
    ("network", "needs_network"),
    ("judge", "needs_judge"),
    ("fixture", "needs_file"),
    ("task", "unsound"),
)


class Need(msgspec.Struct, frozen=True, order=True):
    """One thing that a task needs and that is not here."""

    kind: NeedKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Lacking(Exception):  # noqa: N818 - what a task file needs, not an error of the program
    """A step, a getter or a path that can't be had here."""

    def __init__(self, kind: NeedKind, name: str) -> None:
        super().__init__(f"{kind} {name}")
        self.need = Need(kind, name)


def verdict_of(needs: Iterable[Need]) -> Verdict:
    """What a task with these needs is."""
    kinds = {need.kind for need in needs}
    return next((verdict for kind, verdict in _DECIDES if kind in kinds), "runnable")
