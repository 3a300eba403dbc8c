"""Twins of metrics of presentations."""

from __future__ import annotations

from typing import Any

from apis.tasks.verify.verify import FileView
from tests.apis.twins.made_slides import Box, Page, SlideLine, make_pptx
from tests.apis.twins.twin import Twin, file

BOLD = SlideLine("one", {"b": "1", "sz": "2800"}, {"algn": "ctr"}, "FF0000", "•")
HIGH, LOW = (100_000, 200_000, 3_000_000, 900_000), (100_000, 4_800_000, 3_000_000, 900_000)
LEFT, RIGHT = (100_000, 9_000, 500_000, 500_000), (6_000_000, 9_000, 500_000, 500_000)
SQUARE = Box(place=LEFT, kind="pic")
HEADED = Page([Box(["head"], HIGH, "title"), SQUARE])


def show(*boxes: Box, **more: Any) -> FileView:
    """A presentation of one slide with these shapes."""
    return file(make_pptx(Page(boxes, **more)))


def second(*boxes: Box) -> FileView:
    """A presentation whose second slide has these shapes."""
    return file(make_pptx(HEADED, Page(boxes)))


def _one(said: SlideLine | str, **changes: Any) -> FileView:
    return show(Box([said], **changes))


def _looks(name: str, right: SlideLine, *wrong: SlideLine) -> Twin:
    return Twin(name, _one(right), {}, _one(right), [*map(_one, wrong), _one("one")])


TABLE = Box(["a", "b"], kind="table")
MOVED = {"examine_shape": False}
PANES = "<desktop-frame><application name='soffice'><{0} name='{1}'></{0}></application></desktop-frame>"
TWINS = [
    _looks("compare_pptx_files", BOLD, BOLD._replace(looks={"sz": "2800"}), BOLD._replace(color="FF0001")),
    _looks("compare_pptx_files", BOLD, BOLD._replace(bullet="-"), BOLD._replace(layout={"algn": "r"})),
    Twin(
        "simple_pptx_compare",
        show(Box(["one"]), TABLE, notes="say it"),
        {},
        show(TABLE, Box([BOLD]), Box([""])),
        [show(Box(["onE"]), TABLE), show(Box(["one"])), show(Box(["one"]), TABLE, Box(["one"])), show(Box(["two"]))],
    ),
    *(
        _looks(
            "compare_pptx_files",
            SlideLine("one", {key: value}),
            SlideLine("one", {key: other}),
            SlideLine("one ", {key: value}),
        )
        for key, value, other in (("u", "sng", "dbl"), ("strike", "sngStrike", "noStrike"), ("i", "1", "0"))
    ),
    Twin(
        "compare_pptx_files",
        show(Box(["one"]), TABLE, background="FFFF00", notes="say it"),
        {},
        show(Box(["one"]), TABLE, background="FFFF00", notes=" say it "),
        [
            show(Box(["one"]), TABLE, background="FFFF01", notes="say it"),
            show(Box(["one"]), TABLE, background="FFFF00", notes="say that"),
            show(Box(["one"]), Box(["a", "c"], kind="table"), background="FFFF00", notes="say it"),
            show(Box(["one"]), Box(["a"], kind="table"), background="FFFF00", notes="say it"),
            show(Box(["one"]), background="FFFF00", notes="say it"),
            show(Box(["one"]), TABLE),
        ],
    ),
    Twin(
        "compare_pptx_files",
        show(Box(["one"], (1000, 2000, 8_000_000, 1_000_000))),
        {},
        show(Box(["one"], None, "title")),
        [show(Box(["one"], (1000, 2000, 8_100_000, 1_000_000))), show(Box(["one"], None)), show(Box(["one"]))],
    ),
    Twin(
        "compare_pptx_files",
        show(Box(["one"])),
        MOVED | {"examine_font_bold": False},
        show(Box([SlideLine("one", {"b": "1"})], LOW)),
        [show(Box([SlideLine("one", {"i": "1"})])), show(Box(["one"]), Box()), show(Box([]))],
    ),
    Twin(
        "compare_pptx_files",
        show(SQUARE, Box(["one"])),
        MOVED | {"examine_image_size": True, "approximately_tolerance": 0.01},
        show(SQUARE._replace(place=(9, 9, 502_000, 498_000)), Box(["one"])),
        [
            show(SQUARE._replace(place=(9, 9, 510_000, 500_000)), Box(["one"])),
            show(SQUARE, Box(["one"], LOW)),
            show(Box(["one"])),
        ],
    ),
    Twin(
        "compare_pptx_files",
        second(SQUARE, Box(["one"])),
        MOVED | {"examine_right_position": True},
        second(SQUARE._replace(place=RIGHT), Box(["one"])),
        [second(SQUARE._replace(place=(2_000_000, *LEFT[1:])), Box(["one"])), second(Box(["one"])), second(SQUARE)],
    ),
    Twin(
        "compare_pptx_files",
        second(Box(["head"], HIGH, "title"), Box(["one"], LEFT)),
        MOVED | {"examine_title_bottom_position": True},
        second(Box(["head"], LOW, "title"), Box(["one"], LEFT)),
        [
            second(Box(["head"], HIGH, "title"), Box(["one"], LOW)),
            second(Box(["head"], (100_000, 900_000, 3_000_000, 900_000), "title"), Box(["one"], LEFT)),
            second(Box(["head"], HIGH, "title"), Box(["one"], LEFT)),
        ],
    ),
    Twin(
        "check_slide_orientation_Portrait",
        None,
        {},
        file(make_pptx(HEADED, size=(100, 200))),
        [file(make_pptx(HEADED, size=(200, 200))), file(make_pptx(HEADED, size=(0, 200))), file(make_pptx(HEADED))],
    ),
    Twin(
        "check_left_panel",
        None,
        {},
        PANES.format("document-frame", "Slides View"),
        [
            PANES.format("document-frame", "Notes View"),
            PANES.format("panel", "Slides View"),
            PANES.format("document-frame", "slides view"),
            "<desktop-frame/>",
        ],
    ),
]
