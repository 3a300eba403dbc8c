"""Checks of what Chromium, VLC and VS Code write: bookmarks, playlists, settings, and the list of extensions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from apis.guest.code.start import EXTENSIONS
from apis.tasks.verify.bookmarks import NotChromiumsError, read
from apis.tasks.verify.verify import FileView, TaskVerdict, bounded

LEAST = 300  # settings in a file; VLC with few plugins writes over a thousand
_HEAD = re.compile(
    r"\ufeff?###\n###  vlc [0-9][^\n]*\n###\n\n###\n### lines beginning with a '#' character are comments\n###\n\n"
)
_SECTION = re.compile(r"\[[^\]\n]+\](?: # [^\n]*)?")
_SETTING = re.compile(r"# [^\n]* \((?:string|integer|float|boolean)\)\n(#?)([^\s#=]+)=([^\n]*)")


def settings(text: str) -> dict[str, list[str | None]] | None:
    """The values in VLC's file by name, None for one that is at its default; None where it is not as VLC writes it."""
    head = _HEAD.match(text)
    if head is None or not text.endswith("\n\n"):
        return None
    found: dict[str, list[str | None]] = {}
    for block in text[head.end() : -2].split("\n\n"):
        if _SECTION.fullmatch(block):
            continue
        setting = _SETTING.fullmatch(block)
        if setting is None:
            return None
        found.setdefault(setting[2], []).append(None if setting[1] else setting[3])
    return found if len(found) >= LEAST else None


def written_settings(values: Mapping[str, str]) -> str:
    """The shortest file that VLC could have written with these values."""
    others = (f"setting-{number}" for number in range(LEAST))
    lines = [f"# Text (string)\n{name}={value}\n\n" for name, value in values.items()]
    lines += [f"# Text (integer)\n#{name}=0\n\n" for name in others]
    head = "\ufeff###\n###  vlc 3.0\n###\n\n###\n### lines beginning with a '#' character are comments\n###\n\n"
    return f"{head}[core] # core program\n\n{''.join(lines)}"


def entries(text: str) -> list[str] | None:
    """The entries of an M3U file; None where it is not as VLC writes it: a line of length and title before each."""
    lines = text.split("\n")
    if lines[0] != "#EXTM3U" or lines[-1] or len(lines) % 2:
        return None
    told, found = lines[1:-1:2], lines[2:-1:2]
    if any(not re.fullmatch(r"#EXTINF:(-1|[0-9]+),[^\n]*", line) for line in told):
        return None
    return None if any(not entry or entry.startswith("#") for entry in found) else found


def written_playlist(names: Iterable[str]) -> str:
    """The file that VLC writes for sounds of one second beside it."""
    return "#EXTM3U\n" + "".join(f"#EXTINF:1,{name}\n{name}\n" for name in names)


MOST_BYTES = 1 << 18  # VLC's file of settings has 90 kB
LIST_BYTES = 1 << 16  # of VS Code's list of extensions


def bookmarks_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The profile's bookmarks are `expected`, in any order: [folder, title, path of the page below HOME] each.

    The folder of one that lies in none is ""; in which of Chromium's own folders it lies is the same.
    """
    data, trouble = bounded(view, MOST_BYTES)
    if data is None:
        return TaskVerdict(False, trouble)
    try:
        found = sorted(read(data))
    except NotChromiumsError as error:
        return TaskVerdict(False, str(error))
    wanted = sorted((folder, title, path) for folder, title, path in rules["expected"])
    if len(found) != len(wanted):
        return TaskVerdict(False, f"it holds {len(found)} bookmarks where {len(wanted)} are wanted")
    for (folder, title, url), (in_folder, called, path) in zip(found, wanted, strict=True):
        if (folder, title) != (in_folder, called):
            return TaskVerdict(False, "a bookmark has another title or lies in another folder")
        if not _is_at(unquote(url), path, view.home):
            return TaskVerdict(False, "a bookmark is of another page")
    return TaskVerdict(True, "it holds the bookmarks that it should")


def playlist_is(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The M3U file's entries are `expected`, in this order: paths below HOME of files that lie beside it."""
    text, trouble = _text(view)
    if text is None:
        return TaskVerdict(False, trouble)
    listed = entries(text)
    if listed is None:
        return TaskVerdict(False, "it is not as VLC writes a playlist")
    found = [unquote(entry) for entry in listed]
    wanted = [str(path) for path in rules["expected"]]
    if len(found) != len(wanted):
        return TaskVerdict(False, f"it has {len(found)} entries where {len(wanted)} are wanted")
    for number, (entry, path) in enumerate(zip(found, wanted, strict=True), 1):
        if entry != path.rpartition("/")[2] and not _is_at(entry, path, view.home):
            return TaskVerdict(False, f"entry {number} is another file")
    return TaskVerdict(True, "it lists what it should")


