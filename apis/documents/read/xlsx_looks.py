"""What the cells' values of an Office Open XML workbook do not say: looks, charts, pivot tables, checks of input.

Invariant: of the archive only the parts that the workbook itself names are read. Colours are "AARRGGBB", or a word and
a number where they are the theme's or the palette's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.grid import number
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.relations import Relations, related
from apis.documents.read.tree import PartElement, Tree

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PREFIXES = {
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": "",
    "http://purl.oclc.org/ooxml/spreadsheetml/main": "",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
    _OFFICE: "r",
}
_PARTS = 64  # charts and pivot tables of a sheet
_CHECKS = 256  # of input, of a sheet
_OFF = ("0", "false", "none")
# Formats of dates and times that a file need not spell out (ECMA-376 part 1, section 18.8.30).
_CODES = {
    **dict.fromkeys(("14", "15", "16", "17", "22"), "d/m/y"),
    **dict.fromkeys(("18", "19", "20", "21", "45", "47"), "h:mm"),
    "46": "[h]:mm:ss",
}  # fmt: skip
_NONE = PartElement("", {})

Open = Callable[[str], PartElement]


class _Sheet(Tree):
    """A sheet: of its rows only which style each cell has."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.styles: dict[str, int] = {}
        self._rows = 0  # how deep in them

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._rows or name == "sheetData":
            self._rows += 1
            style = attributes.get("s", "0")
            if name == "c" and style != "0" and style.isascii() and style.isdigit() and len(style) < 7:
                self._budget.spend("cells")
                self.styles[attributes.get("r", "")[:12]] = int(style)
        else:
            super().start(name, attributes)

    def text(self, data: str) -> None:
        if not self._rows:
            super().text(data)

    def end(self, name: str) -> None:
        if self._rows:
            self._rows -= 1
        else:
            super().end(name)


def read(archive: Archive, budget: Budget) -> list[dict[str, Any]]:
    """Per sheet what `apis.tasks.verify.looks.SheetLooks` has, in the workbook's order. Raises RefusedError."""

    def parse(part: str, handler: MarkupHandler) -> None:
        walk(archive.pieces(part), handler, _PREFIXES, budget)

    def opened(part: str) -> PartElement:
        tree = Tree(budget)
        parse(part, tree)
        return next(iter(tree.root.inside), _NONE)

    def relations(part: str) -> Relations:
        try:
            return related(part, parse) if _has_relations(archive, part) else Relations(part)
        except RefusedError:
            return Relations(part)

    main = related("", parse).of_kind("officeDocument")
    if main is None:
        raise RefusedError("not_a_workbook")
    own = relations(main)
    at = own.of_kind("styles")
    styles = _styles(opened(at)) if at and at in archive else []
    found = []
    for sheet in opened(main).all("sheets", "sheet"):
        part = own.parts.get(sheet.get("id"), ("", ""))[1]
        rows = _Sheet(budget)
        parse(part, rows)
        about = next(iter(rows.root.inside), _NONE)
        linked = relations(part).parts.values()
        plain = styles[0] if styles else {}
        known = ((cell, styles[style]) for cell, style in rows.styles.items() if style < len(styles))
        drawings = [path for kind, path in linked if kind == "drawing"][:_PARTS]
        charts = [p for drawing in drawings for kind, p in relations(drawing).parts.values() if kind == "chart"]
        pivots = [path for kind, path in linked if kind == "pivotTable"][:_PARTS]
        found.append(
            {
                "plain": plain,
                "looks": {cell: style for cell, style in known if style != plain},
                "conditional": about.first("conditionalFormatting", "cfRule") is not None,
                **_view(about),
                "checks": [_check(one) for one in about.all("dataValidations", "dataValidation")][:_CHECKS],
                "charts": [_chart(opened(path)) for path in charts[:_PARTS]],
                "pivots": [_pivot(path, opened, relations) for path in pivots],
            }
        )
    return found


def _has_relations(archive: Archive, part: str) -> bool:
    folder, _, name = part.rpartition("/")
    return f"{folder}/_rels/{name}.rels".lstrip("/") in archive


def _view(sheet: PartElement) -> dict[str, Any]:
    view = sheet.first("sheetViews", "sheetView") or _NONE
    pane = view.first("pane") or _NONE
    frozen = pane.get("state").startswith("frozen")
    return {"freeze": pane.get("topLeftCell")[:12] if frozen else "", "zoom": number(view.get("zoomScale")) or 100.0}


def _check(one: PartElement) -> dict[str, str]:
    formulas = {name: node.text for name in ("formula1", "formula2") if (node := one.first(name)) is not None}
    return {**one.attributes, "ranges": one.get("sqref"), **formulas}


