"""Metrics of text documents: their words, and where they stand.

Invariant: a document without any text scores 0 against one that has some. Both sides are read by one reader.
"""

from __future__ import annotations

from apis.tasks.metrics import rules
from apis.tasks.metrics.metric import SOLVED, Declared, Options, Score, Value, document, gold, is_
from apis.tasks.verify.verify import TextDocument

KIND = "text_document"


def _texts(found: TextDocument, options: Options) -> list[str]:
    texts = [paragraph.text for paragraph in found.paragraphs]
    if options.get("delete_empty_lines"):
        texts = [text for text in texts if text.strip()]
    if options.get("ignore_case"):
        texts = [text.lower() for text in texts]
    return sorted(texts) if options.get("ignore_order") else texts


def compare_docx_files(result: Value, expected: Value, options: Options) -> Score:
    """The paragraphs agree: joined without regard to blanks, or, with `ignore_blanks: false`, one by one.

    `content_only` and `fuzzy_match` score how alike they are.
    """
    wanted, there = _texts(gold(expected, KIND), options), _texts(document(result, KIND), options)
    if options.get("content_only") or options.get("fuzzy_match"):
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
    """The paragraphs that are not empty agree."""
    return compare_docx_files(result, expected, {**options, "ignore_blanks": False, "delete_empty_lines": True})


def simple_docx_compare(result: Value, expected: Value, _: Options) -> Score:
    """OfficeWorld's: paragraphs agree in text, looks and layout, one by one; all or nothing."""
    wanted, there = gold(expected, KIND), document(result, KIND)
    if len(there.paragraphs) != len(wanted.paragraphs):
        return Score(0.0, f"it has {len(there.paragraphs)} paragraphs and not {len(wanted.paragraphs)}")
    for at, (one, other) in enumerate(zip(there.paragraphs, wanted.paragraphs, strict=True), 1):
        if one != other:
            return Score(0.0, f"paragraph {at} {'looks otherwise' if one.text == other.text else 'differs'}")
    return is_(there.extras == wanted.extras, "the documents agree", "what stands beside its paragraphs differs")


def is_first_line_centered(result: Value, _: Value, __: Options) -> Score:
    """The first paragraph is centred."""
    first = document(result, KIND).paragraphs[:1]
    return is_(bool(first) and "center" in first[0].marks, "it is centred", "it is not centred")


DECLARED = (
    Declared("compare_docx_files", compare_docx_files, reads=KIND),
    Declared("compare_docx_files_and_ignore_new_lines", compare_docx_files_and_ignore_new_lines, reads=KIND),
    Declared("simple_docx_compare", simple_docx_compare, "looks and layout count, all or nothing", reads=KIND),
    Declared("is_first_line_centered", is_first_line_centered, reads=KIND),
)
