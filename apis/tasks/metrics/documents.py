"""Metrics of text documents: their words, and where they stand.

Invariant: a document without any text scores 0 against one that has some. Both sides are read by one reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from apis.tasks.metrics import rules
from apis.tasks.metrics.metric import SOLVED, Declared, Options, Score, Value, document, gold, is_
from apis.tasks.verify.spans import Paragraph
from apis.tasks.verify.verify import TextDocument

KIND = "text_document"
NEAR_COLOR = 10  # of 255, in each channel


def _texts(found: TextDocument, options: Options) -> list[str]:
    texts = [paragraph.text for paragraph in found.paragraphs]
    if options.get("delete_empty_lines"):
        texts = [text for text in texts if text.strip()]
    if options.get("ignore_case"):
        texts = [text.lower() for text in texts]
    return sorted(texts) if options.get("ignore_order") else texts


def compare_docx_files(result: Value, expected: Value, options: Options) -> Score:
    """The paragraphs agree: joined without regard to blanks, or, with `ignore_blanks: false`, one by one.

    `content_only` and `fuzzy_match` score how alike they are, one by one the mean of that.
    """
    wanted, there = _texts(gold(expected, KIND), options), _texts(document(result, KIND), options)
    joined = options.get("content_only") or options.get("ignore_blanks", True)
    if not joined and options.get("fuzzy_match") and there and len(there) == len(wanted):
        alike = sum(_alike(*pair) for pair in zip(there, wanted, strict=True)) / len(there)
        return Score(alike, f"they are alike to {alike:.3f}")
    if joined and (options.get("content_only") or options.get("fuzzy_match")):
        one, other = ("\n".join(texts).strip() for texts in (there, wanted))
        alike = _alike(rules.without_blanks(one), rules.without_blanks(other))
        return Score(alike, f"they are alike to {alike:.3f}")
    if options.get("ignore_blanks", True):
        same = rules.without_blanks("\n".join(there)) == rules.without_blanks("\n".join(wanted))
        return is_(same, "the texts agree", "the texts differ")
    return _compared(there, wanted)


def _alike(one: str, other: str) -> float:
    """`rules.likeness` of long texts piece by piece."""
    size = rules.LONGEST
    pieces = [(one[at : at + size], other[at : at + size]) for at in range(0, max(len(one), len(other), 1), size)]
    weights = [max(1, len(first) + len(second)) for first, second in pieces]
    alike = [rules.likeness(*pair) for pair in pieces]
    return sum(weight * value for weight, value in zip(weights, alike, strict=True)) / sum(weights)


def _compared(there: list[str], wanted: list[str]) -> Score:
    if len(there) != len(wanted):
        return Score(0.0, f"it has {len(there)} paragraphs and not {len(wanted)}")
    differ = next((at for at, pair in enumerate(zip(there, wanted, strict=True), 1) if pair[0] != pair[1]), 0)
    return Score(0.0, f"paragraph {differ} differs") if differ else Score(SOLVED, "the texts agree")


def compare_docx_files_and_ignore_new_lines(result: Value, expected: Value, options: Options) -> Score:
    """As `compare_docx_files`, of the paragraphs that are not empty."""
    return compare_docx_files(result, expected, {**options, "delete_empty_lines": True})


def is_first_line_centered(result: Value, _: Value, __: Options) -> Score:
    """The first paragraph is centred."""
    first = document(result, KIND).paragraphs[:1]
    return is_(bool(first) and "center" in first[0].marks, "it is centred", "it is not centred")


def _in_tables(found: TextDocument) -> set[int]:
    return {number for table in found.tables for row in table for cell in row for number in cell}


def _beside_tables(found: TextDocument) -> list[Paragraph]:
    """The paragraphs that stand in no table."""
    inside = _in_tables(found)
    return [paragraph for number, paragraph in enumerate(found.paragraphs) if number not in inside]


def compare_docx_tables(result: Value, expected: Value, _: Options) -> Score:
    """The tables have the same cells, blanks around a cell's text left out."""
    one, other = (
        [[["\n".join(found.paragraphs[n].text for n in cell).strip() for cell in row] for row in table]
         for table in found.tables]
        for found in (document(result, KIND), gold(expected, KIND))
    )  # fmt: skip
    if len(one) != len(other):
        return Score(0.0, f"it has {len(one)} tables and not {len(other)}")
    return is_(bool(other) and one == other, "the tables agree", "a table is another")


def compare_font_names(result: Value, expected: Value, _: Options) -> Score:
    """All text beside tables is set in `font_name`."""
    wanted = f"font {expected['font_name']}"
    spans = [span for paragraph in _beside_tables(document(result, KIND)) for span in paragraph.spans]
    other = next((span for span in spans if wanted not in span.marks), None)
    return is_(bool(spans) and other is None, "the font is set", f"not set in it: {other.text[:40] if other else ''!r}")


