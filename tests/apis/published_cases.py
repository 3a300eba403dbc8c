"""A right end and a near miss for each metric that is left to the published package.

The judge's environment has the libraries that make them, and runs this; any other leaves out what it can't make. It
prints JSON: the cases, wrong ends that a metric accepts and its guard refuses, with the files at the start, and right
ends that differ from what is expected as honest ones do.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import Any

from docx.enum.text import WD_COLOR_INDEX
from PIL import ImageFilter, ImageOps
from pptx.enum.dml import MSO_THEME_COLOR
from published_made import (
    BLUE,
    GREY,
    LINES,
    LOCALE,
    PANE,
    RED,
    TREE,
    XCU,
    cell,
    clock,
    colored,
    docx,
    equation,
    file,
    filled,
    footed,
    frozen,
    gridded,
    holed,
    italic,
    linked,
    linked_last,
    looked,
    lowered,
    marked,
    mastered,
    moved,
    mp3,
    numbered,
    numbered_footer,
    odt,
    package,
    pdf,
    picture,
    pictured,
    pictures,
    pptx,
    setting,
    setting_item,
    shaped,
    spaced,
    split,
    sqlite,
    stretched,
    struck,
    tabbed,
    tabled,
    tar,
    titled,
    triangle,
    upright,
    workbook,
    zipped,
)

CASES: list[dict[str, Any]] = []
WEAK: list[dict[str, Any]] = []
HONEST: list[dict[str, Any]] = []


def case(metric: str, right: Any, wrong: Any, expected: Any = None, **options: Any) -> None:
    CASES.append({"metric": metric, "right": right, "wrong": wrong, "expected": expected, "options": options})


def weak(metric: str, wrong: Any, expected: Any = None, *starts: Any, **options: Any) -> None:
    WEAK.append({"metric": metric, "wrong": wrong, "expected": expected, "starts": starts, "options": options})


def honest(metric: str, right: Any, expected: Any = None, **options: Any) -> None:
    HONEST.append({"metric": metric, "right": right, "expected": expected, "options": options})


case(
    "check_accessibility_tree",
    TREE.format("x"),
    TREE.format("y"),
    [{"selectors": ["label"], "text": "x", "exact": True}],
)
case("check_csv", file("a.csv", "a,b\n1,2\n"), file("a.csv", "a,b\n1,3\n"), {"expect": [{"a": "1", "b": "2"}]})
case("check_enabled_experiments", ["a@1"], ["a@1", "b@1"], {"type": "names", "names": ["a"]})
case("check_font_size", {"default_font_size": 20}, {"default_font_size": 16}, {"type": "range", "min": 18, "max": 24})
case(
    "check_global_key_play_pause", file("vlcrc", "global-key-play-pause=Space\n"),
    file("vlcrc", "#global-key-play-pause=\nkey-play-pause=Space\n#global-key-play-pause=\n"),
    {"expected_global_key_play_pause": 1},
)  # fmt: skip
case(
    "check_green_background",
    file("a.png", picture((0, 200, 0))),
    file("a.png", RED),
    file("b.png", picture((255, 255, 255))),
)
case(
    "check_html_background_image", file("a.html", "<style>body {background-image: url('a.png')}</style>"),
    file("a.html", "<style>body {background-image: url('b.png')}</style>"), {"type": "value", "value": "a.png"},
)  # fmt: skip
case("check_image_stretch_and_center", pptx(stretched(True)), pptx(stretched(False)), pptx(stretched(False), "b.pptx"))
case(
    "check_italic_font_size_14", docx("a b", change=italic(14)), docx("a b", change=italic(12)),
    docx("a b", change=italic(14), name="b.docx"),
)  # fmt: skip
case(
    "check_json_keybindings", file("a.json", '// mine\n[{"key": "ctrl+j", "command": "x"}]'), file("a.json", "[]"),
    {"expected": {"key": "ctrl+j", "command": "x"}},
)  # fmt: skip
case(
    "check_libre_locale",
    file("a.xcu", LOCALE.format("en-US")),
    file("a.xcu", LOCALE.format("de")),
    {"locale_set": ["en*"]},
)
case("check_line_number", file("a.txt", "10:00:00 a\n10:01:00 b\n"), file("a.txt", "10:00:00 a\n"), {"expected": "2"})
if find_spec("mutagen"):
    case("check_mp3_meta", mp3("Tea"), mp3("Milk"), {"artist": {"method": "eq", "ref": "Tea"}})
case("check_no_duplicates", docx(*LINES), docx(*LINES[:1]), docx(*LINES[:2], name="b.docx"))
case("check_page_number_colors", pptx(mastered("FF0000")), pptx(mastered("0000FF")), {"color": "red"})
case(
    "check_sharper",
    file("a.png", RED),
    file("a.png", picture((255, 0, 0), change=lambda it: it.filter(ImageFilter.BLUR))),
    file("b.png", picture((255, 0, 0), change=lambda it: it.filter(ImageFilter.SMOOTH))),
)
case("check_slide_numbers_color", pptx(numbered(True)), pptx(numbered(False)))
case(
    "check_strikethrough", pptx(struck(True)), pptx(struck(False)),
    {"slide_index_s": [0], "shape_index_s": [0], "paragraph_index_s": [0]},
)  # fmt: skip
START = picture((200, 120, 60))
for metric, right, wrong in (
    ("check_brightness_decrease_and_structure_sim", picture((150, 90, 45)), picture((250, 150, 75))),
    ("check_contrast_increase_and_structure_sim", picture((230, 140, 70)), picture((150, 90, 45))),
    ("check_file_exists_and_structure_sim", START, BLUE),
    ("check_image_mirror", picture((200, 120, 60), change=ImageOps.mirror), START),
    ("check_palette_and_structure_sim", picture((200, 120, 60), change=lambda it: it.quantize(8)), START),
    ("check_saturation_increase_and_structure_sim", picture((200, 100, 40)), picture((200, 140, 100))),
    ("check_structure_sim", START, BLUE),
):
    case(metric, file("a.png", right), file("a.png", wrong), file("b.png", START))
case(
    "check_structure_sim_resized", file("a.png", picture((255, 0, 0), change=lambda it: it.resize((128, 128)))),
    file("a.png", picture((255, 0, 0), change=lambda it: it.rotate(90))), file("b.png", RED),
)  # fmt: skip
case(
    "check_tabstops",
    docx("a b\tc", change=tabbed(200)),
    docx("a b\tc", change=tabbed(90)),
    docx("a b\tc", change=tabbed(200), name="b.docx"),
)
case("check_text_enlarged", "1.25\n", "1.0\n")
case("check_transition", pptx(moved("dissolve")), pptx(moved("fade")), {"slide_idx": 0, "transition_type": "dissolve"})
case("compare_answer", "42", "43", {"expected": "42"})
case(
    "compare_contains_image",
    docx("a", "b", change=pictured(RED)),
    docx("a", "b", change=lambda made: made.paragraphs[0].add_run("c")),
    docx("a", "b", change=pictured(RED), name="b.docx"),
)
case(
    "compare_docx_images",
    docx("a", change=pictured(RED)),
    docx("a", change=pictured(BLUE)),
    docx("a", change=pictured(RED), name="b.docx"),
)
case("compare_docx_lines", docx("a", "b"), docx("a", "c"), docx("b", "a", name="b.docx"))
BOOK = {"toc.ncx": "<ncx>\na\n</ncx>", "content.opf": "<package>\na\n</package>", "a.html": "<p>one</p>"}
case("compare_epub", zipped("a.epub", BOOK), zipped("a.epub", {**BOOK, "a.html": "<p>two</p>"}), zipped("b.epub", BOOK))
case(
    "compare_highlighted_text",
    docx("a", change=marked(WD_COLOR_INDEX.YELLOW)),
    docx("a"),
    docx("a", change=marked(WD_COLOR_INDEX.YELLOW), name="b.docx"),
)
case(
    "compare_htmls",
    file("a.html", "<p>one</p><p>two</p>"),
    file("a.html", "<p>one</p><p>three</p>"),
    file("b.html", "<p>one</p><p>two</p>"),
)
case("compare_init_lines", docx("a", "b", "c"), docx("a", "x"), docx("a", "b", name="b.docx"))
case("compare_insert_equation", docx("a", change=equation), docx("a"), docx("a", change=equation, name="b.docx"))
case(
    "compare_line_spacing",
    docx("a", change=spaced(2.0)),
    docx("a", change=spaced(1.5)),
    docx("a", change=spaced(2.0), name="b.docx"),
)
case("compare_python_pure_text", file("a.py", "#!x\na = 1\n\n"), file("a.py", "a = 2\n"), file("b.py", "a = 1\n"))
case(
    "compare_references",
    docx("a", "References", "one two three"),
    docx("a", "References", "x"),
    docx("a", "References", "one two three", name="b.docx"),
)
case("compare_result_files", file("a.txt", "it is 3.5"), file("a.txt", "3.6"), file("b.txt", "3.5"))
case("compare_terminal_and_txt", file("a.txt", "a\n"), file("a.txt", "b\n"), "a\n")
case(
    "compare_time_in_speedtest_results",
    file("a.csv", f"a,b\n1,2026-01-01 {clock(0)},x\n"),
    file("a.csv", f"a,b\n1,2026-01-01 {clock(200)},x\n"),
    "60",
)
case(
    "compare_unique_train_records",
    docx(*LINES[:2]),
    docx(*LINES),
    [docx(*LINES[:2], name="b.docx"), docx(*LINES, name="c.docx")],
)
case(
    "decrease_brightness",
    file("a.png", GREY),
    file("a.png", picture((50, 50, 50))),
    file("b.png", picture((50, 50, 50))),
)
case("evaluate_alignment", docx("one two three\tfour. five six seven\teight."), file("a.docx", "no document"))
case("evaluate_conversion", docx("lower case"), docx("UPPER"))
case(
    "evaluate_presentation_fill_to_rgb_distance", pptx(filled(0, 0, 255)), pptx(filled(255, 0, 0)), {"rgb": [0, 0, 255]}
)
case(
    "evaluate_spacing",
    docx("a", "b", "c", change=spaced(1.0, 2.0, 1.5)),
    docx("a", "b", "c", change=spaced(1.0, 2.0, 1.0)),
)
case("fuzzy_place_math", docx("Paris", "Rome", "Oslo"), docx("Paris", "Rome"), {"expected": ["Paris", "Rome", "Oslo"]})
case("has_page_numbers_in_footers", docx("a", change=numbered_footer), docx("a", change=footed("page")))
case("increase_saturation", file("a.png", GREY), file("a.png", RED), file("b.png", RED))
case("is_added_to_steam_cart", {"content": "<p>Tea</p>"}, {"content": "<p>Milk</p>"}, {"items": ["Tea"]})
case(
    "is_expected_active_tab_approximate",
    "https://a.org/b?c=1",
    "https://a.org/d",
    {"type": "url", "url": "https://a.org/b"},
)
case("is_expected_installed_extensions", ["a", "b"], ["b"], {"expected": ["a"]})
case("is_gold_text_included_in_pdf", pdf("tea and milk"), pdf("tea"), file("b.json", '{"a": "tea", "b": "milk"}'))
case("is_in_vm_clickboard", {"expected": ["a", "b"]}, {"expected": ["a", "c"]}, "a b")
case(
    "is_included_all_json_objects",
    file("a.json", '{"a": 1}'),
    file("a.json", '{"a": 2}'),
    file("b.json", '{"a": 1, "b": 2}'),
)
case(
    "is_shortcut_on_desktop",
    {"a.desktop": "Name=Tea\nExec=x\n"},
    {"a.desktop": "Name=Teapot\n"},
    {"type": "name", "name": "Tea"},
)
case("is_vlc_fullscreen", {"width": 9, "height": 5}, {"width": 9, "height": 4}, {"width": 9, "height": 5})
case(
    "is_vlc_recordings_folder",
    file("vlcrc", "input-record-path=/home/user/Desktop\n"),
    file("vlcrc", "input-record-path=/home/user\n"),
    {"recording_file_path": "/home/user/Desktop"},
)

case(
    "check_auto_saving_time",
    setting("Common/Save/Document", "AutoSaveTimeIntervall", "3"),
    setting("Common/Save/Document", "AutoSaveTimeIntervall", "30"),
    {"minutes": 3},
)
if find_spec("odf"):
    case("check_highlighted_words", odt("one two"), odt("one two", "#ffff00"), odt("one two", name="b.odt"))
case("check_image_file_size", file("a.png", RED), file("a.png", RED + bytes(1 << 12)), {"max_size": 1 << 12})
case("check_image_size", file("a.png", RED), file("a.png", triangle(20)), {"height": 64})
case("check_left_panel", PANE.format("Slides View"), PANE.format("Notes"))
case("check_pdf_pages", pdf("a"), file("a.pdf", "none"), {"relation": "eq", "ref_value": 1})
case(
    "check_presenter_console_disable",
    setting("Impress/Misc/Start", "EnablePresenterScreen", "false"),
    setting("Impress/Misc/Start", "EnablePresenterScreen", "true"),
)
case("check_slide_orientation_Portrait", pptx(upright), pptx(lambda _: None))
case("check_textbox_on_leftside", file("a.png", triangle(0)), file("a.png", triangle(20)))
case("check_triangle_position", file("a.png", triangle(20)), file("a.png", triangle(5)))
case("compare_archive", zipped("a.zip", {"a": "x"}), zipped("a.zip", {"a": "y"}), zipped("b.zip", {"a": "x"}))
CITIES = [f"city {number}" for number in range(22)]
case(
    "compare_conference_city_in_order",
    workbook(["a", "b", "c"], *([1, 2, city] for city in CITIES)),
    workbook(["a", "b", "c"], *([1, 2, city] for city in reversed(CITIES))),
    {"expected": CITIES},
)
for metric in ("compare_docx_files", "compare_docx_files_and_ignore_new_lines"):
    case(metric, docx("a b", "c"), docx("a b", "d"), docx("a b", "c", name="b.docx"))
case(
    "compare_docx_tables",
    docx("a", change=tabled("b", "c")),
    docx("a", change=tabled("b", "d")),
    docx("a", change=tabled("b", "c"), name="b.docx"),
)
case(
    "compare_font_names",
    docx("a", change=looked(lambda run: setattr(run.font, "name", "Times New Roman"))),
    docx("a"),
    {"font_name": "Times New Roman"},
)
case("compare_image_list", [file("a.png", RED)], [file("a.png", BLUE)], [file("b.png", RED)])
case("compare_images", file("a.png", RED), file("a.png", triangle(20)), file("b.png", RED))
case("compare_pdfs", pdf("tea and milk"), pdf("something else"), {**pdf("tea and milk"), "name": "b.pdf"})
case("compare_pptx_files", pptx(titled("a")), pptx(titled("b")), pptx(titled("a"), "b.pptx"))
case(
    "compare_subscript_contains",
    docx("H", change=lowered("2")),
    docx("H2"),
    docx("H", change=lowered("2"), name="b.docx"),
)
SHEETS = {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}
case("compare_table", package(cell("a")), package(cell("b")), package(cell("a"), "b.xlsx"), rules=[SHEETS])
case("compare_zip_files", zipped("a.zip", {"a": "x"}), zipped("a.zip", {"a": "y"}), zipped("b.zip", {"a": "x"}))
case("contains_page_break", docx("a", change=lambda made: made.add_page_break()), docx("a"), {"page_break_count": 1})
case(
    "evaluate_colored_words_in_tables",
    docx("a", change=colored),
    docx("a", change=tabled("at", "by")),
    docx("a", change=tabled("at", "by"), name="b.docx"),
)
case(
    "evaluate_strike_through_last_paragraph",
    shaped(lambda last: setattr(last.runs[0].font, "strike", True), "a", "b"),
    docx("a", "b"),
    docx("a", "b", name="b.docx"),
)
case(
    "find_default_font",
    setting("Writer/DefaultFont", "Standard", "Times"),
    setting("Writer/DefaultFont", "Standard", "Arial"),
    {"font_name": "Times"},
)
case("fuzzy_match", "abcd", "xyz", {"expected": "abcd"})
case("is_first_line_centered", shaped(lambda last: setattr(last, "alignment", 1), "a"), docx("a"))
case("literal_match", "abcd", "abc", "abcd")
case("run_sqlite3", sqlite(1, 2), sqlite(1), {"sql": "select count(*) = 2 from a"})

case("last_row", workbook(["item", "price"], ["tea", 1], ["milk", 2]), None)

SAID, EMPTY = docx("one two three four five", "six seven eight"), docx()
SLIDES = pptx(titled("one two three four five"))
FONT = {"font_name": "Times New Roman"}
for metric, wrong, rules in (
    ("compare_font_names", EMPTY, FONT),
    ("contains_page_break", docx("x", change=lambda made: made.add_page_break()), {"page_break_count": 1}),
    ("evaluate_conversion", EMPTY, None),
    ("evaluate_spacing", docx("a", "b", "c", change=spaced(1.0, 2.0, 1.5)), None),
    ("is_first_line_centered", shaped(lambda last: setattr(last, "alignment", 1), "a"), None),
):
    weak(metric, wrong, rules, SAID)
for metric in ("compare_contains_image", "compare_docx_images", "compare_highlighted_text", "compare_references"):
    weak(metric, EMPTY, {**SAID, "name": "b.docx"}, SAID)
weak(
    "check_tabstops",
    docx("x", change=tabbed(200)),
    docx("one two three four five six", change=tabbed(200), name="b.docx"),
)
weak(
    "compare_docx_tables",
    docx(change=tabled("b", "c")),
    docx("one two three four five", change=tabled("b", "c"), name="b.docx"),
)
for metric, change, rules in (
    ("check_page_number_colors", mastered("FF0000"), {"color": "red"}),
    ("check_slide_numbers_color", numbered(True), None),
    ("check_strikethrough", struck(True), {"slide_index_s": [0], "shape_index_s": [0], "paragraph_index_s": [0]}),
    ("check_transition", moved("dissolve"), {"slide_idx": 0, "transition_type": "dissolve"}),
    ("evaluate_presentation_fill_to_rgb_distance", filled(0, 0, 255), {"rgb": [0, 0, 255]}),
    ("check_slide_orientation_Portrait", upright, None),
):
    weak(metric, pptx(change), rules, SLIDES)
weak("check_image_stretch_and_center", pptx(stretched(True)), pptx(stretched(False), "b.pptx"), SLIDES)
weak(
    "check_auto_saving_time",
    file("a.xcu", XCU.format(setting_item("AutoSave", "false") + setting_item("AutoSaveTimeIntervall", "3"))),
    {"minutes": 3},
)
weak("check_green_background", file("a.png", picture((0, 200, 0), box=(0, 200, 0))), file("b.png", picture((255,) * 3)))
if find_spec("odf"):
    weak("check_highlighted_words", odt("one two", heading="x"), odt("one two", name="b.odt"))
weak("check_image_file_size", file("a.png", "small"), {"max_size": 1 << 12})
weak("check_italic_font_size_14", docx("a b"), docx("a b", change=italic(14), name="b.docx"))
weak("check_triangle_position", file("a.png", triangle(20, left_alone=True)))
weak("compare_archive", tar("a.tar.gz", "w:xz"), tar("b.tar.gz", "w:gz"))
weak("compare_epub", zipped("a.epub", BOOK), zipped("b.epub", {**BOOK, "z.html": "<p>three</p>"}))
weak("compare_htmls", file("a.html", "<p>one</p>"), file("b.html", "<p>one</p><img>"))
OPAQUE = [file("a.png", picture((*color, 255), mode="RGBA")) for color in ((255, 0, 0), (0, 0, 255))]
weak("compare_image_list", OPAQUE[:1], OPAQUE[1:])
weak("compare_init_lines", EMPTY, docx("a", "b", name="b.docx"))
weak("compare_pdfs", pdf("", "0 0 m 9 9 l S"), pdf("", "0 0 m 9 9 l S 9 0 m 0 9 l S", name="b.pdf"))
weak("compare_pdfs", pictures("red"), pictures("blue", name="b.pdf"))
weak("compare_pptx_files", pptx(gridded("a", "b")), pptx(gridded("a", "c"), "b.pptx"))
weak("compare_pptx_files", pptx(titled("a")), pptx(titled("a", "FF0000"), "b.pptx"))
weak("compare_pptx_files", pptx(titled("a")), pptx(titled("a"), "b.pptx"), examine_title_bottom_position=True)
weak("compare_subscript_contains", docx("H", change=lowered("x")), docx("H", change=lowered("2"), name="b.docx"))
weak(
    "compare_table",
    package(split),
    package(frozen, "b.xlsx"),
    rules=[{"type": "freeze", "sheet_idx0": 0, "sheet_idx1": "EI0"}],
)
NAMED = {"type": "chart", "sheet_idx0": "RNx", "sheet_idx1": "ENx", "chart_props": ["type"]}
weak("compare_table", package(cell("a")), package(cell("a"), "b.xlsx"), rules=[NAMED])
weak("compare_table", workbook(["a", "b"], [1, "NA"]), workbook(["a", "b"], [1, None]), rules=[SHEETS])
weak("evaluate_alignment", docx("one two three four five."))
weak(
    "evaluate_colored_words_in_tables",
    docx("a", change=lambda made: colored(made, "at by")),
    docx("a", change=tabled("at by", "by"), name="b.docx"),
)
weak("evaluate_colored_words_in_tables", docx("a"), docx("a", change=tabled("at", "by"), name="b.docx"))
weak("evaluate_strike_through_last_paragraph", docx("a b", "c d", ""), docx("a b", "c d", name="b.docx"))
LINKED = [docx("a b", "c d", change=linked_last(struck)) for struck in (True, False)]
weak("evaluate_strike_through_last_paragraph", LINKED[1], docx("a b", "c d", name="b.docx"))
weak("has_page_numbers_in_footers", docx("a", change=footed("page 1")))

GRID = tabled("at", "by")


def both(*changes: Any) -> Any:
    return lambda made: [change(made) for change in changes]


honest(
    "compare_docx_images", docx("a", change=pictured(RED)), docx("a", change=both(pictured(RED), linked), name="b.docx")
)
honest("compare_archive", tar("a.tar.gz", "w:gz"), tar("b.tar.gz", "w"))
honest("compare_pdfs", pictures("red"), pictures("red", "b.pdf", "P"))
honest("compare_pdfs", pdf("", "0 0 m 9 9 l S"), pdf("", "9 9 m 4 4 l S 0 0 m 4 4 l S", name="b.pdf"))
honest("evaluate_alignment", docx("Mr. Smith went to\ttown. They saw tea,  and Mr. Black came at noon."))
honest("evaluate_strike_through_last_paragraph", LINKED[0], docx("a b", "c d", name="b.docx"))
honest("compare_init_lines", docx("a"), docx("a", "", "", name="b.docx"))
honest("check_italic_font_size_14", docx("a b"), docx("a b", name="b.docx"))
honest(
    "evaluate_colored_words_in_tables", docx("a", change=colored), docx("a", change=both(GRID, linked), name="b.docx")
)
UNSEEN = [picture(color, mode="RGBA", box=(1, 2, 3, 255)) for color in ((255, 0, 0, 0), (0, 0, 0, 0))]
honest("compare_image_list", [file("a.png", UNSEEN[0])], [file("b.png", UNSEEN[1])])
honest("check_triangle_position", file("a.png", holed(triangle(20))))
THEMED = [pptx(titled("a", theme=theme)) for theme in (MSO_THEME_COLOR.TEXT_1, MSO_THEME_COLOR.DARK_1)]
honest("compare_pptx_files", *THEMED)
honest("compare_pptx_files", pptx(titled(" ")), pptx(titled(" ", "FF0000"), "b.pptx"))
honest("compare_table", workbook(["a", "b"], [1, None]), workbook(["a", "b"], [1, "#N/A"]), rules=[SHEETS])


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"cases": CASES, "weak": WEAK, "honest": HONEST}))
