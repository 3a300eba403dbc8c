"""Rules of compare_table that look at more than cells: looks, charts, pivot tables, views and checks of input.

Invariant: a property that is not read here is lacking. Looks that depend on values are not worked out: a sheet of the
result that has them scores 0, and the expectation may have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from apis.guest import addresses
from apis.tasks.metrics import rules
from apis.tasks.metrics.sheets import Rule, chosen, looks_of
from apis.tasks.verify.looks import SheetLooks, StyledWorkbook

_NO_FILL = "00000000"
_OF_FONTS = {
    "font_bold": False, "font_italic": False, "font_underline": None, "font_color": None, "font_name": None,
    "font_size": None,
}  # fmt: skip
_LOOKS: dict[str, str | float | bool | None] = {"bgcolor": _NO_FILL, "fgcolor": _NO_FILL, **_OF_FONTS}
_CHARTS = {"type", "title", "legend", "direction", "xtitle", "ytitle"}
_PIVOTS = {"filter", "col_fields", "row_fields", "data_fields", "name", "data_fields_name"}
_PROPERTIES = {
    "style": ("props", set(_LOOKS)),
    "chart": ("chart_props", _CHARTS),
    "pivot_table": ("pivot_props", _PIVOTS),
}
_MISSING = "a sheet is missing, or its format has no looks that are read here"


def lacks(rule: Rule) -> str:
    """The first property that `rule` names and that is not read here, "" where all are."""
    kind = rule.get("type")
    if kind == "check_cell":
        return next((name for name in rule.get("props", {}) if name != "value" and name not in _LOOKS), "")
    key, known = _PROPERTIES.get(str(kind), ("", set()))
    return next((name for name in rule.get(key, []) if name not in known), "")


def _of_cell(looks: SheetLooks, place: str, name: str) -> str | float | bool | None:
    key = "bgcolor" if name == "fgcolor" else name
    return looks.looks.get(place, looks.plain).get(key, _LOOKS[name])


def look(which: int | str, place: str, name: str, result: StyledWorkbook) -> Any:
    """The property `name` of a cell of the result; None where it has no looks."""
    looks = looks_of(which, result, None)
    return None if looks is None else _of_cell(looks, place, name)


def _both(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> tuple[SheetLooks, SheetLooks] | None:
    one, other = (looks_of(rule[key], result, expected) for key in ("sheet_idx0", "sheet_idx1"))
    return None if one is None or other is None else (one, other)


def _style(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    both = _both(rule, result, expected)
    sheets = [chosen(rule[key], result, expected) for key in ("sheet_idx0", "sheet_idx1")]
    if both is None or sheets[0] is None or sheets[1] is None:
        return _MISSING
    if both[1].conditional:
        raise LookupError("what is expected has looks that depend on values")
    if both[0].conditional:
        return "it has looks that depend on values"
    cells = set(sheets[0].cells) | set(sheets[1].cells)
    for place in sorted({*both[0].looks, *both[1].looks, *cells}):
        for name in rule.get("props", []):
            counts = name not in _OF_FONTS or place in cells
            if counts and _of_cell(both[0], place, name) != _of_cell(both[1], place, name):
                return f"{place} has another {name}"
    return ""


def _freeze(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    both = _both(rule, result, expected)
    if both is None:
        return _MISSING
    return "" if both[0].freeze == both[1].freeze else f"it is frozen before {both[0].freeze or 'nothing'}"


def _zoom(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    looks = looks_of(rule["sheet_idx"], result, expected)
    if looks is None:
        return _MISSING
    return "" if rules.fits(looks.zoom, rule) else f"it is zoomed to {looks.zoom:g} %"


def _chart(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    both = _both(rule, result, expected)
    if both is None:
        return _MISSING
    names = ["series", *rule.get("chart_props", [])]
    one, other = (sorted(str([chart.get(name) for name in names]) for chart in looks.charts) for looks in both)
    return "" if one == other else f"it has other charts: {one[:1]}"


def _shifted(pivot: dict[str, Any], names: set[str]) -> list[Any]:
    """A pivot table by its source, the fields in front of the first that has items, or behind the last, cut off."""
    items = pivot["items"]
    used = [at for at, field in enumerate(items) if field] or [0]
    first, last = used[0], used[-1]
    kind, ref, sheet = pivot["source"]
    corners = [addresses.place_of(corner) for corner in ref.replace("$", "").split(":")]
    if len(corners) == 2 and corners[0] and corners[1]:
        cut = len(items) - 1 - last
        where: Any = (corners[0][0], corners[0][1] + first, corners[1][0], corners[1][1] - cut)
    else:
        where = ref

    def less(field: str) -> int | str:
        return int(field) - first if re.fullmatch(r"-?\d{1,6}", field, re.ASCII) else field

    found: list[Any] = [kind, where, sheet]
    if "filter" in names:
        found += [items[first : last + 1], list(map(less, pivot["filter"]))]
    found += [list(map(less, pivot[name])) for name in ("col_fields", "row_fields") if name in names]
    if "data_fields" in names:
        found.append(
            [[less(field), *more[: 3 if "data_fields_name" in names else 2]] for field, *more in pivot["data_fields"]]
        )
    return [*found, pivot["name"] if "name" in names else ""]


def _pivot(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    both = _both(rule, result, expected)
    if both is None:
        return _MISSING
    names = set(rule.get("pivot_props", []))
    one, other = (sorted(str(_shifted(pivot, names)) for pivot in looks.pivots) for looks in both)
    return "" if one == other else f"it has other pivot tables: {len(one)} for {len(other)}"


def _cells(ranges: str) -> list[tuple[int, int, int, int]]:
    found = []
    for span in ranges.replace("$", "").split():
        first, _, last = span.partition(":")
        one, other = addresses.place_of(first), addresses.place_of(last or first)
        if one is None or other is None:
            return []
        found.append((*one, *other))
    return found


def _inside(one: list[tuple[int, int, int, int]], other: list[tuple[int, int, int, int]]) -> bool:
    return bool(one) and all(
        any(a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] and a[3] <= b[3] for b in other) for a in one
    )


def _fits(name: str, check: dict[str, str], wanted: Rule) -> bool:
    value = check.get(name)
    if wanted["method"] == "spreadsheet_range":
        least, most = map(_cells, wanted["ref"])
        there = _cells(value or "")
        return _inside(least, there) and _inside(there, most)
    return rules.fits(value, wanted)


def _data_validation(rule: Rule, result: StyledWorkbook, expected: StyledWorkbook | None) -> str:
    looks = looks_of(rule["sheet_idx"], result, expected)
    if looks is None:
        return _MISSING
    wanted = rule["dv_props"]
    if len(looks.checks) < len(wanted):
        return f"it has {len(looks.checks)} checks of input and not {len(wanted)}"
    for check in looks.checks:
        if not any(all(_fits(name, check, one) for name, one in props.items()) for props in wanted):
            return f"it checks {str(check.get('ranges'))[:40]} otherwise"
    return ""


RULES: dict[str, Callable[[Rule, StyledWorkbook, StyledWorkbook | None], str]] = {
    "style": _style,
    "freeze": _freeze,
    "zoom": _zoom,
    "chart": _chart,
    "pivot_table": _pivot,
    "data_validation": _data_validation,
}