def _low(found: TextDocument) -> list[tuple[int, str]]:
    return [(n, s.text) for n, one in enumerate(found.paragraphs) for s in one.spans if "at subscript" in s.marks]


def compare_subscript_contains(result: Value, expected: Value, _: Options) -> Score:
    """The same texts are subscripts, at least one."""
    one, other = _low(document(result, KIND)), _low(gold(expected, KIND))
    return is_(bool(other) and one == other, "the subscripts agree", f"{len(one)} subscripts for {len(other)}")


def evaluate_strike_through_last_paragraph(result: Value, expected: Value, _: Options) -> Score:
    """The words agree, and the last paragraph with text is struck through as a whole."""
    if (words := compare_docx_files(result, expected, {})).value < SOLVED:
        return words
    said = [paragraph for paragraph in _beside_tables(document(result, KIND)) if paragraph.text.strip()]
    struck = bool(said) and all({"strike", "strike twice"} & set(span.marks) for span in said[-1].spans)
    return is_(struck, "it is struck through", "it is not struck through")


def _colors(paragraph: Paragraph) -> Iterator[tuple[str, set[str]]]:
    """The words of a paragraph, each with its colours."""
    colored = [(span.text, next((m[6:] for m in span.marks if m.startswith("color ")), "")) for span in paragraph.spans]
    word, colors = "", set[str]()
    for text, color in [*colored, (" ", "")]:
        for char in text:
            if not char.isspace():
                word, colors = word + char, colors | {color}
            elif word:
                yield word, colors
                word, colors = "", set()


def _near(color: str, wanted: tuple[int, int, int]) -> bool:
    if not re.fullmatch("[0-9a-f]{6}", color):
        return False
    return all(abs(int(color[at * 2 : at * 2 + 2], 16) - value) <= NEAR_COLOR for at, value in enumerate(wanted))


def evaluate_colored_words_in_tables(result: Value, expected: Value, _: Options) -> Score:
    """The words agree, and of each word in a table the colour is red where it begins with a vowel, else blue."""
    if (same := compare_docx_files(result, expected, {})).value < SOLVED:
        return same
    found = document(result, KIND)
    words = [pair for number in sorted(_in_tables(found)) for pair in _colors(found.paragraphs[number])]
    for word, colors in words:
        wanted = (255, 0, 0) if word[0].lower() in "aeiou" else (0, 0, 255)
        if not all(_near(color, wanted) for color in colors):
            return Score(0.0, f"{word[:40]!r} has another colour")
    return is_(bool(words), "the colours are as they should be", "there is no table with words")


def contains_page_break(result: Value, expected: Value, _: Options) -> Score:
    """`page_break_count` page breaks stand in the text, or without a number at least one."""
    breaks, wanted = document(result, KIND).page_breaks, (expected or {}).get("page_break_count")
    return is_(breaks > 0 and wanted in (None, breaks), f"it has {breaks} page breaks", f"it has {breaks} page breaks")


def check_highlighted_words(result: Value, expected: Value, _: Options) -> Score:
    """The words agree, and none is highlighted in yellow."""
    if (words := compare_docx_files(result, expected, {})).value < SOLVED:
        return words
    spans = [span for paragraph in document(result, KIND).paragraphs for span in paragraph.spans]
    bright = next((span for span in spans if {"highlight yellow", "highlight ffff00"} & set(span.marks)), None)
    return is_(bool(spans) and bright is None, "nothing is highlighted", f"{bright.text[:40] if bright else ''!r} is")


DECLARED = (
    Declared("compare_docx_files", compare_docx_files, reads=KIND),
    Declared("compare_docx_files_and_ignore_new_lines", compare_docx_files_and_ignore_new_lines, reads=KIND),
    Declared("compare_docx_tables", compare_docx_tables, "without any table it scores 0", reads=KIND),
    Declared("compare_font_names", compare_font_names, "without any text it scores 0", reads=KIND),
    Declared("compare_subscript_contains", compare_subscript_contains, "all subscripts count", reads=KIND),
    Declared(
        "evaluate_strike_through_last_paragraph",
        evaluate_strike_through_last_paragraph,
        "the last paragraph with text counts",
        reads=KIND,
    ),
    Declared(
        "evaluate_colored_words_in_tables",
        evaluate_colored_words_in_tables,
        f"words count, not runs; a channel may be off by {NEAR_COLOR}",
        reads=KIND,
    ),
    Declared("contains_page_break", contains_page_break, reads=KIND),
    Declared(
        "check_highlighted_words",
        check_highlighted_words,
        "without any text it scores 0; headings, tabs and spaces count as text",
        reads=KIND,
    ),
    Declared("is_first_line_centered", is_first_line_centered, reads=KIND),
)
