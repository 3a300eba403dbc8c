"""Impress: slides, their backgrounds, and where boxes stand.

Invariant: lengths given are in cm, lengths of the office in 1/100 mm. A box keeps its size when it is moved.
"""

from __future__ import annotations

from typing import Any

from guest.impress.base import Show, around, kind_of
from guest.impress.media import Media
from guest.office.base import enum, prop
from guest.paths import there_in_home, wrong

MAX_SLIDES = 1000
AREALESS = {"line", "media"}


class Slides(Media, Show):
    """Slides and boxes."""

    def go_to_slide(self, *, slide_index: int) -> str:
        """Show a slide."""
        page, count = self._slide(slide_index), self._count()  # asked later, it would wait until the slide is drawn
        if self._of_view("DrawViewMode") == enum("drawing.DrawViewMode", "HANDOUT"):
            raise wrong("slide_index: the handout shows no single slide: choose View > Normal first")
        self._view.setCurrentPage(page)  # a design that is shown gives way, too
        return f"slide {slide_index} of {count} is shown"

    def get_slide_count(self) -> str:
        """Count."""
        return f"{self._count()} slides; slide {self._shown()} is shown"

    def duplicate_slide(self, *, slide_index: int) -> str:
        """Copy to the place behind."""
        page = self._slide(slide_index)
        count = self._count()
        if count >= MAX_SLIDES:
            raise wrong(f"slide_index: a presentation has at most {MAX_SLIDES} slides here")
        self._rest()
        self._doc.duplicate(page)  # puts the copy behind its original
        return f"slide {slide_index + 1} is a copy of slide {slide_index}; there are {count + 1} slides"

    def set_slide_orientation(self, *, orientation: str) -> str:
        """Turn all slides, and scale what stands on them, as the menu Slide > Slide Properties does."""
        page = self._doc.DrawPages.getByIndex(0)
        wide, high = max(page.Width, page.Height), min(page.Width, page.Height)
        if orientation == "portrait":
            wide, high = high, wide
        if (page.Width, page.Height) != (wide, high):
            self._rest()
            size = prop("AttributePageSize.Width", wide), prop("AttributePageSize.Height", high)
            self._dispatch("AttributePageSize", *size)
            if (page.Width, page.Height) != (wide, high):
                raise wrong("orientation: slides can't be turned in this view: choose View > Normal first")
        return f"slides are {orientation}, {wide / 1000:g} x {high / 1000:g} cm"

    def set_slide_background(self, *, slide_index: int | None, color: str | None, image_path: str | None) -> str:
        """Colour or picture behind a slide, or behind all."""
        if (color is None) == (image_path is None):
            raise wrong("color: give either color or image_path")
        pages = [self._slide(slide_index)] if slide_index else [self._slide(n + 1) for n in range(self._count())]
        ground = self._doc.createInstance("com.sun.star.drawing.Background")
        if color is not None:
            ground.FillStyle = enum("drawing.FillStyle", "SOLID")
            ground.FillColor = int(color[1:], 16)
            done = color
        else:
            path = there_in_home(str(image_path), "image_path")
            graphic = self._graphic(path, "image_path")
            done = path.rpartition("/")[2]
            ground.FillStyle = enum("drawing.FillStyle", "BITMAP")
            ground.FillBitmapName = self._named(graphic, done)
            ground.FillBitmapMode = enum("drawing.BitmapMode", "STRETCH")
        for page in pages:
            page.Background = ground
        which = f"slide {slide_index}" if slide_index else f"all {len(pages)} slides"
        return f"the background of {which} is {done}"

    def _named(self, graphic: Any, name: str) -> str:
        """Enter a picture into the document's table of pictures, which a file keeps by name."""
        table = self._doc.createInstance("com.sun.star.drawing.BitmapTable")
        number, free = 1, name
        while table.hasByName(free):
            number += 1
            free = f"{name} {number}"
        table.insertByName(free, graphic)
        return free

    def set_background_color(self, *, slide_index: int, box_index: int, color: str) -> str:
        """Fill a box."""
        filled = [part for part, kind in self._parts(slide_index, box_index) if kind not in AREALESS]
        if not filled:
            kind = kind_of(self._box(slide_index, box_index))
            raise wrong(f"box_index: box {box_index} of slide {slide_index} is a box of kind {kind}, without an area")
        for part in filled:
            filling = {"FillStyle": enum("drawing.FillStyle", "SOLID"), "FillColor": int(color[1:], 16)}
            part.setPropertyValues((*filling, "FillTransparence"), (*filling.values(), 0))  # drawn once
        return f"box {box_index} of slide {slide_index} has the background {color}"

    def position_box(self, *, slide_index: int, box_index: int, position: str) -> str:
        """Move to an edge, a corner or the middle, as the menu Shape > Align Objects does."""
        box = self._box(slide_index, box_index)
        self._put(box, self._slide(slide_index), position)
        x, y, *_ = around(box)
        return f"box {box_index} of slide {slide_index} is at x {x / 1000:g} cm, y {y / 1000:g} cm"
