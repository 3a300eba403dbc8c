"""Twins of metrics of workbooks' cells, text documents, texts, JSON and applications' settings."""

from __future__ import annotations

from apis.documents.docx import Run
from apis.documents.zip import zipped
from tests.apis.twins.twin import Twin, book, file, paper

GOLD = book(["item", "price"], ["tea", 3.5], ["milk", 2])
UNTOUCHED = book(["item", "price"], ["tea", 3.5])
DATA = {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}
NAMED = {"type": "sheet_data", "sheet_idx0": "RNSheet2", "sheet_idx1": "ENSheet2"}
TWO = book(["a"], Sheet2=[["b", 1]])
FUZZY = {
    "type": "sheet_fuzzy",
    "sheet_idx0": "RNSheet1",
    "sheet_idx1": "ENSheet1",
    "rules": [
        {"range": ["B2:B3"], "type": "exact_match"},
        {"range": ["A2:A3"], "type": "fuzzy_match", "threshold": 80, "ignore_case": True},
    ],
}
CELL = {
    "type": "check_cell",
    "sheet_idx": 0,
    "coordinate": "B2",
    "props": {"value": {"method": "approx:0.001", "ref": 3.5}},
}
SAID = paper("one two", "three")
FILTER = 'version="9"\nname="x"\nenabled="yes"\nactionValue="%s"\ncondition="AND (subject,contains,sale)"\n'
FILTERS = {"expect": [{"enabled": "yes", "actionValue": "a@b.c", "condition": ["AND (subject,contains,sale)"]}]}
VLCRC = "[qt]\n#qt-max-volume=125\n%s\n"
MAIL = "From - Fri\nX-Mozilla-Status: %s\nSubject: %s\n\ntext\n\n"
CLOCK = "Local time: x\nUniversal time: x\nRTC time: x\n               Time zone: %s\n"
BAR = {"bookmark_bar": {"children": [{"type": "url", "url": "https://a.org/b"}]}}
PAGES = {"type": "bookmark_bar_websites_urls", "urls": ["https://a.org/b"]}
ZIP = zipped({"a.txt": b"one", "b/c.txt": b"two"})

