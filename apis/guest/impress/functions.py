"""The functions of LibreOffice Impress, as `apis/apps/impress.yaml` declares them. Slides and texts are here."""

from __future__ import annotations

from itertools import count
from typing import Any

from guest.files import there_in_home, wrong
from guest.impress.base import Show, around, kind_of, parts, text_of, texts
from guest.impress.media import Files, Media
from guest.office.base import each, enum, free_name, is_page_number, prop

MAX_SLIDES = 1000
AREALESS = {"line", "media"}


class Slides(Media, Show):
    """Slides and boxes."""

    def go_to_slide(self, *, slide_index: int) -> str:
        page, slides = self._slide(slide_index), self._count()  # asked later, it would wait until the slide is drawn
        if self._of_view("DrawViewMode") == enum("drawing.DrawViewMode", "HANDOUT"):
            raise wrong("slide_index: the handout shows no single slide: choose View > Normal first")
        self._view.setCurrentPage(page)  # a design that is shown gives way, too
        return f"slide {slide_index} of {slides} is shown"

    def get_slide_count(self) -> str:
        return f"{self._count()} slides; slide {self._shown()} is shown"

    def duplicate_slide(self, *, slide_index: int) -> str:
        page = self._slide(slide_index)
        slides = self._count()
        if slides >= MAX_SLIDES:
            raise wrong(f"slide_index: a presentation has at most {MAX_SLIDES} slides here")
        self._rest()
        self._doc.duplicate(page)  # puts the copy behind its original
        return f"slide {slide_index + 1} is a copy of slide {slide_index}; there are {slides + 1} slides"

    def set_slide_orientation(self, *, orientation: str) -> str:
        """Turn all slides, and scale what is on them, as the menu Slide > Slide Properties does."""
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
        free = free_name(table, (name,), (f"{name} {number}" for number in count(2)))
        table.insertByName(free, graphic)
        return free

    def set_background_color(self, *, slide_index: int, box_index: int, color: str) -> str:
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


BOLD, REGULAR = 150.0, 100.0  # com.sun.star.awt.FontWeight
SINGLE, NONE = 1, 0  # com.sun.star.awt.FontUnderline and FontStrikeout
SCRIPTS = ("", "Asian", "Complex")
ADJUSTS = {"left": "LEFT", "center": "CENTER", "right": "RIGHT", "justify": "BLOCK"}
PLACEHOLDERS = {"title", "subtitle", "outline", "text", "notes", "date", "footer", "slide number", "table"}


def _all(text: Any) -> Any:
    """The whole of a text; an empty one itself, so that what is typed later looks so."""
    if not text.String:
        return text
    cursor = text.createTextCursor()
    cursor.gotoStart(False)
    cursor.gotoEnd(True)
    return cursor


def _look(part: Any, name: str, value: Any) -> None:
    """Set a property of characters that each script has its own of."""
    for script in SCRIPTS:
        setattr(part, name + script, value)


def _slant(italic: bool) -> Any:
    return enum("awt.FontSlant", "ITALIC" if italic else "NONE")


