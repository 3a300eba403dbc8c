"""Kinds of values that are text: what is typed, names, paths and addresses, checked as plain Python values.

As in `apis.functions.values`; a text holds no control character, and no path begins outside HOME.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import replace
from typing import Any

from apis.functions.declaration import Param

MAX_CELL_TEXT, MAX_NAME, MAX_PATH, MAX_FONT = 1000, 100, 240, 64  # characters
MAX_ADDRESS = 300  # characters
_SETTING = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}", re.ASCII)


class Unfit(Exception):  # noqa: N818 - it becomes a refusal and goes no further
    """The argument is not what the parameter takes."""


def string(param: Param, value: Any, limit: int) -> str:
    """A string of at most `limit` characters that can be typed into any application."""
    if not isinstance(value, str):
        raise Unfit(f"{param.name}: write a string in quotes")
    if len(value) > limit:
        raise Unfit(f"{param.name}: at most {limit} characters, not {len(value)}")
    bad = next((c for c in value if (unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t") or _no_xml(c)), None)
    if bad is not None:
        raise Unfit(f"{param.name}: the control character {bad!r} can't be typed, only \\n and \\t")
    return value


def _no_xml(char: str) -> bool:
    """Whether it is one of the two characters below U+10000 that no XML, and so no office's file, can hold."""
    return char in "\ufffe\uffff"


def text(param: Param, value: Any) -> str:
    """A string."""
    return string(param, value, param.limits[0])


def scalar(param: Param, value: Any) -> Any:
    """What a cell can hold: a string, a number, True, False or None."""
    if isinstance(value, str):
        return string(param, value, MAX_CELL_TEXT)
    if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        if type(value) in (int, float) and abs(value) >= 1 << 53:
            raise Unfit(f"{param.name}: a number this long is written as a string in quotes")
        return value
    raise Unfit(f"{param.name}: the list holds strings, numbers, True, False and None only")


def one_line(param: Param, value: Any, limit: int, wanted: str) -> str:
    """A string that is one line and not empty; `wanted` says what would be right."""
    text = string(param, value, limit)
    if not text.strip() or "\n" in text or "\t" in text:
        raise Unfit(f"{param.name}: write {wanted}")
    return text


def line(param: Param, value: Any) -> str:
    """One line of text; a number is taken for its digits, True and False for 1 and 0."""
    if isinstance(value, bool | int | float):
        value = str(int(value)) if isinstance(value, bool) else str(scalar(param, value))
    text = string(param, value, param.limits[0])
    if "\n" in text or "\t" in text:
        raise Unfit(f"{param.name}: write one line in quotes")
    return text


def own_line(param: Param, value: Any) -> str:
    """One line of text; none that begins like a path elsewhere. Where a path leads is the guest's to look at."""
    text = line(param, value)
    _at_home(param, text.strip(), "~/Music")
    return text


def _at_home(param: Param, path: str, like: str, what: str = "file") -> None:
    """Raise Unfit for a path that leads elsewhere by its words: from the root past no folder `home`, or another user's.

    Where a desktop's HOME lies is its provider's affair, but every one of them has that name on its way.
    """
    outside = path.startswith("/") and "home" not in path.split("/")[1:-1]
    if outside or (path.startswith("~") and not path.startswith("~/") and path != "~"):
        raise Unfit(f"{param.name}: the {what} lies outside the home folder: write a path like {like}")


def path(param: Param, value: Any) -> str:
    """A file below HOME, as a path relative to it or an absolute one; the guest checks where it leads."""
    path = string(param, value, MAX_PATH)
    parts = path.split("/")
    if not parts[-1] or ".." in parts or "\n" in path or "\t" in path or "://" in path:
        raise Unfit(f"{param.name}: write a file of your home folder like '~/Documents/report.pdf', without '..'")
    _at_home(param, path, "~/Documents/name")
    if param.limits and not path.lower().endswith(param.limits):
        raise Unfit(f"{param.name}: the name ends with {' or '.join(param.limits)}")
    return path


def folder(param: Param, value: Any) -> str:
    """A folder below HOME, or a file there with one of the endings allowed; the guest tells which."""
    path = string(param, value, MAX_PATH)
    if not path.strip() or ".." in path.split("/") or "\n" in path or "\t" in path or "://" in path:
        raise Unfit(f"{param.name}: write a folder of your home folder like '~/Documents', without '..'")
    _at_home(param, path, "~/Music", "folder")
    return path


def file_name(param: Param, value: Any) -> str:
    """A file's name alone; the ending is added where it lacks."""
    name = string(param, value, MAX_NAME)
    if not name.strip(" .") or any(c in "/\\\n\t" for c in name):
        raise Unfit(f"{param.name}: write a file's name without a folder, like 'report{param.limits[0]}'")
    return string(param, name if name.lower().endswith(param.limits) else name + str(param.limits[0]), MAX_NAME)


def media(param: Param, value: Any) -> str:
    """A file below HOME by its path or file:// address, or an address of the web; the guest checks where it leads."""
    wanted = "a file like 'file:///home/agent/Music/a.mp3' or '~/Music/a.mp3', or an https address"
    text = one_line(param, value, MAX_ADDRESS, wanted).strip()
    scheme, mark, _ = text.partition("://")
    if (mark and scheme.lower() not in ("file", "http", "https")) or ".." in text.split("/") or text.endswith("/"):
        raise Unfit(f"{param.name}: write {wanted}, without '..'")
    if not mark or scheme.lower() == "file":
        _at_home(param, text[len("file://") :].removeprefix("localhost") if mark else text, "~/Music/a.mp3")
    return scheme.lower() + text[len(scheme) :] if mark else text


def setting(param: Param, value: Any) -> str:
    """A setting's name, with or without the dashes of a command line."""
    name = value.strip().removeprefix("--") if isinstance(value, str) else ""
    if not _SETTING.fullmatch(name):
        raise Unfit(f"{param.name}: write a setting's name like 'qt-max-volume'")
    return name


def font(param: Param, value: Any) -> str:
    """One font's name."""
    name = string(param, value, MAX_FONT).strip()
    if not name or any(c in ";,\n\t" for c in name):
        raise Unfit(f"{param.name}: write one font's name like 'Liberation Serif'")
    return name


def extension(param: Param, value: Any) -> str:
    """An extension's publisher and name or, where an ending is among the limits, its file below HOME."""
    longest, *endings = param.limits
    text = one_line(param, value, longest, "publisher and name like 'bat.theme'").strip()
    return path(replace(param, limits=tuple(endings)), text) if endings and "/" in text else text
