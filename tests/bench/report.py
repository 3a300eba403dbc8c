"""What every bench has in common: flags from its options, and one JSON document with the figures and their bounds.

The exit status is 1 exactly where a target is missed. A figure without measurements is None, and a target on it is
missed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from actors.cluster import output

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest measured value that at least `share` of all values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def median(values: Sequence[float]) -> float | None:
    """The middle value; the lower one of two."""
    return percentile(values, 0.5)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and the bound it must keep."""

    name: str
    measured: float | None
    bound: float
    unit: str
    at_least: bool = False  # else at most

    @property
    def met(self) -> bool:
        """Whether it was measured and keeps the bound."""
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def row(self) -> tuple[str, str, str, str]:
        """Name, figure, bound and verdict as text."""
        figure = "-" if self.measured is None else f"{self.measured:.4g} {self.unit}"
        sign = ">=" if self.at_least else "<="
        return self.name, figure, f"{sign} {self.bound:g} {self.unit}", "met" if self.met else "MISSED"


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


def declare(parser: argparse.ArgumentParser, options: type[msgspec.Struct]) -> None:
    """A flag of each field: `--first-words` of `first_words`, and `--set`, repeatable, of a list."""
    for field in msgspec.structs.fields(options):
        if isinstance(field.default, bool):
            parser.add_argument(f"--no-{field.name}", dest=field.name, action="store_false")
        elif field.default_factory is list:
            parser.add_argument("--set", dest=field.name, action="append", default=[], metavar="PATH=VALUE")
        else:
            flag = f"--{field.name.removesuffix('_s').replace('_', '-')}"
            parser.add_argument(flag, dest=field.name, type=type(field.default), default=field.default)


def given(options: type[OptionsT], args: argparse.Namespace) -> OptionsT:
    """The options of parsed arguments."""
    return options(**{name: getattr(args, name) for name in options.__struct_fields__})


def multiple(cost: float | None, of: float | None) -> float | None:
    """How many times `of` a cost is; None where either was not measured."""
    return cost / of if cost is not None and of else None


def show(result: Measured) -> int:
    """Print `result`; 1 when a target is missed, which is a line on stderr."""
    output.document({**msgspec.to_builtins(result, enc_hook=str), "met": result.met})
    for target in result.targets:
        output.line("  ".join(target.row()), to=sys.stderr)
    return 0 if result.met else 1
