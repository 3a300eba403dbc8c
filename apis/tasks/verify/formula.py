"""What a formula of a sheet comes to, worked out from the cells.

Invariant: pure and bounded. Only what is understood has a value: numbers, references within the sheet, sums, products,
and the functions below. Anything else is FormulaError, never a guess, and no stored result is looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from apis.guest.addresses import address, place_of

Value = str | float | bool
Cells = Mapping[str, Value]
Area = list[Value | None]  # the values of a range, row by row; None for an empty cell

MOST_CHARS, MOST_DEPTH, MOST_CELLS = 2000, 30, 10_000
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<range>\[?(?:\$?(?P<sheet>'[^']*'|[A-Za-z_][A-Za-z0-9_]*)?[!.])?"
    r"\$?[A-Z]{1,3}\$?[1-9][0-9]{0,6}(?::\.?\$?[A-Z]{1,3}\$?[1-9][0-9]{0,6})?\]?)(?![A-Za-z0-9_.(!])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?=\()"
    r"|(?P<sign>[-+*/^%(),;]))"
)
_PLACE = re.compile(r"\$?([A-Z]{1,3})\$?([1-9][0-9]{0,6})")


class FormulaError(Exception):
    """It has no value that is known here; the text says why."""


def _numbers(arguments: Sequence[float | Area]) -> list[float]:
    """The numbers among arguments; in ranges, text and truth values don't count."""
    found: list[float] = []
    for one in arguments:
        held = one if isinstance(one, list) else [one]
        found += [each for each in held if isinstance(each, float | int) and not isinstance(each, bool)]
    return found


def _mean(numbers: list[float]) -> float:
    if not numbers:
        raise FormulaError("it divides by zero")
    return math.fsum(numbers) / len(numbers)


_OF_NUMBERS: dict[str, Callable[[list[float]], float]] = {
    "SUM": math.fsum,
    "AVERAGE": _mean,
    "MIN": lambda numbers: min(numbers, default=0.0),
    "MAX": lambda numbers: max(numbers, default=0.0),
    "COUNT": lambda numbers: float(len(numbers)),
    "PRODUCT": lambda numbers: math.prod(numbers) if numbers else 0.0,
    "SUMSQ": lambda numbers: math.fsum(each * each for each in numbers),
}
_SUBTOTALS = {1: "AVERAGE", 2: "COUNT", 4: "MAX", 5: "MIN", 6: "PRODUCT", 9: "SUM"}


def _subtotal(arguments: Sequence[float | Area]) -> float:
    which = _one(arguments[0]) if arguments else 0.0
    name = _SUBTOTALS.get(int(which % 100)) if which in (*_SUBTOTALS, *(100 + each for each in _SUBTOTALS)) else None
    if name is None:
        raise FormulaError("SUBTOTAL of an unknown kind")
    return _OF_NUMBERS[name](_numbers(arguments[1:]))


def _sum_product(arguments: Sequence[float | Area]) -> float:
    areas = [one if isinstance(one, list) else [one] for one in arguments]
    if not areas or len({len(area) for area in areas}) != 1:
        raise FormulaError("SUMPRODUCT of ranges of different size")
    rows = ([_numbers([[each]]) for each in row] for row in zip(*areas, strict=True))
    return math.fsum(math.prod(each[0] if each else 0.0 for each in row) for row in rows)


_OF_ARGUMENTS: dict[str, Callable[[Sequence[float | Area]], float]] = {
    "SUBTOTAL": _subtotal,
    "SUMPRODUCT": _sum_product,
    "COUNTA": lambda arguments: float(
        sum(each is not None for one in arguments for each in (one if isinstance(one, list) else [one]))
    ),
    "ABS": lambda arguments: abs(_one(*arguments[:1])),
}


def _one(value: float | Area = math.nan) -> float:
    """A single number; an empty cell is zero, as programs for sheets have it."""
    if isinstance(value, list):
        if len(value) != 1:
            raise FormulaError("a range stands where a number should")
        held = value[0]
        value = 0.0 if held is None else held if isinstance(held, float | int) else math.nan
    if math.isnan(value):
        raise FormulaError("a text stands where a number should")
    return float(value)


