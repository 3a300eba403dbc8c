"""Metrics of presentations: slides, shapes, texts and their looks.

Invariant: both sides are read by one reader, and stretches of text that look alike count as one. An option that is not
known here is lacking, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from defusedxml import ElementTree

from apis.tasks.metrics.metric import (
    SOLVED,
    Declared,
    Options,
    Score,
    UnreadableResult,
    Value,
    document,
    gold,
    is_,
    text,
)
from apis.tasks.verify.shows import ShowShape, ShowSlide, SlideShow
from apis.tasks.verify.spans import Paragraph

KIND = "slide_show"
TOLERANCE = 0.005  # of a length
LOW_DOWN, FAR_RIGHT, HIGH_UP = 3_600_000, 4_320_000, 1_980_000  # EMU, where moved things have to be
# Options by the first word of the mark that each looks at.
_OF_RUNS = {
    "font": "examine_font_name", "size": "examine_font_size", "bold": "examine_font_bold",
    "italic": "examine_font_italic", "color": "examine_color_rgb", "underline": "examine_font_underline",
    "strike": "examine_strike_through",
}  # fmt: skip
_OF_PARAGRAPHS = {"level": "examine_indent", "bullet": "examine_bullets"}
_ALIGNMENTS = "examine_alignment"
_UNASKED = {
    "examine_right_position", "examine_top_position", "examine_title_bottom_position", "examine_image_size",
    "examine_table_bottom_position", "examine_modify_height", "examine_shape_for_shift_size",
}  # fmt: skip
_OTHERS = {
    "examine_number_of_slides", "examine_shape", "examine_text", "examine_background_color", "examine_note",
    "approximately_tolerance", "enable_debug",
}  # fmt: skip
_KNOWN = {*_OF_RUNS.values(), *_OF_PARAGRAPHS.values(), _ALIGNMENTS, *_OTHERS, *_UNASKED}
WISHED = "Elaborate on what you want to discuss."  # the one text whose box may move while others may not
_TITLES = ("title", "ctrTitle")
_LEFT, _TOP, _WIDTH, _HEIGHT = range(4)


def _asked(options: Options, name: str) -> bool:
    return bool(options.get(name, name not in _UNASKED))


def _near(one: int, other: int, options: Options) -> bool:
    most = float(options.get("approximately_tolerance", TOLERANCE))
    return one == other or (bool(one and other) and abs(one - other) <= most * max(abs(one), abs(other)))


def _there(one: ShowShape, other: ShowShape, options: Options, sides: Sequence[int] = range(4)) -> bool:
    return all(_near(one.place[side], other.place[side], options) for side in sides)


def _runs(paragraph: Paragraph, options: Options) -> list[tuple[tuple[str, ...], str]]:
    """Stretches of text with the marks that are looked at."""
    spans = [
        (tuple(sorted(m for m in span.marks if _asked(options, _OF_RUNS[m.partition(" ")[0]]))), span.text)
        for span in paragraph.spans
        if span.text
    ]
    return [(marks, "".join(text for _, text in same)) for marks, same in groupby(spans, key=lambda span: span[0])]


def _layout(paragraph: Paragraph, options: Options) -> list[str]:
    said = bool(paragraph.text.strip())
    kept = ((mark, _OF_PARAGRAPHS.get(mark.partition(" ")[0], _ALIGNMENTS)) for mark in paragraph.marks)
    return sorted(mark for mark, name in kept if _asked(options, name) and (said or name != "examine_bullets"))


def _other_text(one: Sequence[Paragraph], other: Sequence[Paragraph], options: Options) -> str:
    """How two texts differ, "" where they do not."""
    if len(one) != len(other):
        return "has other paragraphs"
    for there, wanted in zip(one, other, strict=True):
        if _asked(options, "examine_text") and there.text != wanted.text:
            return "says something else"
        if _layout(there, options) != _layout(wanted, options):
            return "is laid out otherwise"
        here, asked = _runs(there, options), _runs(wanted, options)
        if (here if _asked(options, "examine_text") else [marks for marks, _ in here]) != (
            asked if _asked(options, "examine_text") else [marks for marks, _ in asked]
        ):
            return "looks otherwise"
    return ""


def _all(shapes: Sequence[ShowShape]) -> Iterator[ShowShape]:
    """Shapes, each group's after it."""
    for shape in shapes:
        yield shape
        yield from _all(shape.inside)


def _other_shape(one: ShowShape, other: ShowShape, options: Options) -> str:
    if one.kind != other.kind:
        return f"is a {one.kind} and no {other.kind}"
    if one.columns != other.columns or len(one.cells) != len(other.cells):
        return "has other rows or columns"
    if trouble := _other_text(one.paragraphs, other.paragraphs, options):
        return trouble
    for there, wanted in zip(one.cells, other.cells, strict=True):
        if trouble := _other_text(there, wanted, options):
            return f"has a cell that {trouble}"
    return ""


def _said(shape: ShowShape) -> str:
    return "\n".join(paragraph.text for paragraph in shape.paragraphs)


def _other_place(one: ShowShape, other: ShowShape, options: Options) -> str:
    """Whether a shape stands elsewhere, by the options that say which may."""
    if _asked(options, "examine_shape") and not _there(one, other, options):
        return "stands elsewhere or has another size"
    picture = one.kind == other.kind == "picture"
    textless = one.kind != "text" and other.kind != "text"
    for name, free, sides in (
        ("examine_image_size", picture, (_WIDTH, _HEIGHT)),
        ("examine_modify_height", textless, (_HEIGHT,)),
        ("examine_shape_for_shift_size", _said(one) == _said(other) == WISHED, ()),
    ):
        if _asked(options, name) and not _there(one, other, options, sides if free else range(4)):
            return "has another size or place"
    return ""


