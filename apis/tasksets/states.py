"""What an application says of itself before the freeze, in the form of the published getters.

Invariant: an answer of the desktop is decoded as the type that it has to be; anything else is no file.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

import msgspec

from apis.tasks.verify.verify import FileView

MISSING = FileView("missing")


class _Playing(msgspec.Struct, frozen=True):
    state: str
    uri: str | None = None


class _Window(msgspec.Struct, frozen=True):
    folders: list[str]


def playing(said: str | None) -> FileView:
    """What VLC plays, as the part of its status.xml that metrics look at."""
    try:
        found = msgspec.json.decode(said or "", type=_Playing)
        path = unquote(urlsplit(found.uri or "").path)
    except (msgspec.DecodeError, ValueError):
        return MISSING
    told = {"filename": PurePosixPath(path).name, "url": found.uri or ""}
    info = "".join(f'<info name="{name}">{_plain(value)}</info>' for name, value in told.items())
    meta = f'<information><category name="meta">{info}</category></information>'
    return FileView("file", data=f"<root><state>{_plain(found.state)}</state>{meta}</root>".encode())


def _plain(text: str) -> str:
    return escape("".join(char for char in text if char.isprintable()))


def project(said: str | None) -> FileView:
    """The name of the folder that VS Code's window shows, where it shows one alone."""
    try:
        (folder,) = msgspec.json.decode(said or "", type=_Window).folders
    except (msgspec.DecodeError, ValueError):
        return MISSING
    return FileView("file", data=PurePosixPath(folder).name.encode("utf-8", "replace"))
