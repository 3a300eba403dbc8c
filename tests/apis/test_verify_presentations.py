"""The check of presentations: it accepts what is wanted, and not one box more, less or other."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.tasks.verify.documents import presentation_is
from apis.tasks.verify.verify import CHECKS, FileView, Presentation, Slide, SlideBox

BOXES = st.builds(SlideBox, kind=st.sampled_from(["title", "outline", "frame"]), text=st.text("ab\n", max_size=3))
SLIDES = st.lists(st.builds(Slide, boxes=st.lists(BOXES, max_size=3).map(tuple)), min_size=1, max_size=3)
WANTED = [{"boxes": [["title", "plan"], ["outline", "one\ntwo"]]}, {"boxes": [["title", "end"], ["outline", ""]]}]
RIGHT = (
    Slide((SlideBox("title", "plan"), SlideBox("outline", "one\ntwo"))),
    Slide((SlideBox("title", "end"), SlideBox("outline"))),
)


def verdict(slides: list[Slide] | tuple[Slide, ...], wanted: list[dict[str, Any]]) -> str:
    made = presentation_is(FileView("presentation", presentation=Presentation(tuple(slides))), {"expected": wanted}, {})
    return "" if made.success else made.reason


def as_wanted(slides: list[Slide]) -> list[dict[str, Any]]:
    return [{"boxes": [[box.kind, box.text.rstrip("\n")] for box in slide.boxes]} for slide in slides]


@given(SLIDES, SLIDES)
@pytest.mark.slow
def test_the_same_slides_and_no_others_are_accepted(slides: list[Slide], others: list[Slide]) -> None:
    wanted = msgspec.json.decode(msgspec.json.encode(as_wanted(slides)))
    assert verdict(slides, wanted) == ""
    assert (verdict(others, wanted) == "") == (as_wanted(others) == as_wanted(slides))


@pytest.mark.parametrize(
    ("slides", "reason"),
    [
        (RIGHT, ""),
        (RIGHT[::-1], "slide 1: its title says something else"),
        (RIGHT[:1], "it has 1 slides where 2 are wanted"),
        ((RIGHT[0], Slide(RIGHT[1].boxes, hidden=True)), "slide 2: it is hidden"),
        ((Slide(RIGHT[0].boxes, "#ff0000"), RIGHT[1]), "slide 1: it has another background"),
        ((Slide(RIGHT[0].boxes[1:]), RIGHT[1]), "slide 1: it has other boxes"),
        ((Slide((*RIGHT[0].boxes, SlideBox("frame", "more"))), RIGHT[1]), "slide 1: it has other boxes"),
    ],
)
def test_what_else_was_changed_is_told(slides: tuple[Slide, ...], reason: str) -> None:
    assert verdict(slides, WANTED) == reason


def test_a_background_that_is_asked_for_must_be_there() -> None:
    wanted = [{**WANTED[0], "background": "#00ff00"}]
    assert verdict([Slide(RIGHT[0].boxes, "#00FF00")], wanted) == ""
    assert verdict(RIGHT[:1], wanted) == "slide 1: it has another background"


def test_what_is_no_presentation_fails_with_its_reason() -> None:
    for view, reason in (
        (FileView("refused", reason="zip_bomb"), "zip_bomb"),
        (FileView("missing"), "it is missing, not a presentation"),
    ):
        assert CHECKS["deck_is"](view, {"expected": WANTED}, {}).reason == reason
        assert not presentation_is(view, {"expected": WANTED}, {}).success
