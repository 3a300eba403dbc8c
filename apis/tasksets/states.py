"""What applications say before the freeze, and the browser's profile after it, in the form of the published getters."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

import msgspec

from apis.tasks.metrics.metric import UnreadableResult, document
from apis.tasks.osworld import HOME, Getter
from apis.tasks.verify.verify import FileView, Read

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
    except (ValueError, RecursionError):
        return MISSING
    known = {"filename": PurePosixPath(path).name, "url": found.uri or ""}
    info = "".join(f'<info name="{name}">{_plain(value)}</info>' for name, value in known.items())
    meta = f'<information><category name="meta">{info}</category></information>'
    return FileView("file", data=f"<root><state>{_plain(found.state)}</state>{meta}</root>".encode())


def _plain(text: str) -> str:
    return escape("".join(char for char in text if char.isprintable()))


def project(said: str | None) -> FileView:
    """The name of the folder that VS Code's window shows, where it shows one alone."""
    try:
        (folder,) = msgspec.json.decode(said or "", type=_Window).folders
    except (ValueError, RecursionError):
        return MISSING
    return FileView("file", data=PurePosixPath(folder).name.encode("utf-8", "replace"))


def _browser(said: str | None) -> _Browser:
    try:
        return msgspec.json.decode(said or "", type=_Browser)
    except (ValueError, RecursionError):
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
    except (ValueError, RecursionError):
        return None
    return {"width": width, "height": height}


PROFILE = ".config/chromium"
PREFERENCES = f"{PROFILE}/Default/Preferences"
SECURE = f"{PROFILE}/Default/Secure Preferences"  # where extensions stand
LOCAL_STATE = f"{PROFILE}/Local State"
# Databases: the file, the table, and which of its columns a metric is given.
DATABASES = {
    "cookie_data": ("Cookies", "cookies", ("name", "host_key")),
    "history": ("History", "urls", ("url", "title", "last_visit_time")),
}


def files_of(kind: str) -> list[str]:
    """Paths below HOME that the getter `kind` reads; none where it is no getter of the profile."""
    if kind in DATABASES:
        return [f"{PROFILE}/Default/{DATABASES[kind][0]}"]
    return list(_SETTINGS[kind][0]) if kind in _SETTINGS else []


def value_of(getter: Getter, read: Read) -> Any:
    """The value of a getter of the profile."""
    kind = str(getter["type"])
    if kind in DATABASES:
        return _rows(read(files_of(kind)[0]), *DATABASES[kind][1:])
    paths, found = _SETTINGS[kind]
    return found(*(_json(read(path)) for path in paths))


def _rows(view: FileView, table: str, columns: tuple[str, ...]) -> Any:
    """Rows of a table; None where there is no such."""
    try:
        return document(view, "database").rows(table, *columns)
    except UnreadableResult:
        return None


def _json(view: FileView) -> dict[str, Any]:
    """The object that a file holds; an empty one for anything else."""
    try:
        found = json.loads(view.data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _yes(value: Any) -> str:
    return "true" if value is True else "false"


def _extensions(*files: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the profile says of each extension that was added to it."""
    for file in files:
        listed = _at(file, "extensions", "settings")
        yield from (one for one in (listed.values() if isinstance(listed, dict) else ()) if isinstance(one, dict))


def _paths(*files: dict[str, Any]) -> list[str]:
    """Where extensions lie, with the published HOME in place of the guest's."""
    paths = [str(one["path"]) for one in _extensions(*files) if isinstance(one.get("path"), str)]
    return [re.sub("^/home/[^/]*/", f"{HOME}/", path) for path in paths]


def _names(*files: dict[str, Any]) -> list[str]:
    names = [_at(one, "manifest", "name") for one in _extensions(*files)]
    return [name for name in names if isinstance(name, str)]


_Setting = tuple[tuple[str, ...], Callable[..., Any]]  # the files, and what they say
_SETTINGS: dict[str, _Setting] = {
    "bookmarks": ((f"{PROFILE}/Default/Bookmarks",), lambda p: p.get("roots", {})),
    "chrome_font_size": ((PREFERENCES,), lambda p: _at(p, "webkit", "webprefs") or {"default_font_size": 16}),
    "chrome_language": ((LOCAL_STATE,), lambda p: _at(p, "intl", "app_locale") or "en-US"),
    "data_delete_automacally": (
        (PREFERENCES,),
        lambda p: _yes(_at(p, "profile", "default_content_setting_values") is not None),
    ),
    "default_search_engine": (
        (PREFERENCES,),
        lambda p: _at(p, "default_search_provider_data", "template_url_data", "short_name") or "Google",
    ),
    "enable_do_not_track": ((PREFERENCES,), lambda p: _yes(_at(p, "enable_do_not_track"))),
    "enable_enhanced_safety_browsing": ((PREFERENCES,), lambda p: _yes(_at(p, "safebrowsing", "enhanced"))),
    "enable_safe_browsing": ((PREFERENCES,), lambda p: _yes(_at(p, "safebrowsing", "enabled"))),
    "enabled_experiments": ((LOCAL_STATE,), lambda p: _at(p, "browser", "enabled_labs_experiments") or []),
    "find_installed_extension_name": ((PREFERENCES, SECURE), _names),
    "find_unpacked_extension_path": ((PREFERENCES, SECURE), _paths),
    "new_startup_page": ((PREFERENCES,), lambda p: _yes(_at(p, "session", "restore_on_startup") in (None, 5))),
    "profile_name": ((PREFERENCES,), lambda p: _at(p, "profile", "name")),
}
KNOWN = {*DATABASES, *_SETTINGS}
