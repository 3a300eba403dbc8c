"""What a small model is shown of a text document."""

from hypothesis import given
from hypothesis import strategies as st

from apis.apps.writer import PARAGRAPHS, nearest, ranked
from apis.observation import Element


def thing(tag: str, name: str, *states: str) -> Element:
    return Element(tag, name, "", 0, 0, 10, 10, ("sen", *states))


def test_what_is_worked_with_comes_first() -> None:
    seen = [
        thing("menu", "File"), thing("document-text", "paper"), thing("paragraph", "one"), thing("paragraph", "two"),
        thing("push-button", "Close"), thing("push-button", "Bold", "bar"), thing("push-button", "Footnote", "bar"),
        thing("text", "Font Name", "bar"), thing("check-menu-item", "Ruler"), thing("text", "Paragraph Style"),
    ]  # fmt: skip
    assert [element.name for element in ranked(seen)] == [
        "Ruler", "one", "two", "Close", "Font Name", "Paragraph Style", "File", "Bold",
    ]  # fmt: skip


def test_an_empty_view_still_has_the_document() -> None:
    assert [element.name for element in ranked([thing("menu", "File"), thing("document-text", "paper")])] == [
        "paper",
        "File",
    ]


@given(st.integers(0, 100), st.integers(0, 99))
def test_paragraphs_around_the_caret_are_kept(count: int, current: int) -> None:
    seen = [thing("paragraph", str(at), *(["foc"] if at == current else [])) for at in range(count)]
    kept = nearest(seen)
    assert len(kept) == min(count, PARAGRAPHS)
    assert [int(each.name) for each in kept] == sorted(int(each.name) for each in kept)
    assert current >= count or str(current) in {each.name for each in kept}