def _color(node: PartElement | None) -> str:
    """A colour, "" where there is none."""
    if node is None:
        return ""
    words = ("rgb", ""), ("theme", "theme "), ("indexed", "indexed ")
    return next((f"{word}{node.get(key)}".upper() if key == "rgb" else word + node.get(key) for key, word in words
                 if node.get(key)), "")[:32]  # fmt: skip


def _styles(sheet: PartElement) -> list[dict[str, Any]]:
    """What each style of cells sets; no fill, and what a font does not have, is left out."""
    fonts = [_font(font) for font in sheet.all("fonts", "font")] or [{}]
    fills = [_fill(fill) for fill in sheet.all("fills", "fill")] or [{}]

    def at(known: list[dict[str, Any]], number_: str) -> dict[str, Any]:
        index = int(number_) if number_.isascii() and number_.isdigit() and len(number_) < 7 else 0
        return known[index] if index < len(known) else {}

    codes = {one.get("numFmtId"): one.get("formatCode")[:256] for one in sheet.all("numFmts", "numFmt")}
    return [
        {**at(fonts, xf.get("fontId")), **at(fills, xf.get("fillId")), **_shown_as(xf.get("numFmtId", "0"), codes)}
        for xf in sheet.all("cellXfs", "xf")
    ]


def _shown_as(format_: str, codes: dict[str, str]) -> dict[str, Any]:
    code = codes.get(format_, _CODES.get(format_, ""))
    return {"format": code} if code else {}


def _font(font: PartElement) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tag, name in (("b", "font_bold"), ("i", "font_italic")):
        if (node := font.first(tag)) is not None and node.get("val", "1") not in _OFF:
            found[name] = True
    if (under := font.first("u")) is not None and under.get("val", "single") not in _OFF:
        found["font_underline"] = under.get("val", "single")[:32]
    if color := _color(font.first("color")):
        found["font_color"] = color
    if (named := font.first("name")) is not None:
        found["font_name"] = named.get("val")[:64]
    if (size := number((font.first("sz") or _NONE).get("val"))) is not None:
        found["font_size"] = size
    return found


def _fill(fill: PartElement) -> dict[str, Any]:
    pattern = fill.first("patternFill")
    if pattern is None or pattern.get("patternType", "none") == "none":
        return {}
    return {"bgcolor": color} if (color := _color(pattern.first("fgColor"))) else {}


def _said(node: PartElement | None) -> str | None:
    """The first words of a title."""
    words = next(node.below("t"), None) if node is not None else None
    return words.text[:256] if words is not None else None


def _chart(space: PartElement) -> dict[str, Any]:
    chart = space.first("chart") or _NONE
    area = chart.first("plotArea") or _NONE
    drawn = next((node for node in area.inside if node.name.endswith("Chart")), _NONE)
    axes = {node.name: _said(node.first("title")) for node in area.inside if node.name.endswith("Ax")}
    series = []
    for one in drawn.all("ser"):
        sides = ((one.first(first) or one.first(second)) for first, second in (("val", "yVal"), ("cat", "xVal")))
        series.append(",".join(next((f.text for f in side.below("f")), "") if side else "" for side in sides))
    legend = chart.first("legend")
    return {
        "series": ";".join(series)[:4096],
        "type": drawn.name,
        "direction": (drawn.first("barDir") or _NONE).get("val") or None,
        "title": _said(chart.first("title")),
        "legend": (legend.first("legendPos") or _NONE).get("val", "r") if legend is not None else None,
        "xtitle": axes.get("catAx", axes.get("dateAx")),
        "ytitle": axes.get("valAx"),
    }


def _pivot(path: str, opened: Open, relations: Callable[[str], Relations]) -> dict[str, Any]:
    table = opened(path)
    at = relations(path).of_kind("pivotCacheDefinition")
    source = (opened(at) if at else _NONE).first("cacheSource") or _NONE
    where = source.first("worksheetSource") or _NONE
    items = [
        sorted(f"{item.get('x')}{' hidden' if item.get('h', '0') not in _OFF else ''}"
               for item in field.all("items", "item") if item.get("x"))
        for field in table.all("pivotFields", "pivotField")
    ]  # fmt: skip
    return {
        "source": [source.get("type"), where.get("ref"), where.get("sheet")],
        "name": table.get("name"),
        "items": items,
        "filter": sorted(field.get("fld") for field in table.all("pageFields", "pageField")),
        "col_fields": [field.get("x") for field in table.all("colFields", "field")],
        "row_fields": [field.get("x") for field in table.all("rowFields", "field")],
        "data_fields": [
            [one.get("fld"), one.get("subtotal", "sum"), one.get("showDataAs", "normal"), one.get("name")]
            for one in table.all("dataFields", "dataField")
        ],
    }
