"""Twins of compare_pptx_files by its options: what each leaves out, and what each asks for."""

from __future__ import annotations

from typing import Any

from apis.tasks.verify.verify import FileView
from tests.apis.twins.made_slides import Box, Page, SlideLine, make_pptx
from tests.apis.twins.slides import HEADED, HIGH, LEFT, LOW, SQUARE, TABLE
from tests.apis.twins.twin import Twin, file

NAME = "compare_pptx_files"
LOOKS = {"sz": "2800", "b": "1", "i": "1", "u": "sng", "strike": "sngStrike"}
FULL = SlideLine("one", LOOKS, {"algn": "ctr", "lvl": "1"}, "FF0000", "•", "Arial")
# What an option leaves out -> a change of `FULL` that it alone lets pass.
CHANGES = {
    "examine_font_size": FULL._replace(looks={**LOOKS, "sz": "2000"}),
    "examine_font_bold": FULL._replace(looks={**LOOKS, "b": "0"}),
    "examine_font_italic": FULL._replace(looks={**LOOKS, "i": "0"}),
    "examine_font_underline": FULL._replace(looks={**LOOKS, "u": "dbl"}),
    "examine_strike_through": FULL._replace(looks={**LOOKS, "strike": "noStrike"}),
    "examine_font_name": FULL._replace(font="Times"),
    "examine_color_rgb": FULL._replace(color="00FF00"),
    "examine_alignment": FULL._replace(layout={"algn": "r", "lvl": "1"}),
    "examine_bullets": FULL._replace(bullet="-"),
}
MOVED = {"examine_shape": False}
ASIDE = (500_000, 200_000, 3_000_000, 900_000)
PRODUCT, WISHED = "Product Comparison", "Elaborate on what you want to discuss."


def _one(*said: SlideLine | str) -> FileView:
    return file(make_pptx(Page([Box(list(said))])))


def _on(number: int, *boxes: Box) -> FileView:
    """The slide of this number, from 1, has these shapes, and others have others."""
    return file(make_pptx(*([HEADED] * (number - 1)), Page(boxes)))


def _pages(*texts: str, **more: Any) -> FileView:
    return file(make_pptx(*(Page([Box([text])], **more) for text in texts)))


def _left_out(option: str) -> Twin:
    others = [said for name, said in CHANGES.items() if name != option]
    return Twin(NAME, _one(FULL), {option: False}, _one(CHANGES[option]), [*map(_one, others[:2]), _one("one")])


TITLE, BELOW = Box([PRODUCT], HIGH, "title"), Box(["one"], LEFT)
WISH = Box([WISHED], HIGH)
PICTURE = SQUARE._replace(place=(100_000, 4_000_000, 500_000, 500_000))
GRID = TABLE._replace(place=(100_000, 900_000, 500_000, 500_000))
GONE_DOWN = GRID._replace(place=(100_000, 4_000_000, 500_000, 500_000))
TWINS = [
    *map(_left_out, CHANGES),
    Twin(
        NAME,
        _one(FULL),
        {"examine_indent": False, "examine_bullets": False},
        _one(FULL._replace(layout={"algn": "ctr", "lvl": "2"})),
        [_one(FULL._replace(font="Times")), _one(CHANGES["examine_alignment"]), _one("one")],
    ),
    Twin(
        NAME,
        _one(FULL),
        {"examine_text": False, "examine_bullets": False},
        _one(FULL._replace(text="two")),
        [_one(CHANGES["examine_font_bold"]), _one(FULL, FULL), _one("one")],
    ),
    Twin(
        NAME,
        _pages("one", background="FFFF00"),
        {"examine_background_color": False},
        _pages("one", background="00FF00"),
        [_pages("two", background="FFFF00"), _pages("one", "one", background="FFFF00"), _pages("")],
    ),
    Twin(
        NAME,
        _pages("one", notes="say it"),
        {"examine_note": False},
        _pages("one", notes="say that"),
        [_pages("onE", notes="say it"), _pages("one", background="FFFF00", notes="say it"), _pages("")],
    ),
    Twin(
        NAME,
        _pages("one", "two"),
        {"examine_number_of_slides": False},
        _pages("one", "two", "three"),
        [_pages("one", "three"), _pages("two", "one"), _pages("")],
    ),
    Twin(
        NAME,
        _one("one"),
        MOVED,
        file(make_pptx(Page([Box(["one"], ASIDE)]))),
        [_one("one", "two"), _one("two"), _one("")],
    ),
    Twin(
        NAME,
        _one(FULL),
        {**dict.fromkeys(CHANGES, False), "examine_font_name": True},
        _one(SlideLine("one", {}, {"lvl": "1"}, font="Arial")),
        [_one(FULL._replace(font="Times")), _one(FULL._replace(text="onE")), _one("one")],
    ),
    Twin(
        NAME,
        _on(2, TITLE, BELOW),
        MOVED | {"examine_title_bottom_position": True},
        _on(2, TITLE._replace(place=LOW), BELOW),
        [
            _on(2, TITLE, BELOW._replace(place=LOW, said=["two"])),
            _on(2, TITLE._replace(place=(100_000, 900_000, 3_000_000, 900_000)), BELOW),
            _on(2, TITLE, BELOW),
        ],
    ),
    Twin(
        NAME,
        _on(2, PICTURE, BELOW),
        MOVED | {"examine_top_position": True},
        _on(2, SQUARE, BELOW),
        [_on(2, PICTURE._replace(place=(100_000, 2_500_000, 500_000, 500_000)), BELOW), _on(2, BELOW), _on(2, PICTURE)],
    ),
    Twin(
        NAME,
        _on(3, GRID, BELOW),
        MOVED | {"examine_table_bottom_position": True},
        _on(3, GONE_DOWN, BELOW),
        [
            _on(3, GONE_DOWN, BELOW._replace(place=LOW)),
            _on(3, GRID._replace(place=(100_000, 2_000_000, 500_000, 500_000)), BELOW),
            _on(3, GRID, BELOW),
        ],
    ),
    Twin(
        NAME,
        _on(1, SQUARE, BELOW),
        MOVED | {"examine_modify_height": True},
        _on(1, SQUARE._replace(place=(9, 9, 400_000, 500_000)), BELOW),
        [
            _on(1, SQUARE._replace(place=(100_000, 9_000, 500_000, 400_000)), BELOW),
            _on(1, SQUARE, BELOW._replace(place=LOW)),
            _on(1, BELOW),
        ],
    ),
    Twin(
        NAME,
        _on(1, WISH, BELOW),
        MOVED | {"examine_shape_for_shift_size": True},
        _on(1, WISH._replace(place=LOW), BELOW),
        [
            _on(1, WISH, BELOW._replace(place=LOW)),
            _on(1, WISH._replace(said=[f"{WISHED}."]), BELOW),
            _on(1, WISH._replace(said=["x"], place=LOW), BELOW),
        ],
    ),
]
