"""What an application says of itself before the freeze, in the form of the published getters.

Invariant: an answer of the desktop is decoded as the type that it has to be; anything else is no file.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

import msgspec

from apis.tasks.verify.verify import FileView

MISSING = FileView("missing")
VIDEOS = ("mp4", "mpeg", "x-matroska", "x-msvideo", "webm", "ogg", "quicktime", "x-flv")


class _Playing(msgspec.Struct, frozen=True):
    state: str
    uri: str | None = None


class _Browser(msgspec.Struct, frozen=True):
    tabs: list[tuple[str, str]]  # address and title
    active: int  # of them; -1 where none is in front


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


def _browser(said: str | None) -> _Browser:
    try:
        return msgspec.json.decode(said or "", type=_Browser)
    except (msgspec.DecodeError, ValueError):
        return _Browser([], -1)


def tabs(said: str | None) -> list[dict[str, str]]:
    """The open tabs of the browser; none where none runs."""
    return [{"url": url, "title": title} for url, title in _browser(said).tabs]


def front(said: str | None) -> dict[str, str] | None:
    """The tab in front; None where there is none."""
    found = _browser(said)
    return tabs(said)[found.active] if 0 <= found.active < len(found.tabs) else None


def address(said: str | None, prefix: str) -> str | None:
    """`prefix` and the address of the tab in front as the browser shows it: without https and www. None without one."""
    tab = front(said)
    if tab is None or not tab["url"]:
        return None
    shown = re.sub(r"^https?://(?:www\.)?", "", tab["url"])
    return prefix + (shown.removesuffix("/") if shown.count("/") == 1 else shown)


def shortcuts(said: str | None) -> dict[str, str]:
    """The content of each shortcut by its file's name: of lines, each behind its file and a zero byte."""
    found: dict[str, str] = {}
    for line in (said or "").split("\n"):
        path, zero, content = line.partition("\0")
        if zero:
            name = PurePosixPath(path).name
            found[name] = f"{found.get(name, '')}{content}\n"
    return found


def player(view: FileView) -> str:
    """The program that opens most kinds of videos, by the user's own list of them."""
    lines = view.data.decode("utf-8", "replace").partition("[Default Applications]")[2].partition("\n[")[0].splitlines()
    chosen = {kind.strip(): program.strip().strip(";") for kind, _, program in (line.partition("=") for line in lines)}
    return Counter(chosen.get(f"video/{kind}", "unknown") for kind in VIDEOS).most_common(1)[0][0]


def size(said: str | None) -> dict[str, int] | None:
    """A width and a height in pixels; None where there is no such window."""
    try:
        width, height = msgspec.json.decode(said or "", type=tuple[int, int])
    except (msgspec.DecodeError, ValueError):
        return None
    return {"width": width, "height": height}