def evaluate(formula: str, cells: Cells, sheet: str = "") -> float:
    """The number that `formula` (with "=" in front, in the words of either format) comes to on the sheet of that name.

    Raises FormulaError.
    """
    body = formula.removeprefix("of:").removeprefix("=")
    if len(body) > MOST_CHARS:
        raise FormulaError("it is too long")
    try:
        reader = _Reader(body, cells, sheet)
        found = _one(reader.sum(0))
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise FormulaError("it has no number") from error
    if reader.kind:
        raise FormulaError(f"{reader.text[:20]!r} is not understood")
    return found


class _Reader:
    """Reads a formula from left to right, one token ahead; "" is the kind of its end."""

    def __init__(self, body: str, cells: Cells, sheet: str) -> None:
        self._left, self._cells, self._sheet, self._room = body, cells, sheet, MOST_CELLS
        self.kind = self.text = ""
        self.step()

    def step(self) -> None:
        if not self._left.strip():
            self.kind = self.text = ""
            return
        found = _TOKEN.match(self._left)
        if found is None or found.lastgroup is None:
            raise FormulaError(f"{self._left.strip()[:20]!r} is not understood")
        if found["sheet"] and found["sheet"].strip("'") != self._sheet:
            raise FormulaError("it refers to another sheet")
        self.kind, self.text, self._left = found.lastgroup, found[found.lastgroup], self._left[found.end() :]

    def take(self, *signs: str) -> str:
        """The sign that stands here, when it is one of these; "" otherwise."""
        if self.kind != "sign" or self.text not in signs:
            return ""
        taken = self.text
        self.step()
        return taken

    def sum(self, depth: int) -> float | Area:
        if depth > MOST_DEPTH:
            raise FormulaError("it is nested too deep")
        value = self.product(depth)
        while sign := self.take("+", "-"):
            right = _one(self.product(depth))
            value = _one(value) + right if sign == "+" else _one(value) - right
        return value

    def product(self, depth: int) -> float | Area:
        value = self.power(depth)
        while sign := self.take("*", "/"):
            right = _one(self.power(depth))
            value = _one(value) * right if sign == "*" else _one(value) / right
        return value

    def power(self, depth: int) -> float | Area:
        value = self.signed(depth)
        while self.take("^"):
            value = math.pow(_one(value), _one(self.signed(depth)))
        return value

    def signed(self, depth: int) -> float | Area:
        turned = False
        plain = True
        while sign := self.take("+", "-"):
            turned, plain = turned ^ (sign == "-"), False
        value = self.atom(depth)
        while self.take("%"):
            value = _one(value) / 100
        return value if plain else -_one(value) if turned else _one(value)

    def atom(self, depth: int) -> float | Area:
        kind, text = self.kind, self.text
        if kind == "number":
            self.step()
            return float(text)
        if kind == "range":
            self.step()
            return self.area(text)
        if kind == "name":
            self.step()
            return self.call(text.upper(), depth)
        if self.take("("):
            value = self.sum(depth + 1)
            if not self.take(")"):
                raise FormulaError("a bracket is not closed")
            return value
        raise FormulaError(f"{text[:20]!r} is not understood" if text else "it ends early")

    def call(self, name: str, depth: int) -> float:
        self.take("(")
        arguments: list[float | Area] = []
        if not self.take(")"):
            arguments.append(self.sum(depth + 1))
            while self.take(",", ";"):
                arguments.append(self.sum(depth + 1))
            if not self.take(")"):
                raise FormulaError("a bracket is not closed")
        if name in _OF_NUMBERS:
            return _OF_NUMBERS[name](_numbers(arguments))
        if name in _OF_ARGUMENTS:
            return _OF_ARGUMENTS[name](arguments)
        raise FormulaError(f"{name[:20]} is no function that is known here")

    def area(self, text: str) -> Area:
        """The cells between two corners, or the one."""
        places = _PLACE.finditer(text[text.rfind("!") + 1 :] if "!" in text else text[text.find(".") + 1 :])
        corners = [place_of(found[1] + found[2]) for found in places]
        if (first := corners[0]) is None or (last := corners[-1]) is None:
            raise FormulaError("it refers to a cell that no sheet has")
        rows, columns = (range(min(ends), max(ends) + 1) for ends in zip(first, last, strict=True))
        self._room -= len(columns) * len(rows)
        if self._room < 0:
            raise FormulaError("its ranges are too large")
        return [self._cells.get(address(row, column)) for row in rows for column in columns]
