"""Twins of what published task files ask for: several rules of a metric at once, and kinds of values."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apis.tasks.verify.verify import FileView
from tests.apis.twins.general import DATA, NAMED
from tests.apis.twins.made_books import chart, pivot, styled
from tests.apis.twins.made_slides import Box, Page, make_pptx
from tests.apis.twins.slide_options import ASIDE, CHANGES, FULL
from tests.apis.twins.table_options import cell, fuzzy, said, saved
from tests.apis.twins.tables import CELLS, CHECKED, PAIR, check, pane, zoom
from tests.apis.twins.text_options import preferences
from tests.apis.twins.twin import Twin, book, file

SECOND = {"sheet_idx0": "RNSheet2", "sheet_idx1": "ENSheet2"}
OTHERS: dict[str, list[list[Any]]] = {"Sheet2": [["head"], ["x", 1]], **CELLS}
OTHER_CELL: dict[str, list[list[Any]]] = {"Sheet1": [["item", "price"], ["tea", 3.6], ["milk", 2]]}
LOOKS = {"examine_font_bold", "examine_font_italic", "examine_font_size", "examine_font_underline"}
LOOKS |= {"examine_color_rgb", "examine_strike_through", "examine_alignment", "examine_bullets"}
HEADS = ["Date", "Sum"]


def looking(cells: dict[str, list[list[Any]]] = CELLS, **more: Any) -> FileView:
    """A workbook as an office writes it, with more as `styled` has it."""
    return saved(file(styled(cells, **more)))


def two(first: str, second: float, *more: str) -> FileView:
    """A workbook of two sheets, with more behind them, as an office writes it."""
    return saved(book([first], Sheet2=[["b", second]], **{name: [["c"]] for name in more}))


def copied(first: str, second: str, third: str, name: str = "Sheet3") -> FileView:
    """A workbook of three sheets with one text each."""
    return saved(book([first], Sheet2=[[second]], **{name: [[third]]}))


def kept(balance: float, what: str = "Food", head: str = "Sum") -> FileView:
    """Two columns of a cash book, with the last line's kind and balance."""
    return said(["Date", head], ["Mon", 5], [what, balance])


def printed(stem: str, lines: str, cells: dict[str, list[list[Any]]] = CELLS) -> FileView:
    """A workbook with the table of text that was made of its first sheet."""
    return replace(looking(cells), name=f"{stem}.xlsx", beside={f"{stem}-Sheet1.csv": file(lines)})


def tables(expected: FileView | None, rules: list[dict[str, Any]], right: FileView, *wrong: FileView) -> Twin:
    """A twin of several rules of compare_table."""
    return Twin("compare_table", expected, {"rules": rules}, right, list(wrong))


def slides(options: dict[str, bool], gold: FileView, right: FileView, *wrong: FileView) -> Twin:
    """A twin of several options of compare_pptx_files."""
    return Twin("compare_pptx_files", gold, options, right, list(wrong))


def one(*lines: Any, **place: Any) -> FileView:
    """A presentation of one text box."""
    return file(make_pptx(Page([Box(list(lines), **place)])))


def _json(expected: dict[str, Any], right: Any, *wrong: Any) -> Twin:
    return Twin("check_direct_json_object", expected, {}, right, list(wrong))


def _settings(expected: dict[str, Any], right: str, *wrong: str) -> Twin:
    return Twin("check_json_settings", {"expected": expected}, {}, file(right), [file(text) for text in wrong])


def _mail(name: str, method: str, ref: str, right: str, *wrong: str) -> Twin:
    texts = [file(preferences(f'"{name}", {value}', '"b", 1')) for value in (right, *wrong)]
    rules = {"expect": {name: {"method": method, "ref": ref}}}
    return Twin("check_thunderbird_prefs", rules, {}, texts[0], [*texts[1:], file(preferences('"b", 1'))])


