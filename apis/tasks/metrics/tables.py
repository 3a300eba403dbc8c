"""Metrics of workbooks: `compare_table` and what stands beside it.

Invariant: a cell counts by what it shows. A formula without a stored result equals no value, and no formula is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from apis.guest import addresses
from apis.tasks.metrics import rules, table_looks
from apis.tasks.metrics.metric import SOLVED, Declared, Options, Score, Value, document, gold, gold_text, is_, text
from apis.tasks.metrics.sheets import Rule, chosen
from apis.tasks.verify.looks import StyledWorkbook
from apis.tasks.verify.sheets import Sheet
from apis.tasks.verify.verify import FileView

PRECISION = 4  # digits behind the point that count
RANGE_MAX = 100_000  # cells
_RANGE = re.compile(r"\$?([A-Z]{1,3}\$?[1-9]\d{0,6})(?::\$?([A-Z]{1,3}\$?[1-9]\d{0,6}))?", re.ASCII)
KIND, PRINTED = "styled_workbook", "sheet_print"
Cell = str | float | bool | None


def _shown(sheet: Sheet, place: str, digits: int = PRECISION) -> Cell:
    value: Cell = sheet.cells.get(place)
    if value is None and sheet.formulas.get(place):
        return sheet.formulas[place]  # no result is stored: its text stands for it, which no value is
    return round(value, digits) if isinstance(value, float) else value


def _never_calculated(book: StyledWorkbook) -> bool:
    """Whether it has formulas and the result of none, as what a script wrote and no program opened."""
    placed = [(sheet, place) for sheet in book.sheets for place, formula in sheet.formulas.items() if formula]
    return bool(placed) and not any(place in sheet.cells for sheet, place in placed)


def _same(one: Cell, other: Cell) -> bool:
    return type(one) is type(other) and one == other


def _other_cell(one: Sheet, other: Sheet, rule: Rule) -> str:
    """The first cell in which two sheets differ, "" where there is none."""
    digits = int(rule.get("precision", PRECISION))
    places = one.cells.keys() | one.formulas.keys() | other.cells.keys() | other.formulas.keys()
    differ = (place for place in sorted(places) if not _same(_shown(one, place, digits), _shown(other, place, digits)))
    return next(differ, "")


def _with_numbers(sheet: Sheet) -> Sheet:
    """A sheet whose columns of numbers below the first row are numbers, also where a text says one."""
    columns: dict[str, dict[str, float | None]] = {}
    for place, value in sheet.cells.items():
        column = place.rstrip("0123456789")
        if place != f"{column}1":
            columns.setdefault(column, {})[place] = rules.number(value)
    said = [cells for cells in columns.values() if None not in cells.values()]
    numbers = {place: value for cells in said for place, value in cells.items() if value is not None}
    return replace(sheet, cells={**sheet.cells, **numbers})


def _sheet_data(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    one, other = (chosen(rule[key], result, expected) for key in ("sheet_idx0", "sheet_idx1"))
    if one is None or other is None:
        return "a sheet is missing"
    place = _other_cell(_with_numbers(one), _with_numbers(other), rule)
    return f"{place} of sheet {one.name[:40]!r} is another" if place else ""


def _sheet_name(_: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    if expected is None:
        raise LookupError("nothing is expected")
    same = [sheet.name for sheet in result.sheets] == [sheet.name for sheet in expected.sheets]
    return "" if same else "the sheets have other names"


def _check_cell(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    sheet, place = chosen(rule["sheet_idx"], result, expected), str(rule["coordinate"])
    if sheet is None:
        return "a sheet is missing"
    for name, wanted in rule["props"].items():
        value = sheet.cells.get(place) if name == "value" else table_looks.look(rule["sheet_idx"], place, name, result)
        if not rules.fits(value, wanted):
            return f"{place} has the {name} {str(value)[:40]!r}"
    return ""


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


def _sheet_fuzzy(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    one, other = (chosen(rule[key], result, expected) for key in ("sheet_idx0", "sheet_idx1"))
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


_RULES: dict[str, Callable[[Rule, StyledWorkbook, StyledWorkbook | None], str]] = {
    "sheet_data": _sheet_data,
    "sheet_name": _sheet_name,
    "sheet_fuzzy": _sheet_fuzzy,
    "check_cell": _check_cell,
    **table_looks.RULES,
}


def _lacks(options: Options) -> str:
    """The first rule, or property that it names, that is not here."""
    for rule in options.get("rules", []):
        kind = rule.get("type") if isinstance(rule, Mapping) else None
        if kind not in _RULES and kind != PRINTED:
            return f"rule {kind}"
        if lacking := table_looks.lacks(rule):
            return f"rule {kind} of {lacking}"
        if kind == "sheet_fuzzy" and (unknown := {part.get("type") for part in rule.get("rules", [])} - _LIKE.keys()):
            return f"rule {kind} of type {unknown.pop()}"
    return ""


def _sheet_print(rule: Rule, views: tuple[Value, Value], books: tuple[StyledWorkbook, StyledWorkbook | None]) -> str:
    """Whether two sheets look otherwise in the tables of text that were made of them, called BOOK-SHEET.csv."""
    printed = []
    for key in ("sheet_idx0", "sheet_idx1"):
        word, sheet = str(rule[key]), chosen(rule[key], *books)
        expected = word.startswith("E")
        view = views[expected]
        if sheet is None or not isinstance(view, FileView):
            return "a sheet is missing"
        name = f"{view.name.rpartition('.')[0]}-{sheet.name}.csv"
        if expected and name not in view.beside:
            raise LookupError(f"what is expected has no {name}")
        lines = (gold_text if expected else text)(view.beside.get(name)).rstrip().splitlines()
        printed.append([line.strip().lower() if rule.get("ignore_case") else line.strip() for line in lines])
    at = next((n for n, pair in enumerate(zip(*printed, strict=False), 1) if pair[0] != pair[1]), 0)
    if at or len(printed[0]) != len(printed[1]):
        return f"line {at} is printed otherwise" if at else "it has other lines"
    return ""


def compare_table(result: Value, expected: Value, options: Options) -> Score:
    """Each of `rules` holds between both workbooks."""
    if lacking := _lacks(options):
        raise LookupError(f"{lacking} is not here")
    if not options.get("rules"):
        raise LookupError("there are no rules")
    wanted = gold(expected, KIND) if expected is not None else None
    if (
        wanted is not None
        and _never_calculated(wanted)
        and any(rule["type"] == "sheet_data" for rule in options["rules"])
    ):
        raise LookupError("what is expected was never calculated: no formula in it has a result")
    there = document(result, KIND)

    def said(rule: Rule) -> str:
        if rule["type"] == PRINTED:
            return _sheet_print(rule, (result, expected), (there, wanted))
        return _RULES[rule["type"]](rule, there, wanted)

    trouble = next(filter(None, map(said, options["rules"])), "")
    return Score(0.0, trouble) if trouble else Score(SOLVED, "the tables are as they should be")


def compare_conference_city_in_order(result: Value, expected: Value, _: Options) -> Score:
    """Column C of the first sheet, from row 2 on, has in each cell a name of that place in the list `expected`."""
    sheet = document(result, "workbook").sheets[0]
    for row, names in enumerate(expected["expected"], 2):
        found = sheet.cells.get(f"C{row}")
        wanted = [names] if isinstance(names, str) else list(names)
        if not isinstance(found, str) or not any(name in found for name in wanted):
            return Score(0.0, f"C{row} is {str(found)[:40]!r}")
    return is_(bool(expected["expected"]), "the names are in order", "nothing is expected")


DECLARED = (
    Declared(
        "compare_table",
        compare_table,
        "a formula without a stored result equals no value, blank rows count by their place, looks "
        "that depend on values score 0, a split is no freeze, text that stands in its cell is read, a font without a "
        "colour has none",
        reads=KIND,
        lacks=_lacks,
        differs=lambda options: any("sheet_idx" in rule for rule in options["rules"]),  # it asks something of its own
    ),
    Declared(
        "compare_conference_city_in_order",
        compare_conference_city_in_order,
        "as many rows count as names are expected, not 21",
        reads="workbook",
    ),
)
