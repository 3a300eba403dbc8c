"""Metrics of workbooks: `compare_table` and OfficeWorld's `compare_spreadsheet`.

Invariant: a cell counts by what it shows. A formula without a stored result equals no value, and no formula is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apis.guest import addresses
from apis.tasks.metrics import rules
from apis.tasks.metrics.metric import SOLVED, Declared, Options, Score, Value, document, gold
from apis.tasks.verify.verify import Sheet, Workbook

PRECISION = 4  # digits behind the point that count
RANGE_MAX = 100_000  # cells
_RANGE = re.compile(r"\$?([A-Z]{1,3}\$?[1-9]\d{0,6})(?::\$?([A-Z]{1,3}\$?[1-9]\d{0,6}))?", re.ASCII)
Cell = str | float | bool | None
Rule = Mapping[str, Any]


def _chosen(which: int | str, result: Workbook, expected: Workbook | None) -> Sheet | None:
    """The sheet that a task file names: a number, or R (result) or E (expected), then I and a number or N and a name.

    None where the result has no such sheet. Raises LookupError where the expectation has none, or the word is none.
    """
    word = f"RI{which}" if isinstance(which, int) else which
    side, how, name = word[:1], word[1:2], word[2:]
    if side not in ("R", "E") or how not in ("I", "N"):
        raise LookupError(f"there is no sheet {which!r}")
    book = result if side == "R" else expected
    if book is None:
        raise LookupError(f"sheet {which!r}: nothing is expected")
    if how == "N":
        found = next((sheet for sheet in book.sheets if sheet.name == name), None)
    else:
        found = book.sheets[int(name)] if int(name) < len(book.sheets) else None
    if found is None and side == "E":
        raise LookupError(f"what is expected has no sheet {which!r}")
    return found


def _shown(sheet: Sheet, place: str, digits: int = PRECISION) -> Cell:
    value: Cell = sheet.cells.get(place)
    if value is None and sheet.formulas.get(place):
        return sheet.formulas[place]  # no result is stored: its text stands for it, which no value is
    return round(value, digits) if isinstance(value, float) else value


def _folded(value: Cell, rule: Rule) -> Cell:
    return value.lower() if isinstance(value, str) and rule.get("ignore_case") else value


def _same(one: Cell, other: Cell, rule: Rule) -> bool:
    return type(one) is type(other) and _folded(one, rule) == _folded(other, rule)


def _other_cell(one: Sheet, other: Sheet, rule: Rule) -> str:
    """The first cell in which two sheets differ, "" where there is none."""
    digits = int(rule.get("precision", PRECISION))
    places = one.cells.keys() | one.formulas.keys() | other.cells.keys() | other.formulas.keys()
    differ = (
        place for place in sorted(places) if not _same(_shown(one, place, digits), _shown(other, place, digits), rule)
    )
    return next(differ, "")


def _sheet_data(rule: Rule, result: Workbook, expected: Workbook | None) -> str:
    one, other = (_chosen(rule[key], result, expected) for key in ("sheet_idx0", "sheet_idx1"))
    if one is None or other is None:
        return "a sheet is missing"
    place = _other_cell(one, other, rule)
    return f"{place} of sheet {one.name[:40]!r} is another" if place else ""


def _sheet_name(_: Rule, result: Workbook, expected: Workbook | None) -> str:
    if expected is None:
        raise LookupError("nothing is expected")
    same = [sheet.name for sheet in result.sheets] == [sheet.name for sheet in expected.sheets]
    return "" if same else "the sheets have other names"


def _check_cell(rule: Rule, result: Workbook, expected: Workbook | None) -> str:
    sheet, place = _chosen(rule["sheet_idx"], result, expected), str(rule["coordinate"])
    if sheet is None:
        return "a sheet is missing"
    value = sheet.cells.get(place)
    return "" if rules.fits(value, rule["props"]["value"]) else f"{place} is {str(value)[:40]!r}"


def _places(spans: list[str]) -> Iterator[str]:
    for span in spans:
        found = _RANGE.fullmatch(span)
        first = addresses.place_of(found[1].replace("$", "")) if found else None
        last = addresses.place_of((found[2] or found[1]).replace("$", "")) if found else None
        if first is None or last is None or (last[0] - first[0] + 1) * (last[1] - first[1] + 1) > RANGE_MAX:
            raise LookupError(f"there is no range {span!r}")
        for row in range(first[0], last[0] + 1):
            for column in range(first[1], last[1] + 1):
                yield addresses.address(row, column)


def _trimmed(value: Cell, rule: Rule) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    for old, new in rule.get("normalization", []):
        text = text.replace(old, new)
    if chars := rule.get("trim_leadings"):
        text = text.lstrip(str(chars))
    if chars := rule.get("trim_trailings"):
        text = text.rstrip(str(chars))
    text = text.translate({ord(char): None for char in str(rule.get("ignore_chars", ""))})
    return text.lower() if rule.get("ignore_case") else text


_LIKE: dict[str, Callable[[str, str, Rule], bool]] = {
    "includes": lambda there, wanted, _: wanted in there,
    "included_by": lambda there, wanted, _: there in wanted,
    "exact_match": lambda there, wanted, _: there == wanted,
    "fuzzy_match": lambda there, wanted, rule: 100 * rules.likeness(there, wanted) >= float(rule.get("threshold", 85)),
}


def _sheet_fuzzy(rule: Rule, result: Workbook, expected: Workbook | None) -> str:
    one, other = (_chosen(rule[key], result, expected) for key in ("sheet_idx0", "sheet_idx1"))
    if one is None or other is None:
        return "a sheet is missing"
    for part in rule["rules"]:
        alike = _LIKE[part["type"]]
        for place in _places(part["range"]):
            there, wanted = (_trimmed(sheet.cells.get(place), part) for sheet in (one, other))
            empty = part["type"] == "included_by" and not there
            if empty or not alike(there, wanted, part):
                return f"{place} is {there[:40]!r}"
    return ""


_RULES: dict[str, Callable[[Rule, Workbook, Workbook | None], str]] = {
    "sheet_data": _sheet_data,
    "sheet_name": _sheet_name,
    "sheet_fuzzy": _sheet_fuzzy,
    "check_cell": _check_cell,
}


def _lacks(options: Options) -> str:
    """The first rule that looks at what is not read: looks, charts, pivot tables, how a cell is printed."""
    for rule in options.get("rules", []):
        kind = rule.get("type") if isinstance(rule, Mapping) else None
        if kind not in _RULES:
            return f"rule {kind}"
        if kind == "check_cell" and set(rule.get("props", {})) != {"value"}:
            return "rule check_cell of a cell's looks"
    return ""


def compare_table(result: Value, expected: Value, options: Options) -> Score:
    """Each of `rules` holds between both workbooks."""
    if lacking := _lacks(options):
        raise LookupError(f"{lacking} is not here")
    if not options.get("rules"):
        raise LookupError("there are no rules")
    wanted = gold(expected, "workbook") if expected is not None else None
    there = document(result, "workbook")
    trouble = next((said for rule in options["rules"] if (said := _RULES[rule["type"]](rule, there, wanted))), "")
    return Score(0.0, trouble) if trouble else Score(SOLVED, "the tables are as they should be")


def compare_spreadsheet(result: Value, expected: Value, options: Options) -> Score:
    """Both workbooks have sheets of the same names, in order, with the same cells."""
    wanted, there = gold(expected, "workbook"), document(result, "workbook")
    if trouble := _sheet_name({}, there, wanted):
        return Score(0.0, trouble)
    for one, other in zip(there.sheets, wanted.sheets, strict=True):
        if place := _other_cell(one, other, options):
            return Score(0.0, f"{place} of sheet {one.name[:40]!r} is another")
    return Score(SOLVED, "the workbooks say the same")


DECLARED = (
    Declared(
        "compare_table",
        compare_table,
        "a formula without a stored result equals no value, text is no number, and blank rows count by their place",
        reads="workbook",
        lacks=_lacks,
    ),
    Declared("compare_spreadsheet", compare_spreadsheet, "all cells of all sheets count", reads="workbook"),
)
