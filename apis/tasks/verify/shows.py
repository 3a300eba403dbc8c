"""A presentation as published metrics compare it: shapes with their places, texts with their looks.

Invariant: values only. `apis.documents.read.pptx` says where each comes from.
"""

from __future__ import annotations

import msgspec

from apis.tasks.verify.spans import Paragraph


class ShowShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shape of a slide. Marks of texts are like "font X", "size 4400" (hundredths of a point), "color FF0000".

    `kind` is text, picture, table, line, group or frame; `role` its placeholder's, as "title"; `place` left, top, width
    and height in EMU. A group's shapes are `inside` it; a table's cells follow each other row by row.
    """

    kind: str
    place: tuple[int, int, int, int]
    role: str = ""
    paragraphs: tuple[Paragraph, ...] = ()
    inside: tuple[ShowShape, ...] = ()
    cells: tuple[tuple[Paragraph, ...], ...] = ()
    columns: int = 0


class ShowSlide(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slide; `background` is a colour like "FF0000", "" where neither it nor its master has one."""

    shapes: tuple[ShowShape, ...]
    background: str = ""
    notes: str = ""
    hidden: bool = False


class SlideShow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slides in their order, `width` by `height` EMU each."""

    slides: tuple[ShowSlide, ...]
    width: int
    height: int
