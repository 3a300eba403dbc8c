"""The check of text documents: it accepts what is wanted, and not one word, look or paragraph more, less or other."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apis.tasks.verify.documents import text_document_is
from apis.tasks.verify.spans import Paragraph, TextSpan
from apis.tasks.verify.verify import FileView, OnDocument, TaskVerdict, TextDocument

TEXTS = st.text("ab ", min_size=1, max_size=3)
MARKS = st.lists(st.sampled_from(["bold", "size 20", "strike"]), unique=True, max_size=2).map(sorted).map(tuple)
LINES = st.lists(st.tuples(TEXTS, MARKS, st.sampled_from([(), ("center",), ("right",)])), max_size=4)
EMPTY = Paragraph(marks=("center",))


def view(lines: list[tuple[str, tuple[str, ...], tuple[str, ...]]], *more: Paragraph) -> FileView:
    paragraphs = [Paragraph((TextSpan(text, looks),), layout) for text, looks, layout in lines]
    return FileView("text_document", text_document=TextDocument((*paragraphs, *more)))


def rules(lines: list[tuple[str, tuple[str, ...], tuple[str, ...]]]) -> dict[str, Any]:
    return {"expected": [{"text": text, "looks": [*looks], "layout": [*layout]} for text, looks, layout in lines]}


@given(LINES)
def test_the_same_paragraphs_are_accepted_and_empty_ones_do_not_count(lines: Any) -> None:
    assert text_document_is(view(lines), rules(lines), {}).success
    assert text_document_is(view(lines, EMPTY), rules(lines), {}).success


@given(LINES, LINES)
def test_any_others_are_not(lines: Any, others: Any) -> None:
    assume(lines != others)
    assert not text_document_is(view(others), rules(lines), {}).success


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([("a", (), ())], "it has 1 paragraphs with text, not 2"),
        ([("a", (), ()), ("c", (), ())], "paragraph 2 says something else"),
        ([("a", ("bold",), ()), ("b", (), ())], "paragraph 1 looks different"),
        ([("a", (), ()), ("b", (), ("center",))], "paragraph 2 is laid out differently"),
    ],
)
def test_a_reason_says_where(found: Any, reason: str) -> None:
    assert text_document_is(view(found), rules([("a", (), ()), ("b", (), ())]), {}) == TaskVerdict(False, reason)


def test_a_look_of_a_part_is_not_one_of_the_whole() -> None:
    half = TextDocument((Paragraph((TextSpan("a", ("strike",)), TextSpan(" b"))),))
    assert not text_document_is(
        FileView("text_document", text_document=half), rules([("a b", ("strike",), ())]), {}
    ).success


def test_a_document_with_more_than_paragraphs_fails() -> None:
    more = TextDocument((Paragraph((TextSpan("a"),)),), ("tbl",))
    assert text_document_is(FileView("text_document", text_document=more), rules([("a", (), ())]), {}).reason.endswith(
        "paragraphs: tbl"
    )


def test_what_is_no_text_document_fails_with_its_reason() -> None:
    check = OnDocument("text_document", text_document_is)
    assert check(FileView("refused", reason="not_a_text_document"), {"expected": []}, {}) == TaskVerdict(
        False, "not_a_text_document"
    )
    assert not check(FileView("file", b""), {"expected": []}, {}).success