PIVOT = {"type": "pivot_table", "pivot_props": ["col_fields", "filter", "row_fields", "data_fields"], **SECOND}
HEADLINE = {
    "bgcolor": {"method": "eq", "ref": "FF0000FF"}, "font_color": {"method": "eq", "ref": "FFFFFFFF"},
    "font_bold": {"method": "eq", "ref": True}, "value": {"method": "eq", "ref": "head"},
}  # fmt: skip
WHITE = '<b/><color rgb="FFFFFFFF"/>'
ON_BLUE = {"marked": "A1", "font": WHITE, "fill": "FF0000FF"}
COLUMN, BARS = (chart(),), (chart(direction="bar"),)
HASHES = {"a1": ["Kili", "Kilimanjaro.jpg"], "b2": ["Everest", "everest.jpg"]}
FILTERED = {"Black": True, "On sale": True, "is_other_exist": False}
NAME, MAIL = {"key": ["name"], "method": "eq", "ref": "A B"}, {"key": ["by", "mail"], "method": "eq", "ref": "a@b.c"}
TREE = {"expect": [{"key": ["chrome://a.xhtml", "folderTree", "mode"], "method": "re", "ref": r"\bsmart\b"}]}
TWINS = [
    tables(
        looking(charts=COLUMN), [{"type": "chart", "chart_props": ["type", "direction"], **PAIR}, DATA],
        looking(charts=COLUMN), looking(OTHER_CELL, charts=COLUMN), looking(charts=BARS), looking(),
    ),
    tables(
        looking(OTHERS, charts=COLUMN), [{"type": "chart", "chart_props": ["type", "title"], **SECOND}],
        looking(OTHERS, charts=BARS), looking(OTHERS, charts=(chart(title="Sale"),)),
        looking({"Sheet3": OTHERS["Sheet2"], **CELLS}, charts=COLUMN), looking(OTHERS),
    ),
    tables(
        looking(OTHERS, pivots=(pivot(),)), [PIVOT], looking(OTHERS, pivots=(pivot(),)),
        looking(OTHERS, pivots=(pivot(subtotal="count"),)), looking({**CELLS, "Sheet2": [["head"]]}, pivots=(pivot(),)),
        looking(OTHERS),
    ),
    tables(
        looking(OTHERS, pivots=(pivot(),), **ON_BLUE),
        [PIVOT, {"type": "check_cell", "sheet_idx": "RNSheet2", "coordinate": "A1", "props": HEADLINE}],
        looking(OTHERS, pivots=(pivot(),), **ON_BLUE), looking(OTHERS, pivots=(pivot(),)),
        looking(OTHERS, pivots=(pivot(rows="1"),), **ON_BLUE),
        looking(OTHERS, pivots=(pivot(),), **{**ON_BLUE, "font": "<b/>"}), looking(OTHERS),
    ),
    tables(
        kept(-1.25),
        [fuzzy({"range": ["A1:A2", "B1:B2"], "type": "exact_match"}),
         fuzzy({"range": ["A3:A3"], "type": "exact_match", "ignore_case": True}), cell("B3", "approx:0.1", -1.25)],
        kept(-1.3, "food"), kept(-1.4), kept(-1.25, "Foods"), kept(-1.25, head="sum"), said(HEADS, ["Mon", 5]),
    ),
    tables(
        looking(after=check()), [DATA, {"type": "data_validation", "sheet_idx": 0, "dv_props": [CHECKED]}],
        looking(after=check()), looking(OTHER_CELL, after=check()), looking(after=check(formula='"yes"')), looking(),
    ),
    tables(
        looking(view=pane("B2")), [{"type": "freeze", **PAIR}, DATA],
        looking(view=pane("B2")), looking(OTHER_CELL, view=pane("B2")), looking(view=pane("A2")), looking(),
    ),
    tables(
        looking(marked="A2"), [DATA, {"type": "style", "props": ["bgcolor"], **PAIR}],
        looking(marked="A2"), looking(OTHER_CELL, marked="A2"), looking(marked="A2", fill="FF00FF00"), looking(),
    ),
    tables(
        looking(), [{"type": "zoom", "sheet_idx": 0, "method": "lt", "ref": 260}, DATA],
        looking(view=zoom("100")), looking(view=zoom("260")), looking(OTHER_CELL, view=zoom("100")),
        looking(view=zoom("400")),
    ),
    tables(
        two("a", 1), [DATA | {"sheet_idx0": "RI0"}], two("a", 2), two("A", 1), saved(book(["b", 1], Sheet2=[["a"]])),
        saved(book([None])),
    ),
    tables(two("a", 1), [NAMED], two("b", 1), two("a", 2), saved(book(["a"], Sheet3=[["b", 1]])), saved(book(["a"]))),
    tables(
        two("a", 1), [DATA | {"sheet_idx0": "RNSheet1", "sheet_idx1": "ENSheet1"}, NAMED],
        two("a", 1, "Sheet3"), two("b", 1), two("a", 2), saved(book(["a"])),
    ),
    tables(
        copied("a", "a", "c"),
        [{"type": "sheet_name"}, DATA | {"sheet_idx1": 1}, DATA | {"sheet_idx0": 1, "sheet_idx1": "EI1"},
         DATA | {"sheet_idx0": 2, "sheet_idx1": "EI2"}],
        copied("a", "a", "c"), copied("a", "b", "c"), copied("a", "a", "d"), copied("a", "a", "c", "Sheet4"),
        saved(book(["a"])),
    ),
    tables(
        two("Tea", 1), [DATA | {"sheet_idx0": "RNSheet1", "sheet_idx1": "ENSheet1", "ignore_case": True}],
        two("Tea", 2), two("tee", 1), saved(book(["x"], Sheet1b=[["Tea"]])), two("", 1),
    ),
    tables(
        printed("gold", "id\n0000007\n"), [{"type": "sheet_print", **PAIR}], printed("mine", "id\n0000007\n"),
        printed("mine", "id\n000007\n"), printed("mine", "id\n0000007\n0000008\n"), printed("mine", "id\n7\n"),
    ),
    slides(
        dict.fromkeys(LOOKS, False), one(FULL), one(CHANGES["examine_bullets"]._replace(looks={"sz": "900"})),
        one(CHANGES["examine_font_name"]), one(FULL._replace(text="onE")), one("one"),
    ),
    slides(
        {"examine_shape": False, "examine_bullets": False}, one(FULL), one(CHANGES["examine_bullets"], place=ASIDE),
        one(CHANGES["examine_color_rgb"]), one(FULL, FULL), one("one"),
    ),
    _json(
        {"expected": HASHES, "expect_in_result": True, "result_not_list": True}, '{"a1": "Kili", "b2": "everest.jpg"}',
        '{"a1": "Everest", "b2": "everest.jpg"}', '{"a1": "Kili"}', '{"a1": "Kil", "b2": "Everest"}', "{}",
    ),
    _json(
        {"expected": {"q": "drip maker"}, "expect_in_result": True}, {"q": "black drip maker"},
        {"q": "drip makr"}, {"r": "drip maker"}, {},
    ),
    _json(
        {"expected": FILTERED}, dict(FILTERED), {**FILTERED, "On sale": False}, {**FILTERED, "is_other_exist": True},
        {"Black": True, "is_other_exist": False}, {},
    ),
    Twin("check_json", {"expect": [NAME, MAIL]}, {"is_yaml": True}, file("name: A B\nby:\n  mail: a@b.c\n"), [
        file("name: A B\nby:\n  mail: a@b.d\n"), file("name: a b\nby: {mail: a@b.c}\n"),
        file("name: A B\nmail: a@b.c\n"),
    ]),
    Twin("check_json", TREE, {}, file('{"chrome://a.xhtml": {"folderTree": {"mode": "smart,all"}}}'), [
        file('{"chrome://a.xhtml": {"folderTree": {"mode": "smarter"}}}'),
        file('{"chrome://a.xhtml": {"mode": "smart"}}'), file('{"chrome://a.xhtml": {"folderTree": {"mode": "all"}}}'),
    ]),
    _settings({"a.b": False}, '{"a.b": false}', '{"a.b": true}', '{"a.b": "false"}', "{}"),
    _settings(
        {"a.save": "late", "a.wait": 500}, '{"a.wait": 500, "a.save": "late", "c": 1}',
        '{"a.save": "late", "a.wait": 5000}', '{"a.save": "Late", "a.wait": 500}', '{"a.save": "late"}',
    ),
    _settings(
        {"folders": [{"path": "p"}, {"path": "q"}]}, '{"folders": [{"path": "p"}, {"path": "q"}], "settings": {}}',
        '{"folders": [{"path": "q"}, {"path": "p"}]}', '{"folders": [{"path": "p"}, {"path": "q", "name": "q"}]}',
        '{"folders": [{"path": "p"}]}',
    ),
    _mail("a.theme", "re", "dark", '"firefox-compact-dark@x"', '"firefox-compact-light@x"', '"Dark"', "1"),
    _mail("a.text", "re.S", r"Anon\nLab", r'"Anon\nLab"', r'"Anon Lab"', r'"anon\nlab"', '"Anon"'),
]  # fmt: skip
