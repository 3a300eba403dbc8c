"""Impress: the presentation's files, settings of the office, and pictures, sound and video on slides."""

from __future__ import annotations

import io
import mimetypes
import os
from itertools import count
from typing import Any

import uno
from guest.files import IMAGE_MAX_BYTES, refuse_large, there_in_home, to_write, url_of, wrong
from guest.impress.base import Show, around
from guest.office.base import each, free_name, graphic, prop, props, service, struct, writing
from PIL import Image, ImageDraw

FORMATS = {".odp": "impress8", ".pptx": "Impress MS PowerPoint 2007 XML", ".ppt": "MS PowerPoint 97"}
MEDIA_TYPES = {
    "png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif", "bmp": "image/x-MS-bmp",
    "tiff": "image/tiff",
}  # fmt: skip
ENDINGS = {"jpeg": (".jpg", ".jpeg"), "jpg": (".jpg", ".jpeg"), "tiff": (".tif", ".tiff")}
LONG_SIDE = 1280  # pixels of an exported slide
MAX_EXPORTED = 100
AUTO_SAVE = "/org.openoffice.Office.Recovery/AutoSave"
MISC = "/org.openoffice.Office.Impress/Misc"
START = f"{MISC}/Start"
FIRST, BY_ITSELF = 1, 0  # of the screens


class Files(Show):
    """Files and settings."""

    def save(self) -> str:
        self._rest()  # a box that was emptied holds its old text until then
        return self._save()

    def save_as(self, *, file_path: str, overwrite: bool) -> str:
        """Write another file and go on with it."""
        target = to_write(file_path, "file_path")
        name = os.path.basename(target)
        if os.path.exists(target) and not overwrite:
            raise wrong(f"file_path: there is a file {name[:80]} already: choose another name, or overwrite=True")
        self._rest()
        filter_name = FORMATS[os.path.splitext(target)[1].lower()]
        with writing(target, "file_path"):
            self._doc.storeAsURL(url_of(target), (prop("FilterName", filter_name), prop("Overwrite", True)))
        return f"saved as {name}"

    def export_to_image(self, *, file_path: str, format: str, slide_index: int | None) -> str:  # noqa: A002 - as published
        target = to_write(file_path, "file_path")
        stem, ending = os.path.splitext(target)
        right = ENDINGS.get(format, (f".{format}",))
        if ending.lower() not in right:
            raise wrong(f"file_path: for the format {format} the name ends with {' or '.join(right)}")
        slides = self._count()
        if slide_index is None and slides > MAX_EXPORTED:
            raise wrong(f"slide_index: name one slide; at most {MAX_EXPORTED} are written at once, not {slides}")
        if slide_index is not None:
            wanted = {target: slide_index}
        else:
            wanted = {to_write(f"{stem}-{n}{ending}", "file_path"): n for n in range(1, slides + 1)}
        self._rest()
        for path, number in wanted.items():
            self._export(path, MEDIA_TYPES[format], self._slide(number))
        names = [os.path.basename(path) for path in wanted]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        return f"wrote {', '.join(names[:10])}{more}"

    def _export(self, path: str, media_type: str, page: Any) -> None:
        scale = LONG_SIDE / max(page.Width, page.Height)
        size = props(PixelWidth=round(page.Width * scale), PixelHeight=round(page.Height * scale))
        writer = service("drawing.GraphicExportFilter")
        writer.setSourceDocument(page)
        if not writer.filter((prop("MediaType", media_type), prop("URL", url_of(path)), prop("FilterData", size))):
            raise wrong(f"file_path: {os.path.basename(path)[:80]} could not be written")

    def configure_auto_save(self, *, enabled: bool, interval_minutes: float) -> str:
        """Set whether documents are saved by themselves, and how often."""
        if not interval_minutes.is_integer():
            raise wrong("interval_minutes: write whole minutes from 1 to 60")
        _configure(AUTO_SAVE, Enabled=enabled, TimeIntervall=int(interval_minutes))
        return f"auto save is {'on' if enabled else 'off'}, every {interval_minutes:g} minutes"

    def configure_display_settings(
        self,
        *,
        use_presenter_view: bool | None,
        primary_monitor_only: bool | None,
        monitor_for_presentation: int | None,
    ) -> str:
        if use_presenter_view is None and primary_monitor_only is None and monitor_for_presentation is None:
            raise wrong("use_presenter_view: give it, primary_monitor_only or monitor_for_presentation")
        if primary_monitor_only:
            if use_presenter_view:
                raise wrong("use_presenter_view: the presenter's view needs a second screen: leave one of them out")
            if monitor_for_presentation not in (None, FIRST):
                raise wrong("monitor_for_presentation: with primary_monitor_only=True it is 1: leave one of them out")
            use_presenter_view, monitor_for_presentation = False, FIRST
        elif primary_monitor_only is not None and monitor_for_presentation is None:
            monitor_for_presentation = BY_ITSELF
        done = []
        if use_presenter_view is not None:
            _configure(START, EnablePresenterScreen=use_presenter_view)
            done.append(f"the presenter's view is {'on' if use_presenter_view else 'off'}")
        if monitor_for_presentation is not None:
            self._doc.Presentation.Display = monitor_for_presentation
            _configure(MISC, Display=monitor_for_presentation)  # the office itself writes it when it ends
            chosen = f"screen {monitor_for_presentation}" if monitor_for_presentation else "a screen chosen by itself"
            done.append(f"the show uses {chosen}")
        return "; ".join(done)


def _configure(path: str, **values: Any) -> None:
    """Change settings of the user's profile, and write it."""
    provider = service("configuration.ConfigurationProvider")
    access = provider.createInstanceWithArguments(
        "com.sun.star.configuration.ConfigurationUpdateAccess", (prop("nodepath", path),)
    )
    for name, value in values.items():
        access.setPropertyValue(name, value)
    access.commitChanges()
    provider.flush()


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
        page = self._slide(slide_index)
        picture = self._graphic(there_in_home(image_path, "image_path"), "image_path")
        shape = self._doc.createInstance("com.sun.star.drawing.GraphicObjectShape")
        shape.Graphic = picture
        dots = picture.SizePixel
        wide = picture.Size100thMM.Width or round(dots.Width * MM100_PER_PIXEL)
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
        if os.path.getsize(path) > IMAGE_MAX_BYTES:
            raise wrong(f"file_path: at most {IMAGE_MAX_BYTES >> 20} MiB, and {os.path.basename(path)[:80]} is larger")
        sound = path.lower().endswith(SOUNDS)
        shape = self._doc.createInstance("com.sun.star.presentation.MediaShape")
        wanted = size or {}
        own = (2 * MM100, 2 * MM100) if sound else (page.Width // 2, page.Width * 9 // 32)
        placed = self._add(page, shape, own, (wanted.get("width"), wanted.get("height")), position)
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
        return f"the {'sound' if sound else 'video'} is {placed}{start}"

    def _graphic(self, path: str, argument: str) -> Any:
        refuse_large(path, argument)
        return graphic(path, f"{argument}: {os.path.basename(path)[:80]} is no picture that Impress can read")

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
        name = free_name(folder, (stem + ending,), (f"{stem}-{number}{ending}" for number in count(2)))
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
    kept = {note.Value: node for node in each(root) for note in node.UserData or () if note.Name == "node-type"}
    main = kept.get(MAIN_SEQUENCE)
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
