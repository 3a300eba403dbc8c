"""Twins of metrics of text documents, texts, JSON and settings by their options."""

from __future__ import annotations

from tests.apis.twins.documents import BREAK, docx, odt, para, stretch
from tests.apis.twins.general import FILTER, SAID, VLCRC
from tests.apis.twins.pictures import GOLD as PICTURE
from tests.apis.twins.pictures import HALVED, MIRROR, OTHER, PLAIN, SPECK, TURNED, saved
from tests.apis.twins.twin import Twin, file, paper

FOLDERS = {"type": "bookmark_bar_folders_names", "names": ["Liked", "Read"]}


def bar(*names: str, kind: str = "folder") -> dict[str, object]:
    """A bookmark bar with folders of these names."""
    return {"bookmark_bar": {"children": [{"type": kind, "name": name, "children": []} for name in names]}}


def filters(*conditions: str) -> str:
    """Thunderbird's filters of mail with these conditions."""
    one = 'name="x"\nenabled="yes"\ntype="17"\naction="Mark read"\ncondition="%s"\n'
    return 'version="9"\nlogging="no"\n' + "".join(one % condition for condition in conditions)


def preferences(*lines: str) -> bytes:
    """Thunderbird's preferences, each a name and a value."""
    return "".join(f"user_pref({line});\n" for line in lines).encode()