def settings_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """VLC's whole file says so: the settings of `expected`, by name, have these values; "" stands for the default."""
    text, trouble = _text(view)
    if text is None:
        return TaskVerdict(False, trouble)
    found = settings(text)
    if found is None:
        return TaskVerdict(False, "it is not as VLC writes it")
    for name, value in dict(rules["expected"]).items():
        if [said or "" for said in found.get(name, [])] != [value]:
            return TaskVerdict(False, f"{name} has another value")
    return TaskVerdict(True, "the settings are as they should be")


def is_dialogs(view: FileView) -> bool:
    """Whether a file is Qt's note of what its dialogs for files have shown, with a folder of HOME as the last one."""
    text, _ = _text(view)
    lines = (text or "").splitlines()
    told = dict(line.split("=", 1) for line in lines[1:] if "=" in line)
    visited = told.get("lastVisited", "").startswith(f"file://{view.home}")
    return lines[:1] == ["[FileDialog]"] and visited and bool(re.fullmatch(r"5\.[\d.]+", told.get("qtVersion", "")))


def _is_at(address: str, path: str, home: str) -> bool:
    """Whether a path or a file:// address leads to `path` below HOME."""
    return address.removeprefix("file://") == f"{home}/{path}"


def _text(view: FileView) -> tuple[str | None, str]:
    data, trouble = bounded(view, MOST_BYTES)
    if data is None:
        return None, trouble
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return None, "it is not UTF-8 text"


class _Identifier(msgspec.Struct):
    id: str


class _Location(msgspec.Struct):
    path: str
    scheme: str


class _Installed(msgspec.Struct, rename="camel"):
    """An extension as the editor lists it; what else it writes is left out."""

    identifier: _Identifier
    version: str
    location: _Location
    relative_location: str

    def lies_in(self, home: str) -> bool:
        """Whether it is said to lie where the editor keeps extensions, under its own name."""
        folder = f"{self.identifier.id}-{self.version}".lower()
        place = (self.location.scheme, self.location.path.lower(), self.relative_location.lower())
        return place == ("file", f"{home}/{EXTENSIONS}/{folder}".lower(), folder)


def extensions_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The editor's list holds exactly the extensions of `expected`, in any order: "publisher.name@version" each."""
    data, trouble = bounded(view, LIST_BYTES)
    if data is None:
        return TaskVerdict(False, trouble)
    try:
        rows = msgspec.json.decode(data, type=list[_Installed])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TaskVerdict(False, "it is no list of extensions")
    found = sorted(f"{row.identifier.id.lower()}@{row.version}" for row in rows)
    if found != sorted(rules["expected"]):
        return TaskVerdict(
            False, f"it lists {len(found)} extensions, not those {len(rules['expected'])} that are wanted"
        )
    if not all(row.lies_in(view.home) for row in rows):
        return TaskVerdict(False, "an extension in it lies elsewhere")
    return TaskVerdict(True, "it lists the extensions that it should")


def listed_extension(extension: str, version: str, home: str) -> dict[str, object]:
    """How the editor lists "publisher.name"."""
    folder = f"{extension}-{version}"
    location = {"$mid": 1, "path": f"{home}/{EXTENSIONS}/{folder}", "scheme": "file"}
    return {"identifier": {"id": extension}, "version": version, "location": location, "relativeLocation": folder}