class Texts(Show):
    """Text."""

    def write_text(
        self,
        *,
        content: str,
        page_index: int,
        box_index: int,
        bold: bool,
        italic: bool,
        size: int | None,
        append: bool,
    ) -> str:
        """Replace a box's text, or add to it."""
        box = self._text_box(page_index, box_index, "page_index")
        if append and text_of(box):
            end = box.createTextCursor()
            end.gotoEnd(False)
            box.insertString(end, content, False)
            new = box.createTextCursor()
            new.gotoEnd(False)
            new.goLeft(len(content.encode("utf-16-le")) // 2, True)
        else:
            box.String = content
            new = _all(box)
        if bold:
            _look(new, "CharWeight", BOLD)
        if italic:
            _look(new, "CharPosture", _slant(True))
        if size is not None:
            _look(new, "CharHeight", float(size))
        done = "added to" if append else "written into"
        return f"{len(content)} characters {done} box {box_index} of slide {page_index}"

    def set_style(
        self, *, slide_index: int, box_index: int, bold: bool | None, italic: bool | None, underline: bool | None
    ) -> str:
        holders, done = self._texts(slide_index, box_index), []
        for text in map(_all, holders):
            if bold is not None:
                _look(text, "CharWeight", BOLD if bold else REGULAR)
            if italic is not None:
                _look(text, "CharPosture", _slant(italic))
            if underline is not None:
                text.CharUnderline = SINGLE if underline else NONE
        for word, given in (("bold", bold), ("italic", italic), ("underlined", underline)):
            if given is not None:
                done.append(word if given else f"not {word}")
        if not done:
            raise wrong("set_style: give bold, italic or underline")
        return f"box {box_index} of slide {slide_index}: {', '.join(done)}"

    def set_text_color(self, *, slide_index: int, box_index: int, color: str) -> str:
        for text in self._texts(slide_index, box_index):
            _all(text).CharColor = int(color[1:], 16)
        return f"the text of box {box_index} of slide {slide_index} is {color}"

    def set_slide_font(self, *, slide_index: int, font_name: str) -> str:
        page = self._slide(slide_index)
        self._rest()
        boxes = [(f"slide_index: box {at} of slide {slide_index}", page.getByIndex(at)) for at in range(page.Count)]
        holders = [text for name, box in boxes for text in texts(self._all_parts(box, name))]
        if not holders:
            raise wrong(f"slide_index: slide {slide_index} has no box with text")
        for text in map(_all, holders):
            _look(text, "CharFontName", font_name)
        note = "" if self._has_font(font_name) else "; this machine has no such font and shows another"
        return f"the {len(holders)} texts of slide {slide_index} have the font {font_name}{note}"

    def set_text_strikethrough(self, *, slide_index: int, box_index: int, line_numbers: list[int], apply: bool) -> str:
        lines = list(each(self._text_box(slide_index, box_index)))
        if line_numbers[-1] > len(lines):
            raise wrong(f"line_numbers: box {box_index} of slide {slide_index} has lines 1 to {len(lines)} only")
        for number in line_numbers:
            for portion in each(lines[number - 1]):
                portion.CharStrikeout = SINGLE if apply else NONE
        done = "struck through" if apply else "not struck through"
        return f"lines {', '.join(map(str, line_numbers))} of box {box_index} of slide {slide_index} are {done}"

    def set_textbox_alignment(self, *, slide_index: int, box_index: int, alignment: str) -> str:
        for text in self._texts(slide_index, box_index):
            _all(text).ParaAdjust = enum("style.ParagraphAdjust", ADJUSTS[alignment])
        return f"box {box_index} of slide {slide_index} is aligned: {alignment}"

    def delete_content(self, *, slide_index: int, box_index: int) -> str:
        """Empty a box, or remove one without text."""
        box = self._box(slide_index, box_index)
        name = f"box {box_index} of slide {slide_index}"
        filled = [text for text in texts(self._all_parts(box, f"box_index: {name}")) if text_of(text)]
        for text in filled:
            text.String = ""
        if filled:
            return f"{name} is empty"
        if kind_of(box) in PLACEHOLDERS:
            return f"{name} is empty, as it was"
        page = self._slide(slide_index)
        kind = kind_of(box)
        page.remove(box)
        return f"{name} ({kind}) is removed; slide {slide_index} has {page.Count} boxes left"

    def set_slide_number_color(self, *, color: str) -> str:
        """Colour of slide numbers, where the slides' designs have them and where slides have their own."""
        self._rest()
        value, boxes = int(color[1:], 16), 0
        designs, slides = self._doc.MasterPages, self._doc.DrawPages
        pages = [(designs.getByIndex(at), "<number>") for at in range(designs.Count)]
        pages += [(slides.getByIndex(at), str(at + 1)) for at in range(slides.Count)]
        for page, shown in pages:
            for at in range(page.Count):
                boxes += _paint_numbers(page.getByIndex(at), value, shown)
        if not boxes:
            raise wrong("color: no slide has a slide number; the menu Insert > Slide Number makes them")
        visible = sum(slides.getByIndex(at).IsPageNumberVisible for at in range(slides.Count))
        return (
            f"slide numbers are {color} ({boxes} boxes; {visible} of {slides.Count} slides show that of their design)"
        )


def _paint_numbers(shape: Any, value: int, shown: str) -> int:
    """Colour the page numbers of a box, which show as that text; how many texts have one."""
    kind = kind_of(shape)
    if kind == "slide number":
        _all(shape).CharColor = value
        return 1
    painted = 0
    for text in texts(parts(shape, kind)):
        if shown not in text.String:  # far quicker than to look at all portions
            continue
        fields = [portion for line in each(text) for portion in each(line) if is_page_number(portion)]
        for portion in fields:
            portion.CharColor = value
        painted += bool(fields)
    return painted


class ImpressTools(Texts, Slides, Files):
    """All of them."""


TOOLS = ImpressTools