SERVER = {"expect": {"a.port": {"method": "ge", "ref": 90}, "a.host": {"method": "re.I", "ref": r"^mail\."}}}
COLORS = "1;2;3;4;5;6;7;8;9;10;11;12"
WANTED = {"expect": [{"enabled": "yes"}], "unexpect": [{"actionValue": "a@b.c"}]}
RULES = {
    "expect": [{"key": ["a"], "method": "ne", "ref": 1}, {"key": ["b", "c"], "method": "lt", "ref": 5}],
    "unexpect": [{"key": ["d"], "method": "eq", "ref": "x"}],
}
TWINS = [
    Twin(
        "compare_docx_files", SAID, {"content_only": True}, paper("one", "two  three"),
        [paper("one two", "thre"), paper("three one two"), paper("one")],
    ),
    Twin(
        "compare_docx_files", SAID, {"content_only": True, "ignore_case": True}, paper("ONE two", "three"),
        [paper("ONE two", "thre"), paper("onetwo", "three"), paper("ONE")],
    ),
    Twin(
        "compare_docx_files", SAID, {"ignore_blanks": True}, paper("one   two", " three "),
        [paper("onetwo", "three"), paper("One two", "three"), paper("one")],
    ),
    Twin(
        "compare_docx_files", SAID, {"ignore_blanks": True, "ignore_case": True}, paper("ONE  two", "three"),
        [paper("onetwo", "three"), paper("one two", "four"), paper("one")],
    ),
    Twin(
        "compare_docx_files", SAID, {"ignore_blanks": False, "delete_empty_lines": True}, paper("one two", "", "three"),
        [paper("one  two", "three"), paper("one two", "x", "three"), paper("one")],
    ),
    Twin(
        "compare_docx_files", SAID, {"ignore_blanks": False, "ignore_case": True}, paper("One two", "THREE"),
        [paper("One  two", "three"), paper("one", "two three"), paper("one")],
    ),
    Twin(
        "compare_docx_files", SAID, {"ignore_blanks": False, "fuzzy_match": True}, SAID,
        [paper("one two", "thre"), paper("one two three"), paper("one")],
    ),
    Twin(
        "compare_docx_files", odt("<text:p>one two</text:p>"), {}, odt("<text:p>one  two</text:p><text:p/>"),
        [odt("<text:p>one twos</text:p>"), odt("<text:p>two one</text:p>"), odt("<text:p>one</text:p>")],
    ),
    Twin(
        "compare_text_file", file("one two\n"), {"ignore_blanks": True}, file(" one\n two"),
        [file("onetwo"), file("One two"), file("")],
    ),
    Twin(
        "compare_text_file", file("one two\n"), {"ignore_case": True}, file("One TWO\n"),
        [file("one two"), file("one  two\n"), file("")],
    ),
    Twin("literal_match", "abcd", {}, "abcd", ["ABCD", "abcd ", ""]),
    Twin("check_include_exclude", {"include": ["true", "ok"]}, {}, "ok: true\n", ["ok: True", "true", "no"]),
    Twin("check_include_exclude", {"exclude": ["error"]}, {}, "ok\n", ["an error", "errors: 0", "error"]),
    Twin("check_list", {"expect": ["^a", "z$"]}, {}, "ab\nyz", ["ba\nyz", "ab\nzy", "x"]),
    Twin("check_list", {"unexpect": ["old"]}, {}, "new\nnewer", ["new\nold", "older", "old"]),
    Twin("check_json", RULES, {}, file('{"a": 2, "b": {"c": 4}, "d": "y"}'), [
        file('{"a": 1, "b": {"c": 4}, "d": "y"}'), file('{"a": 2, "b": {"c": 5}, "d": "y"}'),
        file('{"a": 2, "b": {"c": 4}, "d": "x"}'), file('{"a": 1}'),
    ]),
    Twin(
        "check_direct_json_object", {"expected": {"q": "tea"}, "expect_in_result": True, "result_not_list": True}, {},
        {"q": "green tea"}, [{"q": "te a"}, {"q": "milk"}, {"r": "tea"}, {}],
    ),
    Twin(
        "is_expected_bookmarks", FOLDERS, {}, bar("Read", "Liked"),
        [bar("Read"), bar("Read", "liked"), bar("Read", "Liked", kind="url"), bar()],
    ),
    Twin("check_thunderbird_prefs", SERVER, {}, file(preferences('"a.port", 995', '"a.host", "Mail.x"')), [
        file(preferences('"a.port", 89', '"a.host", "mail.x"')), file(preferences('"a.port", 995', '"a.host", "x"')),
        file(preferences('"a.port", 995')), file(preferences('"b", 1')),
    ]),
    Twin("check_thunderbird_prefs", {"unexpect": {"a": {"method": "eq", "ref": True}}}, {}, file(
        preferences('"a", false', '"b", 1')
    ), [file(preferences('"a", true')), file(preferences('"b", 1', '"a", true')), file(preferences('"a",  true'))]),
    Twin("check_thunderbird_filter", WANTED, {}, file(FILTER % "x@y.z"), [
        file(FILTER % "a@b.c"), file((FILTER % "x@y.z").replace("yes", "no")), file('version="9"\n'),
    ]),
    Twin(
        "check_qt_slider_colours", {"type": "match", "expected_qt_slider_colours": COLORS}, {},
        file(VLCRC % f"qt-slider-colours={COLORS}"),
        [file(VLCRC % f"qt-slider-colours={COLORS};1"), file(VLCRC % "qt-slider-colours=1"), file(VLCRC % "")],
    ),
    *(
        Twin(f"check_{name}", {f"expected_{name}": default}, {}, file(VLCRC % ""), [
            file(VLCRC % f"{key}={other}"), file(VLCRC % f"#x=1\n{key}={other}"), file(VLCRC % f"{key}={other}\nx=1"),
        ])
        for name, default, other in (
            ("qt_max_volume", 125, 200), ("qt_bgcone", 1, 0), ("qt_minimal_view", 0, 1),
            ("one_instance_when_started_from_file", 1, 0),
        )
        for key in (name.replace("_", "-"),)
    ),
    Twin("compare_csv", [file("a,b\n"), file("a;b\n")], {}, file("a;b\n"), [file("a b\n"), file("a;b,\n"), file("")]),
    Twin(
        "contains_page_break", {}, {}, docx(para(stretch("a"), BREAK)),
        [docx(para(stretch("a"))), docx(para(stretch("a"), "<w:r><w:br/></w:r>")), docx(para())],
    ),
    Twin("literal_match", ["a", "b"], {"type": "list", "ignore_case": True}, ["A", "b"], [["B", "a"], ["a"], []]),
    Twin(
        "check_thunderbird_filter", {"expect": [{"condition": ["OR (from,is,a@b.c)", "OR (to,is,x)"]}]}, {},
        file(filters("AND (to,is,x)", "OR (from,is,a@b.c) OR (to,is,x)")),
        [file(filters("OR (from,is,a@b.c)")), file(filters("AND (from,is,a@b.c) OR (to,is,x)")), file(filters("ALL"))],
    ),
    Twin("compare_images", PICTURE, {"reference_base_result": 0.54}, PICTURE, [MIRROR, OTHER, TURNED]),
    Twin("check_image_size", {"width": 48}, {}, SPECK, [HALVED, TURNED, saved(PLAIN.resize((47, 40)))]),
]  # fmt: skip
