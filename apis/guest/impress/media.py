"""Impress: pictures, sound and video on slides.

Invariant: a file is read below HOME only and becomes part of the presentation, which needs it no more afterwards.
"""

from __future__ import annotations

import io
import mimetypes
import os
from typing import Any

import uno
from guest.images import MAX_BYTES, refuse_large
from guest.impress.base import Show, around, paragraphs, struct
from guest.office.base import prop, service
from guest.paths import there_in_home, url_of, wrong
from PIL import Image, ImageDraw

MM100 = 1000  # 1/100 mm in a cm
MM100_PER_PIXEL = 2540 / 96
MAX_MM100 = 300_000  # of a side, as of one that is given
SOUNDS = (".mp3", ".m4a", ".wav", ".ogg", ".oga", ".flac", ".opus", ".aac")
READWRITE, WRITE, TRUNCATE = 7, 4, 8  # com.sun.star.embed.ElementModes
MAIN_SEQUENCE, WITH_PREVIOUS = 4, 2  # com.sun.star.presentation.EffectNodeType
MEDIACALL, PLAY = 6, 2  # com.sun.star.presentation.EffectPresetClass and EffectCommands
PACKAGE = "vnd.sun.star.Package:"


class Media(Show):
    """Pictures and media."""

    def insert_image(
        self,
        *,
        slide_index: int,
        image_path: str,
        width: float | None,
        height: float | None,
        position: str | dict[str, float] | None,
    ) -> str:
        """Put a picture on a slide."""
        page = self._slide(slide_index)
        graphic = self._graphic(there_in_home(image_path, "image_path"), "image_path")
        shape = self._doc.createInstance("com.sun.star.drawing.GraphicObjectShape")
        shape.Graphic = graphic
        dots = graphic.SizePixel
        wide = graphic.Size100thMM.Width or round(dots.Width * MM100_PER_PIXEL)
        own = (wide, wide * dots.Height / dots.Width)
        return f"the picture is {self._add(page, shape, own, (width, height), position)}"

    def insert_file(
        self,
        *,
        file_path: str,
        slide_index: int | None,
        position: str | dict[str, float] | None,
        size: dict[str, float] | None,
        autoplay: bool,
    ) -> str:
        """Put a video or sound on a slide."""
        page = self._slide(slide_index or self._shown())
        path = there_in_home(file_path, "file_path")
        if os.path.getsize(path) > MAX_BYTES:
            raise wrong(f"file_path: at most {MAX_BYTES >> 20} MiB, and {os.path.basename(path)[:80]} is larger")
        sound = path.lower().endswith(SOUNDS)
        shape = self._doc.createInstance("com.sun.star.presentation.MediaShape")
        wanted = size or {}
        own = (2 * MM100, 2 * MM100) if sound else (page.Width // 2, page.Width * 9 // 32)
        said = self._add(page, shape, own, (wanted.get("width"), wanted.get("height")), position)
        try:
            shape.Graphic = _poster()  # or the office plays the file to get one
            shape.MediaURL = self._embedded(path)
            shape.MediaMimeType = mimetypes.guess_type(path)[0] or ("audio/mpeg" if sound else "video/mp4")
        except Exception:
            page.remove(shape)  # nothing half-done stays
            raise
        if autoplay:
            _start_with_slide(page, shape)
        start = "; it starts with the slide" if autoplay else ""
        return f"the {'sound' if sound else 'video'} is {said}{start}"

    def _graphic(self, path: str, argument: str) -> Any:
        """A picture from a file."""
        refuse_large(path, argument)
        graphic = service("graphic.GraphicProvider").queryGraphic((prop("URL", url_of(path)),))
        if graphic is None or not graphic.SizePixel.Width:
            raise wrong(f"{argument}: {os.path.basename(path)[:80]} is no picture that Impress can read")
        return graphic

    def _add(
        self,
        page: Any,
        shape: Any,
        own: tuple[float, float],
        wanted: tuple[float | None, float | None],
        position: str | dict[str, float] | None,
    ) -> str:
        """Put a new box of its own size, or of the one wanted in cm, on a slide; what is said of it."""
        wide, high = own
        scale = min(1.0, page.Width / wide, page.Height / high)
        width, height = (None if cm is None else round(cm * MM100) for cm in wanted)
        if width is None:
            width = round(wide * scale) if height is None else max(1, round(height * wide / high))
        if height is None:
            height = max(1, round(width * high / wide))
        for given, (argument, derived) in zip(wanted, (("width", height), ("height", width)), strict=True):
            if given is not None and derived > MAX_MM100:
                raise wrong(
                    f"{argument}: with {given:g} cm the other side would have {derived / MM100:g} cm: give both"
                )
        page.add(shape)
        shape.Size = struct("awt.Size", Width=width, Height=height)
        self._put(shape, page, "center")
        if position is not None:
            self._put(shape, page, position)
        at = shape.Position
        return (
            f"box {page.Count - 1} of slide {page.Number}, {width / MM100:g} x {height / MM100:g} cm"
            f" at x {at.X / MM100:g} cm, y {at.Y / MM100:g} cm"
        )

    def _put(self, shape: Any, page: Any, position: str | dict[str, float]) -> None:
        """Move a box to a place in cm or to where a word says; a word for one edge leaves the other direction alone."""
        left, top, width, height = around(shape)
        x, y = left, top
        if isinstance(position, dict):
            x, y = round(position["x"] * MM100), round(position["y"] * MM100)
        else:
            words = position.split("-")
            if "left" in words:
                x = page.BorderLeft
            elif "right" in words:
                x = page.Width - page.BorderRight - width
            elif words == ["center"]:
                x = (page.Width + page.BorderLeft - page.BorderRight - width) // 2
            if "top" in words:
                y = page.BorderTop
            elif "bottom" in words:
                y = page.Height - page.BorderBottom - height
            elif words == ["center"]:
                y = (page.Height + page.BorderTop - page.BorderBottom - height) // 2
        at = shape.Position  # of a turned box another corner
        shape.Position = struct("awt.Point", X=at.X + x - left, Y=at.Y + y - top)

    def _embedded(self, path: str) -> str:
        """Copy a file into the document's own storage; the URL that names it there."""
        folder = self._doc.getDocumentStorage().openStorageElement("Media", READWRITE)
        stem, ending = os.path.splitext(os.path.basename(path))
        number, name = 1, stem + ending
        while folder.hasByName(name):
            number += 1
            name = f"{stem}-{number}{ending}"
        stream = folder.openStreamElement(name, WRITE | TRUNCATE)
        out = stream.getOutputStream()
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                out.writeBytes(uno.ByteSequence(block))
        out.closeOutput()
        stream.dispose()
        folder.commit()
        folder.dispose()  # or the shape could not open it
        return f"{PACKAGE}Media/{name}"


def _poster() -> Any:
    """What a medium shows while it does not play: a triangle on grey."""
    picture = Image.new("RGB", (160, 90), (64, 64, 64))
    ImageDraw.Draw(picture).polygon([(65, 25), (65, 65), (100, 45)], fill=(224, 224, 224))
    png = io.BytesIO()
    picture.save(png, "PNG")
    stream = service("io.SequenceInputStream", uno.ByteSequence(png.getvalue()))
    return service("graphic.GraphicProvider").queryGraphic((prop("InputStream", stream),))


def _start_with_slide(page: Any, shape: Any) -> None:
    """Have a medium play as soon as its slide shows: an effect of the slide's main sequence, as the office makes it."""
    root = page.AnimationNode
    main = next((node for node in paragraphs(root) if _type_of(node) == MAIN_SEQUENCE), None)
    if main is None:
        main = service("animations.SequenceTimeContainer")
        main.UserData = (_note("node-type", MAIN_SEQUENCE),)
        root.appendChild(main)
    effect = _container(_container(_container(main)))
    effect.UserData = (
        struct("beans.NamedValue", Name="preset-id", Value="ooo-media-start"),
        _note("preset-class", MEDIACALL),
        _note("node-type", WITH_PREVIOUS),
    )
    command = service("animations.Command")
    command.Target, command.Command, command.Begin = shape, PLAY, 0.0
    effect.appendChild(command)


def _container(parent: Any) -> Any:
    made = service("animations.ParallelTimeContainer")
    made.Begin = 0.0
    parent.appendChild(made)
    return made


def _note(name: str, value: int) -> Any:
    return struct("beans.NamedValue", Name=name, Value=uno.Any("short", value))


def _type_of(node: Any) -> Any:
    return next((note.Value for note in node.UserData or () if note.Name == "node-type"), None)