TWINS = [
    Twin(
        "check_thunderbird_folder",
        file(MAIL % ("0001", "one") + MAIL % ("0000", "two")),
        {"ignore_status": True},
        file(MAIL % ("0000", "two") + MAIL % ("0000", "one") + MAIL % ("0009", "three")),
        [file(MAIL % ("0001", "one")), file(MAIL % ("0001", "one") + MAIL % ("0000", "three")), file("")],
    ),
    Twin(
        "check_gnome_favorite_apps",
        {"expected": ["a.desktop", "b.desktop"]},
        {},
        "['b.desktop', 'a.desktop']\n",
        ["['b.desktop']\n", "['b.desktop', 'a.desktop', 'a.desktop']\n", "@as []\n"],
    ),
    Twin(
        "compare_table",
        GOLD,
        {"rules": [DATA]},
        book(["item", "price"], ["tea", 3.50001], ["milk", 2]),
        [
            book(["item", "price"], ["tea", 3.51], ["milk", 2]),
            book(["item", "price"], ["tea", "3,5"], ["milk", 2]),
            book(["item", "price"], ["tea", 3.5], ["milk", 2], [None, "x"]),
            UNTOUCHED,
        ],
    ),
    Twin(
        "compare_table",
        GOLD,
        {"rules": [DATA]},
        book(["item", "price"], ["tea", "3.5"], ["milk", 2]),
        [book(["item", "price"], ["tea", "3.5"], ["milk", "two"]), book(["item", "3.5"], ["tea", 2]), UNTOUCHED],
    ),
    Twin(
        "compare_table",
        TWO,
        {"rules": [DATA, NAMED]},
        TWO,
        [book(["a"], Sheet2=[["b", 2]]), book(["a"], Sheet3=[["b", 1]]), book(["a"])],
    ),
    Twin(
        "compare_table",
        TWO,
        {"rules": [{"type": "sheet_name"}]},
        book(["other"], Sheet2=[["x"]]),
        [book(["a"], Sheet3=[["b"]]), book(["a"])],
    ),
    Twin(
        "compare_table",
        GOLD,
        {"rules": [FUZZY]},
        book(["", ""], ["TEAS", 3.5], ["milk", 2]),
        [book(["", ""], ["tea", 3.4], ["milk", 2]), book(["", ""], ["coffee", 3.5], ["milk", 2]), UNTOUCHED],
    ),
    Twin(
        "compare_table",
        None,
        {"rules": [CELL]},
        book([""], ["x", 3.5004]),
        [book([""], ["x", 3.6]), book([""], ["x", "3.5."]), book(["", 3.5])],
    ),
    Twin(
        "compare_table",
        None,
        {"rules": [CELL]},
        book([""], ["x", "3.5"]),
        [book([""], ["x", "3.6"]), book([""], ["x", "y"]), book(["", "3.5"])],
    ),
    Twin(
        "compare_table",
        book(["Tea"]),
        {"rules": [DATA | {"ignore_case": True}]},
        book(["Tea"]),
        [book(["TEA"]), book(["tee"]), book([None, "tea"]), book([""])],
    ),
    Twin(
        "compare_spreadsheet",
        GOLD,
        {"answer_position": "'Sheet1'!B2:B3"},
        book(["thing"], ["tea", "3.5001"], ["milk", 2], ["more"]),
        [
            book(["item", "price"], ["tea", 3.51], ["milk", 2]),
            book(["item", "price"], ["tea", 3.5], ["milk", "two"]),
            book([""], Sheet2=[["item", "price"], ["tea", 3.5], ["milk", 2]]),
            UNTOUCHED,
        ],
    ),
    Twin(
        "compare_docx_files",
        SAID,
        {},
        paper("one  two", "", "three"),
        [paper("one two", "three."), paper("three", "one two"), paper("one")],
    ),
    Twin(
        "compare_docx_files",
        SAID,
        {"ignore_blanks": False},
        paper("one two", "three"),
        [paper("one  two", "three"), paper("one two", "", "three"), paper("one")],
    ),
    Twin(
        "compare_docx_files",
        SAID,
        {"ignore_case": True, "ignore_order": True},
        paper("three", "ONE two"),
        [paper("three", "ONE"), paper("three"), paper("one")],
    ),
    Twin("compare_docx_files", SAID, {"fuzzy_match": True}, SAID, [paper("one two", "thre"), paper("one")]),
    Twin(
        "compare_docx_files_and_ignore_new_lines",
        SAID,
        {},
        paper("one  two", "", "three"),
        [paper("one two", "threes"), paper("onetwo", "three"), paper("one")],
    ),
    Twin(
        "compare_docx_files_and_ignore_new_lines",
        SAID,
        {"ignore_blanks": False},
        paper("one two", "", "three"),
        [paper("one  two", "three"), paper("one two three"), paper("one")],
    ),
    Twin(
        "simple_docx_compare",
        paper([Run("a", bold=True)], "b"),
        {},
        paper("", [Run("a")], [Run("b", bold=True)]),
        [paper("a", "b "), paper("a", "b", "c"), paper("b", "a"), paper("a")],
    ),
    Twin(
        "compare_text_file",
        file("one\ntwo\n"),
        {},
        file("one\ntwo\n"),
        [file("one\ntwo"), file("One\ntwo\n"), file("")],
    ),
    Twin(
        "compare_text_file",
        file("one two"),
        {"ignore_blanks": True, "ignore_case": True},
        file(" One\ttwo\n"),
        [file("onetwo"), file("one two three"), file("")],
    ),
    Twin(
        "diff_text_file", file("a\nb\nc\nd"), {}, file("a\nb\nc\nd\n"), [file("a\nb\nc\nx"), file("a\nb\nc"), file("")]
    ),
    Twin(
        "compare_csv",
        file('a,"b"\n1,2\n'),
        {},
        file('a,"b"\r\n1,2\r\n'),
        [file("a,b\r\n1,2"), file('a,"b"\n1,3\n'), file('a,"b"\n1,2\n3,4\n'), file("")],
    ),
    Twin(
        "compare_csv",
        file("A,b\n1,2\n"),
        {"strict": False, "ignore_case": True},
        file("a,B \n 1,2"),
        [file("a,b\n1, 2"), file("a,b"), file("")],
    ),
    Twin(
        "compare_conference_city_in_order",
        {"expected": ["Oslo", ["New York", "NYC"]]},
        {},
        book(["a", "b", "c"], ["x", 1, "Oslo, Norway"], ["y", 2, "NYC"]),
        [book(["", "", ""], ["", "", "NYC"], ["", "", "Oslo"]), book(["", "Oslo"], ["", "NYC"]), book(["a"])],
    ),
    Twin(
        "check_moved_jpgs",
        {"expected": ["a.jpg", "b.jpg"]},
        {},
        {"children": [{"name": "b.jpg"}, {"name": "a.jpg"}]},
        [{"children": [{"name": "a.jpg"}]}, {"children": [{"name": n} for n in ("a.jpg", "b.jpg", "c")]}, {}],
    ),
    Twin(
        "compare_config",
        {"expected": "x=1\n"},
        {},
        file("x=1\n"),
        [file("x=1"), file("x=2\n"), file("x=1\ny"), file("")],
    ),
    Twin("fuzzy_match", {"expected": "abcd"}, {}, "abcd", ["abce", "ab", ""]),
    Twin("literal_match", "abcd", {"ignore_case": True}, "ABCD", ["abc", "abcde", ""]),
    Twin("literal_match", ["a", "b"], {"type": "list"}, ["a", "b"], [["b", "a"], ["a"], []]),
    Twin(
        "check_json",
        {"expect": [{"key": ["a", 0, "b"], "method": "eq", "ref": 1}]},
        {},
        file('{"a": [{"b": 1}]}'),
        [file('{"a": [{"b": 2}]}'), file('{"a": {"b": 1}}'), file("{}")],
    ),
    Twin(
        "check_json",
        {"expect": [{"key": ["n"], "method": "re", "ref": "^x"}]},
        {"is_yaml": True},
        file("n: xy\n"),
        [file("n: yx\n"), file("m: xy\n"), file("a: &a [x]\nn: *a\n"), file("")],
    ),
    Twin(
        "check_json_settings",
        {"expected": {"a.b": 50}},
        {},
        file('{"a.b": 50, "c": 1}'),
        [file('{"a.b": "50"}'), file('{"a": {"b": 50}}'), file("[50]"), file("{}")],
    ),
    Twin(
        "check_direct_json_object",
        {"expected": {"q": "tea"}},
        {},
        "{'q': 'tea', 'r': '1'}",
        ['{"q": "teas"}', '["q"]', "{}"],
    ),
    Twin(
        "check_direct_json_object",
        {"expected": {"q": ["tea", "milk"]}, "expect_in_result": True},
        {},
        {"q": "milk"},
        [{"q": "a milk"}, {"q": "coffee"}, {"r": "tea"}, {}],
    ),
    Twin(
        "check_list",
        {"expect": ["open\\w+-\\d+"], "unexpect": ["old"]},
        {},
        "x\nopenjdk-17",
        ["openjdk", "openjdk-17 old", ""],
    ),
    Twin("is_extension_installed", {"type": "contain", "expected": "a.b"}, {}, "x\na.b\n", ["x\na.c", "a", ""]),
    Twin("is_extension_installed", {"type": "not_contain", "expected": "a.b"}, {}, "x\n", ["x\na.b", "a.b\n"]),
    Twin("is_extension_installed", {"type": "not_contain", "expected": "a.b"}, {}, "", ["a.b", "a.b\nx"]),
    Twin(
        "compare_zip_files",
        file(ZIP),
        {},
        file(zipped({"b/c.txt": b"two", "a.txt": b"one"})),
        [file(zipped({"a.txt": b"one", "b/c.txt": b"twO"})), file(zipped({"a.txt": b"one"})), file(ZIP[:-9])],
    ),
    Twin(
        "check_qt_max_volume",
        {"expected_qt_max_volume": 200},
        {},
        file(VLCRC % "qt-max-volume=200"),
        [file(VLCRC % "qt-max-volume=20"), file(VLCRC % "#qt-max-volume=200"), file(VLCRC % "")],
    ),
    Twin(
        "check_qt_bgcone",
        {"expected_qt_bgcone": 0},
        {},
        file(VLCRC % "qt-bgcone=0"),
        [file(VLCRC % "qt-bgcone=1"), file(VLCRC % "#qt-bgcone=0"), file(VLCRC % "")],
    ),
    Twin(
        "check_qt_minimal_view",
        {"expected_qt_minimal_view": 1},
        {},
        file(VLCRC % "qt-minimal-view=1"),
        [file(VLCRC % "qt-minimal-view=0"), file(VLCRC % "#qt-minimal-view=1"), file(VLCRC % "")],
    ),
    Twin(
        "check_one_instance_when_started_from_file",
        {"expected_one_instance_when_started_from_file": 0},
        {},
        file(VLCRC % "one-instance-when-started-from-file=0"),
        [file(VLCRC % "one-instance-when-started-from-file=1"), file(VLCRC % "one-instance=0"), file(VLCRC % "")],
    ),
    Twin(
        "check_qt_slider_colours",
        {"type": "blackish"},
        {},
        file(VLCRC % f"qt-slider-colours={';'.join(['9'] * 12)}"),
        [
            file(VLCRC % f"qt-slider-colours={';'.join(['9'] * 11)};200"),
            file(VLCRC % "qt-slider-colours=0"),
            file(VLCRC % ""),
        ],
    ),
    Twin(
        "check_thunderbird_prefs",
        {"expect": {"a.b": {"method": "eq", "ref": False}}},
        {},
        file('user_pref("a.b", false);\n'),
        [file('user_pref("a.b", 0);\n'), file('// user_pref("a.b", false);\n'), file('user_pref("c", 1);\n')],
    ),
    Twin(
        "check_thunderbird_filter",
        FILTERS,
        {},
        file(FILTER % "a@b.c"),
        [file(FILTER % "a@b.d"), file((FILTER % "a@b.c").replace("yes", "no")), file('version="9"\n')],
    ),
    Twin(
        "check_config_status",
        {"type:": "key-value", "key": "theme", "value": '"Light"'},
        {},
        file('# x\n(theme "Light")\n'),
        [file('(theme "Dark")\n'), file('# (theme "Light")\n'), file("# x\n")],
    ),
    Twin("is_utc_0", None, {}, CLOCK % "UTC (UTC, +0000)", [CLOCK % "Europe/Oslo (CET, +0100)", CLOCK % "UTC", ""]),
]