def _topmost(shapes: Sequence[ShowShape]) -> ShowShape | None:
    """The title of a slide: its placeholder, or else the highest text."""
    texts = [shape for shape in shapes if shape.kind == "text"]
    titled = [shape for shape in texts if shape.role in _TITLES]
    return min(titled or texts, key=lambda shape: shape.place[_TOP], default=None)


def _not_moved(number: int, one: ShowSlide, other: ShowSlide, options: Options) -> str:
    """Whether what was to be moved away from where it stands in `other` was not."""
    pairs = list(zip(one.shapes, other.shapes, strict=True))
    if number == 2:
        for name, kinds, side, sign, limit in (
            ("examine_right_position", ("picture", "frame", "table", "line", "group"), _LEFT, 1, FAR_RIGHT),
            ("examine_top_position", ("picture",), _TOP, -1, HIGH_UP),
        ):
            moved = [pair for pair in pairs if pair[0].kind in kinds and pair[1].kind in kinds]
            if _asked(options, name) and not all(_went(pair, side, sign, limit) for pair in moved):
                return "it was not moved"
    if _asked(options, "examine_table_bottom_position"):
        for pair in pairs:
            table = number == 3 and pair[0].kind == pair[1].kind == "table"
            if not (_went(pair, _TOP, 1, LOW_DOWN) if table else _there(*pair, options)):
                return "it was not moved" if table else "something else was moved"
    return _title_not_moved(number, pairs, options) if _asked(options, "examine_title_bottom_position") else ""


def _title_not_moved(number: int, pairs: list[tuple[ShowShape, ShowShape]], options: Options) -> str:
    title = _topmost([other for _, other in pairs]) if number == 2 else None
    for pair in pairs:
        if pair[1] is title:
            if not _went(pair, _TOP, 1, LOW_DOWN):
                return "the title was not moved to the bottom"
        elif not _there(*pair, options):
            return "something else was moved"
    return ""


def _went(pair: tuple[ShowShape, ShowShape], side: int, sign: int, limit: int) -> bool:
    one, other = pair[0].place[side] * sign, pair[1].place[side] * sign
    return one > other and one >= limit * sign


def _other_slide(number: int, one: ShowSlide, other: ShowSlide, options: Options) -> str:
    if _asked(options, "examine_background_color") and one.background != other.background:
        return "it has another background"
    if _asked(options, "examine_note") and one.notes.strip() != other.notes.strip():
        return "it has other notes"
    if len(one.shapes) != len(other.shapes):
        return f"it has {len(one.shapes)} shapes and not {len(other.shapes)}"
    for at, (there, wanted) in enumerate(zip(one.shapes, other.shapes, strict=True), 1):
        if trouble := _other_place(there, wanted, options):
            return f"shape {at} {trouble}"
    inner, outer = list(_all(one.shapes)), list(_all(other.shapes))
    if len(inner) != len(outer):
        return "a group has other shapes"
    for at, (there, wanted) in enumerate(zip(inner, outer, strict=True), 1):
        if trouble := _other_shape(there, wanted, options):
            return f"shape {at} {trouble}"
    return _not_moved(number, one, other, options)


def _from_start(options: Options) -> bool:
    """Whether the slides that are to be changed are what is expected: something is to be moved away."""
    return any(_asked(options, name) for name in options if name.endswith("_position"))


def _lacks(options: Options) -> str:
    return next((f"option {name}" for name in options if name not in _KNOWN), "")


def compare_pptx_files(result: Value, expected: Value, options: Options) -> Score:
    """Slide by slide both have the same shapes, texts and looks; options say what is not looked at."""
    wanted: SlideShow = gold(expected, KIND)
    there: SlideShow = document(result, KIND)
    if len(there.slides) != len(wanted.slides) and (_asked(options, "examine_number_of_slides") or not there.slides):
        return Score(0.0, f"it has {len(there.slides)} slides and not {len(wanted.slides)}")
    for number, (one, other) in enumerate(zip(there.slides, wanted.slides, strict=False), 1):
        if trouble := _other_slide(number, one, other, options):
            return Score(0.0, f"slide {number}: {trouble}")
    return Score(SOLVED, "the presentations agree")


def check_slide_orientation(result: Value, _expected: Value, _: Options) -> Score:
    """Slides are higher than wide."""
    show: SlideShow = document(result, KIND)
    return is_(0 < show.width < show.height, "slides stand upright", f"they are {show.width} by {show.height}")


def check_left_panel(result: Value, _expected: Value, _: Options) -> Score:
    """In the accessibility tree the pane of slides shows."""
    try:
        root = ElementTree.fromstring(text(result))
    except (ElementTree.ParseError, ValueError):
        raise UnreadableResult("it is no accessibility tree") from None
    shown = any(one.get("name") == "Slides View" for one in root.iter("document-frame"))
    return is_(shown, "the pane shows", "the pane does not show")


_SAME = (
    "runs that look alike count as one, a table's words count, a theme's colours are told apart, a title of any words "
    "is one, and a file that is missing scores 0"
)
DECLARED = (
    Declared("compare_pptx_files", compare_pptx_files, _SAME, reads=KIND, lacks=_lacks, differs=_from_start),
    Declared("check_left_panel", check_left_panel),
    Declared("check_slide_orientation_Portrait", check_slide_orientation, "without a width it scores 0", reads=KIND),
)
