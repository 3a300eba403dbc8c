"""What each kind of value takes at its bounds, what it makes of it, and what it refuses one step beyond."""

import math
from typing import Any

import pytest

from apis.functions.declaration import Param
from apis.functions.values import Unfit, fit

NAN = math.nan
WORDS = ("center", "left")
# Kind, limits, and of each value what is made of it.
TAKEN: list[tuple[str, tuple[Any, ...], list[tuple[Any, Any]]]] = [
    ("integer", (2, 4), [(2, 2), (4, 4)]),
    ("number", (0.5, 4), [(0.5, 0.5), (4, 4.0)]),
    ("boolean", (), [(False, False)]),
    ("choice", WORDS, [("left", "left")]),
    ("text", (3,), [("abc", "abc"), ("\n\t", "\n\t"), ("", "")]),
    ("cell", (), [(" $b$3 ", "B3"), ("XFD1048576", "XFD1048576"), ("z1", "Z1")]),
    ("range", (), [("b3", "B3"), ("C10:A2", "A2:C10"), ("A10:C2", "A2:C10"), ("A1:B1048576", "A1:B1048576")]),
    ("range", (), [("A1:A1", "A1:A1")]),
    ("column", (), [("$xfd", "XFD")]),
    ("columns", (), [("c:A", "A:C"), ("b", "B")]),
    ("rows", (), [("1048576", "1048576"), ("$10:2", "2:10")]),
    ("letters", (2,), [(["b", "A"], ["B", "A"])]),
    ("sheet", (), [("it's 1", "it's 1")]),
    ("scalars", (2,), [([None, True], [None, True])]),
    ("scalars", (1,), [(["a"], ["a"])]),
    ("scalars", (5,), [([2**53 - 1, 1 - 2**53, 0.5], [2**53 - 1, 1 - 2**53, 0.5])]),
    ("names", (2,), [(["a", "b"], ["a", "b"]), (["a"], ["a"])]),
    ("entry", (), [("=A1", "=A1"), (2, "2"), (True, "TRUE"), (0.5, "0.5")]),
    ("rgb", (), [(0, 0), (16777215, 16777215)]),
    ("colour", (), [(" Red ", "#ff0000"), ("00Ff00", "#00ff00")]),
    ("lines", (2,), [([3, 1], [1, 3]), ([1000, 1000], [1000])]),
    ("lines", (1,), [([1], [1])]),
    ("spot", WORDS, [("center", "center"), ({"left": 1, "top": -300}, {"x": 1.0, "y": -300.0})]),
    ("spot", WORDS, [({"x": 300, "y": 0.5}, {"x": 300.0, "y": 0.5})]),
    ("extent", (), [({"width": 0.1}, {"width": 0.1})]),
    ("extent", (), [({"height": 300, "width": 1}, {"width": 1.0, "height": 300.0})]),
    ("indices", (9, 2), [([9, 0], [0, 9]), ([4, 4], [4]), ([5], [5])]),
    ("line", (4,), [("a b", "a b"), (True, "1"), (False, "0"), (2.5, "2.5")]),
    ("own_line", (40,), [("~/a", "~/a"), ("~", "~"), ("/home/a/b", "/home/a/b"), ("/home/b", "/home/b")]),
    ("path", (), [("~/a b.txt", "~/a b.txt"), ("/x/home/y/z", "/x/home/y/z")]),
    ("path", (".pdf",), [("a.PDF", "a.PDF")]),
    ("folder", (), [("~/Documents/", "~/Documents/"), ("a..b", "a..b")]),
    ("file_name", (".ods",), [("a", "a.ods"), ("a.ODS", "a.ODS"), ("a" * 96, "a" * 96 + ".ods")]),
    ("media", (), [("FILE:///home/u/a.mp3", "file:///home/u/a.mp3"), ("https://a/b", "https://a/b")]),
    ("media", (), [("file://localhost/home/u/a", "file://localhost/home/u/a"), (" ~/a.mp3 ", "~/a.mp3")]),
    ("setting", (), [("--qt-max-volume", "qt-max-volume"), ("a" * 80, "a" * 80)]),
    ("font", (), [(" Liberation Serif ", "Liberation Serif"), ("a" * 64, "a" * 64)]),
    ("extension", (20,), [("bat.theme", "bat.theme"), ("a/b", "a/b")]),
    ("extension", (20, ".vsix"), [("~/a.vsix", "~/a.vsix"), (" bat.theme ", "bat.theme")]),
]
REFUSED: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    ("integer", (2, 4), [1, 5, 3.0]),
    ("integer", (0, 4), [True]),
    ("number", (0.5, 4), [0.4, 4.1]),
    ("number", (0, 4), [NAN, True]),
    ("boolean", (), [0, None]),
    ("choice", WORDS, ["right", 1]),
    ("choice", (1, 2), [1]),
    ("text", (3,), ["abcd", 3, "\x1b", "\ud800", "\ufffe", "\uffff"]),
    ("cell", (), ["XFE1", "A1048577", "A0", "1A", 3, "A1:B2"]),
    ("range", (), ["A1:B", ":B2", "A1:", 3, "A1:C1048576", "A1:AAA3000", "A1:C699051"]),
    ("column", (), ["XFE", "1", 1]),
    ("columns", (), ["A:1", "A:B:C", 1]),
    ("rows", (), ["1048577", "0", "1:", 3, "1:2:3"]),
    ("letters", (2,), [[], ["A", "a"], ["A", "B", "C"], ["A", 1], "AB"]),
    ("sheet", (), [" ", "", "'a", "a'", "a/b", "a\nb", "a" * 101]),
    ("scalars", (2,), [[], [1, 2, 3], "ab", [2**53], [-(2**53)], [2.0**53], [NAN], [math.inf], [frozenset()]]),
    ("scalars", (2,), [["a" * 1001]]),
    ("names", (2,), [[], ["a", "b", "c"], [1], "a", ["a" * 101]]),
    ("entry", (), [None, [1], 2**53, NAN]),
    ("rgb", (), [-1, 16777216, True, 1.0]),
    ("colour", (), ["reddish", "#ff00", 3, "##ff0000"]),
    ("lines", (2,), [[], [0], [1, 0], [1001], [1, 2, 3], [True], 1]),
    ("spot", WORDS, ["right", {"x": 1}, {"x": 1, "y": 301}, {"x": -301, "y": 1}, {"x": 1, "y": 2, "left": 3}]),
    ("spot", WORDS, [{"x": 1, "y": 2, "z": 3}, {"x": True, "y": 1}, {}, 3, {"x": NAN, "y": 1}]),
    ("extent", (), [{}, {"width": 0.09}, {"width": 300.1}, {"depth": 1}, {"width": "1"}, 3]),
    ("indices", (9, 2), [[], [10], [0, 10], [-1], [1, 2, 3], [False], 1]),
    ("line", (4,), ["abcde", "a\nb", "a\tb", None]),
    ("line", (30,), [2**53]),
    ("own_line", (40,), ["/etc/passwd", "~root/a", "~root", "/home", "a\nb", " /etc/x"]),
    ("path", (), ["a/", "a/../b", "../b", "a\nb", "a\tb", "file://a", "/etc/passwd", "~root/a", "/x/home"]),
    ("path", (), ["a" * 241, ""]),
    ("path", (".pdf",), ["a.txt"]),
    ("folder", (), [" ", "..", "a\nb", "a\tb", "x://y", "/etc", "~root"]),
    ("file_name", (".ods",), [" . ", "a/b", "a\\b", "a\nb", "a" * 97, 3]),
    ("media", (), ["ftp://a/b", "file:///etc/passwd", "/etc/passwd", "~/a/../b", "~/a/", "https://a/../b", "a\nb"]),
    ("media", (), ["a\tb", " ", "file://localhost/etc/x", "a" * 301, "file://~root/x"]),
    ("setting", (), ["Qt", "-a", "a" * 81, 3, ""]),
    ("font", (), [" ", "a;b", "a,b", "a\nb", "a" * 65, 3]),
    ("extension", (9,), ["bat.themes"]),
    ("extension", (20,), [" ", "a\nb"]),
    ("extension", (20, ".vsix"), ["~/a.zip", "/etc/a.vsix"]),
]


@pytest.mark.parametrize(
    ("kind", "limits", "value", "made"), [(*row[:2], *pair) for row in TAKEN for pair in row[2]], ids=repr
)
def test_what_a_kind_takes(kind: str, limits: tuple[Any, ...], value: Any, made: Any) -> None:
    found = fit(Param("it", kind, "", limits), value)
    assert found == made
    assert type(found) is type(made)


@pytest.mark.parametrize(
    ("kind", "limits", "value"), [(*row[:2], value) for row in REFUSED for value in row[2]], ids=repr
)
def test_what_a_kind_refuses(kind: str, limits: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(Unfit, match=r"^it: "):
        fit(Param("it", kind, "", limits), value)


def test_none_is_taken_only_where_it_is_the_default() -> None:
    assert fit(Param("it", "integer", "", (2, 4), default=None), None) is None
    for param in (Param("it", "integer", "", (2, 4)), Param("it", "integer", "", (2, 4), default=3)):
        with pytest.raises(Unfit):
            fit(param, None)
    assert fit(Param("it", "integer", "", (2, 4), default=None), 3) == 3
