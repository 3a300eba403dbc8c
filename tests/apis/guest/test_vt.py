"""The terminal's screen as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.guest.screen.terminals import MARKS_MAX, Screen, last_lines

SHOWN = {
    "plain": ("ab\r\ncd", ["ab", "cd"]),
    "colours and titles": ("\x1b[1;31ma\x1b[0m\x1b]0;title\x07b\x1b(B", ["ab"]),
    "a tab and a bell": ("a\tb\x07", ["a       b"]),
    "overwritten": ("abc\rX\b\bY", ["Ybc"]),
    "a wrapped line": ("x" * 12, ["x" * 10, "xx"]),
    "moved about": ("\x1b[2;3Ha\x1b[Ab\x1b[1Gc\x1b[Bd", ["c  b", " da"]),
    "erased": ("abcdef\x1b[3D\x1b[K\r\x1b[1P\x1b[1@Z", ["Zbc"]),
    "cleared": ("abc\r\ndef\x1b[H\x1b[2Jx", ["x"]),
    "scrolled": ("1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"]),
    "a region scrolled": ("\x1b[2;3r\x1b[1;1Ha\x1b[3;1Hb\ncd", ["a", "b", " cd"]),
    "lines inserted and deleted": ("a\r\nb\r\nc\x1b[1;1H\x1b[1L\x1b[3;1H\x1b[1M", ["", "a", "c"]),
    "the second screen and back": ("keep\x1b[?1049h\x1b[Hother\x1b[?1049l!", ["keep!"]),
    "saved and restored": ("a\x1b7bc\x1b8X", ["aXc"]),
    "beyond ASCII": ("ü→e\u0301\u202e字", ["ü→e\u0301字"]),
    "two cells each": ("日本語\x1b[7G|", ["日本語|"]),
    "two cells do not fit": ("x" * 9 + "日本", ["x" * 9, "日本"]),
    "signs of two code points": ("❤\ufe0f!👩\u200d👧|\x1b[9G", ["❤\ufe0f!👩\u200d👧|"]),
    "a mark on two cells": ("か\u3099は\u309a\x1b[5G|", ["か\u3099は\u309a|"]),
    "a syllable of three parts": ("\u1112\u1161\u11ab.x|\x1b[3Gy", ["\u1112\u1161\u11abyx|"]),
    "a colour of skin": ("👍🏽x", ["👍🏽x"]),
    "half overwritten": ("日本\x1b[2Gx\x1b[3Gy", [" xy"]),
    "half erased": ("日本\x1b[4G\x1b[K", ["日"]),
    "inserted": ("abc\x1b[1G\x1b[4hx日\x1b[4ly", ["x日ybc"]),
    "not wrapped": ("\x1b[?7l0123456789ab\x1b[?7hc", ["012345678b", "c"]),
    "not wrapped, two cells": ("\x1b[?7l012345678日本", ["01234567本"]),
    "from the origin": ("\x1b[2;3r\x1b[?6h\x1b[1;1Ha\x1b[9;2Hb\x1b[?6l\x1b[1;1Hc", ["c", "a", " b"]),
    "below what scrolls": ("\x1b[1;2ra\x1b[4;1Hb\nc\x1b[r\x1b[4;3Hd", ["a", "", "", "bcd"]),
    "lines drawn": ("\x1b(0lqk\x1b(Bq\x0eq", ["┌─┐qq"]),
    "scrolled by lines": ("1\r\n2\r\n3\r\n4\x1b[2S\x1b[T", ["", "3", "4"]),
    "a line deleted over a blank one": ("a\r\nb\x1b[1;1H\x1b[2M", [""]),
    "repeated": ("ab\x1b[3b\x1b[m\x1b[9b", ["abbbb"]),
    "a tab back": ("\t\x1b[Za", ["a"]),
    "strings that show nothing": ("\x1bP+q436f\x1b\\\x1b[>4;2m\x1b[4:3m\x1b[!p\x1b[2 q\x1b^x\x1b\\\x1b*Ba", ["a"]),
    "numbers that are none": ("\x1b[1;2;3;4A\x1b[9K\x1b[9J\x1b[?9r\x1b[?5h\x1b[99999999b\x1b[?6h\x1b[2dx", ["", "x"]),
    "saved on each screen": ("ab\x1b7\x1b[?1049h\x1b8c\x1b[?1049ld\x1b8e", ["abe"]),
    "an unknown sequence": ("a\x1b[5;6yb\x1b%Gc", ["abc"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_shows(name: str) -> None:
    written, lines = SHOWN[name]
    screen = Screen(4, 10)
    screen.feed(written)
    assert screen.lines() == lines + [""] * (4 - len(lines))


@given(st.sampled_from(sorted(SHOWN)), st.data())
def test_what_comes_in_pieces_shows_the_same(name: str, data: st.DataObject) -> None:
    written, lines = SHOWN[name]
    screen = Screen(4, 10)
    while written:
        count = data.draw(st.integers(1, len(written)))
        screen.feed(written[:count])
        written = written[count:]
    assert screen.lines() == lines + [""] * (4 - len(lines))


@given(
    st.lists(
        st.text()
        | st.from_regex(r"\x1b\[[?0-9;]{0,12}[@-~]")
        | st.sampled_from([*"\r\n\b\t日\u0301", "\x1bM", "\x1bD", "\x1bc", "\x1b[?6h", "\x1b[4h", "\x1b[2;3r"]),
        max_size=30,
    ),
    st.integers(-1, 300),
    st.integers(-1, 600),
)
@pytest.mark.slow
def test_whatever_is_written_the_screen_keeps_its_size_and_holds_no_control(
    parts: list[str], rows: int, columns: int
) -> None:
    screen = Screen(rows, columns)
    screen.feed("".join(parts))
    lines = screen.lines()
    assert len(lines) == screen.rows <= 200
    assert all(len(line) <= screen.columns * (1 + MARKS_MAX) <= 4500 for line in lines)
    assert all(char >= " " and not "\x7f" <= char < "\xa0" for line in lines for char in line)


@given(st.lists(st.text("abc ", max_size=12).map(str.rstrip), max_size=8), st.integers(1, 40))
def test_the_last_lines_fit_and_are_whole(lines: list[str], limit: int) -> None:
    text = last_lines(lines, limit)
    assert len(text) <= limit
    filled = [line for line in lines if line]
    if filled and len(filled[-1]) <= limit:
        assert text.split("\n")[-1] == filled[-1]
        assert set(text.split("\n")) <= set(lines)
