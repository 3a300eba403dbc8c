"""Impress: the presentation's files, and settings of the office.

Invariant: files are written below HOME only. A setting is written through to the user's profile before it is confirmed.
"""

from __future__ import annotations

import os
from typing import Any

from guest.impress.base import Show
from guest.office.base import prop, props, service, writing
from guest.paths import to_write, url_of, wrong

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
        """Write the presentation's file."""
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
        """Write one slide, or all, as pictures."""
        target = to_write(file_path, "file_path")
        stem, ending = os.path.splitext(target)
        right = ENDINGS.get(format, (f".{format}",))
        if ending.lower() not in right:
            raise wrong(f"file_path: for the format {format} the name ends with {' or '.join(right)}")
        count = self._count()
        if slide_index is None and count > MAX_EXPORTED:
            raise wrong(f"slide_index: name one slide; at most {MAX_EXPORTED} are written at once, not {count}")
        if slide_index is not None:
            wanted = {target: slide_index}
        else:
            wanted = {to_write(f"{stem}-{n}{ending}", "file_path"): n for n in range(1, count + 1)}
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
        """Set the screens of the show."""
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
