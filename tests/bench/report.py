"""What every measurement says beside its figures: the machine, what was left out, and its targets.

Invariant: `--json` prints one document and nothing else. The exit status is 1 exactly where a target is missed.
A figure without measurements is None, and a target on it is missed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from actors.cluster import output
from actors.cluster.checks.apis.targets import Target, median, percentile

__all__ = ["Measured", "Target", "median", "percentile", "show"]


F = TypeVar("F", bound="Measured")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a measurement; its figures are a subclass's."""

    cores: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    load_at_start: float  # processes that ran or wanted to, mean of the last minute
    left_out: dict[str, str] = {}  # what could not be measured -> why
    targets: list[Target]

    @property
    def met(self) -> bool:
        """Whether no target is missed."""
        return all(target.met for target in self.targets)


def show(found: F, tell: Callable[[F], None], *, as_json: bool, note: str = "") -> int:
    """Print `found`, its own figures by `tell`; 1 when a target is missed. `note` is said of the machine."""
    if as_json:
        output.document({**msgspec.to_builtins(found, enc_hook=str), "met": found.met})
        return 0 if found.met else 1
    output.line(f"{found.cores} cores, load {found.load_at_start:.1f} at the start{note}")
    tell(found)
    for name, why in found.left_out.items():
        output.line(f"{name} left out: {why}")
    if found.targets:
        output.table(("TARGET", "MEASURED", "BOUND", ""), [target.row() for target in found.targets])
    return 0 if found.met else 1
