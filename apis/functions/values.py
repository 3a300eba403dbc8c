"""Kinds of values that a parameter can take: `fit` returns one in its canonical spelling, within its bounds."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from apis.functions.declaration import Function, Param
from apis.guest.addresses import ROWS, Place, address, column_of, place_of

MAX_CELLS = 2 * ROWS  # of a range
MAX_LINE = 1000  # of a text box
MIN_CM, MAX_CM = 0.1, 300.0  # of a shape on a slide
NOT_LITERAL = object()  # an argument that is no literal
MAX_CELL_TEXT, MAX_NAME, MAX_PATH, MAX_FONT = 1000, 100, 240, 64  # characters
MAX_ADDRESS = 300  # characters
_SETTING = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}", re.ASCII)

COLOURS = {
    "black": "#000000", "white": "#ffffff", "red": "#ff0000", "green": "#008000", "blue": "#0000ff",
    "yellow": "#ffff00", "orange": "#ffa500", "purple": "#800080", "gray": "#808080", "grey": "#808080",
    "cyan": "#00ffff", "magenta": "#ff00ff", "pink": "#ffc0cb", "brown": "#a52a2a",
}  # fmt: skip
_CELL = re.compile(r"\$?([A-Za-z]{1,3})\$?([1-9]\d{0,6})", re.ASCII)
_LETTERS = re.compile(r"\$?([A-Za-z]{1,3})", re.ASCII)
_ROW = re.compile(r"\$?([1-9]\d{0,6})", re.ASCII)
_HEX = re.compile(r"#?([0-9A-Fa-f]{6})", re.ASCII)


def fit(param: Param, value: Any) -> Any:
    """`value` as `param` wants it. Raises Unfit; KeyError for a kind that is none of plain values."""
    if param.default is None and value is None:
        return None
    return _FITS[param.kind](param, value)


def fitted(function: Function, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the function gets them, defaults filled in. Raises Unfit."""
    if unknown := sorted(set(given) - {param.name for param in function.params}):
        raise Unfit(f"no argument {unknown[0]}")
    if missing := [param.name for param in function.params if param.required and param.name not in given]:
        raise Unfit(f"{missing[0]} is missing")
    return {p.name: fit(p, given[p.name]) if p.name in given else p.default for p in function.params}


def _cell_at(text: str) -> Place | None:
    """Row and column of a cell's name, in letters of any case and with or without dollar signs."""
    parts = _CELL.fullmatch(text.strip())
    return place_of(f"{parts[1]}{parts[2]}".upper()) if parts is not None else None


class Unfit(ValueError):  # noqa: N818 - it becomes a refusal and goes no further
    """The argument is not what the parameter takes."""


def _need(fits: bool, param: Param, wanted: str) -> None:
    """Raise Unfit with the parameter's name and what would be right."""
    if not fits:
        raise Unfit(f"{param.name}: {wanted}")


def _integer(param: Param, value: Any) -> int:
    low, high = param.limits
    _need(type(value) is int and low <= value <= high, param, f"write a whole number from {low} to {high}")
    return int(value)


def _number(param: Param, value: Any) -> float:
    low, high = param.limits  # NaN and infinity lie nowhere
    _need(type(value) in (int, float) and low <= value <= high, param, f"write a number from {low} to {high}")
    return float(value)


def _boolean(param: Param, value: Any) -> Any:
    _need(type(value) is bool, param, "write True or False")
    return value


def _choice(param: Param, value: Any) -> Any:
    _need(isinstance(value, str) and value in param.limits, param, f"write one of {', '.join(map(repr, param.limits))}")
    return value


def _cell(param: Param, value: Any) -> str:
    at = _cell_at(value) if isinstance(value, str) else None
    if at is None:
        raise Unfit(f"{param.name}: write one cell like 'B3', columns A to XFD, rows 1 to {ROWS}")
    return address(*at)


def _range(param: Param, value: Any) -> str:
    first, colon, second = value.partition(":") if isinstance(value, str) else ("", "", "")
    start = _cell_at(first)
    end = _cell_at(second) if colon else start
    if start is None or end is None:
        raise Unfit(f"{param.name}: write a range like 'A1:C10', with both corners on the active sheet")
    (top, bottom), (left, right) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    few = (right - left + 1) * (bottom - top + 1) <= MAX_CELLS
    _need(few, param, f"at most {MAX_CELLS} cells, which are two whole columns")
    return f"{address(top, left)}:{address(bottom, right)}" if colon else address(top, left)


def _letters_of(value: Any) -> str | None:
    parts = _LETTERS.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if parts is None or column_of(parts[1].upper()) is None else parts[1].upper()


def _column(param: Param, value: Any) -> Any:
    letters = _letters_of(value)
    _need(letters is not None, param, "write a column's letters, 'A' to 'XFD'")
    return letters


def _columns(param: Param, value: Any) -> str:
    """One column or a span of them: "B", "A:C"."""
    ends = [_letters_of(end) for end in value.split(":", 1)] if isinstance(value, str) else [None]
    _need(None not in ends, param, "write columns like 'B' or 'A:C'")
    return ":".join(sorted((end for end in ends if end), key=lambda letters: (len(letters), letters)))


def _rows(param: Param, value: Any) -> str:
    """One row or a span of them: "3", "1:10"."""
    ends = [_ROW.fullmatch(end.strip()) for end in value.split(":", 1)] if isinstance(value, str) else [None]
    numbers = sorted(int(end[1]) for end in ends if end)
    fits = len(numbers) == len(ends) and numbers[-1] <= ROWS
    _need(fits, param, f"write rows like '3' or '1:10', at most {ROWS}")
    return ":".join(map(str, numbers))


def _list(param: Param, value: Any, wanted: str, *, most: int | None = None) -> list[Any]:
    """A list that is not empty and of at most `most` items, as many as the limit says otherwise."""
    most = param.limits[0] if most is None else most
    _need(isinstance(value, list) and 1 <= len(value) <= most, param, wanted)
    return list(value)


def _letters(param: Param, value: Any) -> list[Any]:
    wanted = f"write a list of different columns like ['B', 'A'], at most {param.limits[0]}"
    columns = [_letters_of(item) for item in _list(param, value, wanted)]
    _need(None not in columns and len(set(columns)) == len(columns), param, wanted)
    return columns


def _scalars(param: Param, value: Any) -> list[Any]:
    wanted = f"write a list of 1 to {param.limits[0]} values like ['a', 2]"
    return [scalar(param, item) for item in _list(param, value, wanted)]


def _names(param: Param, value: Any) -> list[str]:
    wanted = f"write a list of 1 to {param.limits[0]} names in quotes like ['Sales']"
    return [string(param, item, MAX_NAME) for item in _list(param, value, wanted)]


def _numbers(param: Param, value: Any, low: int, high: int, *, most: int, wanted: str) -> list[int]:
    """Whole numbers, each once, in rising order."""
    items = _list(param, value, wanted, most=most)
    _need(all(type(item) is int and low <= item <= high for item in items), param, wanted)
    return sorted(set(items))


def _lines(param: Param, value: Any) -> list[int]:
    (most,) = param.limits
    wanted = f"write a list of 1 to {most} line numbers from 1 on, like [1, 3]"
    return _numbers(param, value, 1, MAX_LINE, most=most, wanted=wanted)


def _indices(param: Param, value: Any) -> list[int]:
    highest, most = param.limits
    wanted = f"write a list of 1 to {most} whole numbers from 0 on, like [0, 2]"
    return _numbers(param, value, 0, highest, most=most, wanted=wanted)


def _sheet(param: Param, value: Any) -> str:
    name = string(param, value, MAX_NAME)
    fits = name.strip() and not any(c in "[]*?:/\\\n\t" for c in name) and "'" not in (name[0], name[-1])
    _need(bool(fits), param, "a sheet's name is not empty, has none of []*?:/\\ and no ' at its ends")
    return name


def _entry(param: Param, value: Any) -> str:
    """What goes into a cell, as a user types it; a number is taken for its digits."""
    _need(isinstance(value, str | int | float), param, "write a string in quotes like '42' or '=SUM(B2:B5)'")
    typed = str(scalar(param, value))
    return typed.upper() if isinstance(value, bool) else typed


def _rgb(param: Param, value: Any) -> int:
    wanted = "write a whole number from 0 to 16777215 (0xRRGGBB), e.g. 16776960 for yellow"
    _need(type(value) is int and 0 <= value <= 0xFFFFFF, param, wanted)
    return int(value)


def _colour(param: Param, value: Any) -> str:
    text = value.strip().lower() if isinstance(value, str) else ""
    digits = _HEX.fullmatch(COLOURS.get(text, text))
    if digits is None:
        raise Unfit(f"{param.name}: write a colour like '#ff0000' or one of {', '.join(COLOURS)}")
    return f"#{digits[1]}"


def _lengths(value: Any, wanted: tuple[str, ...], low: float, high: float) -> dict[str, float]:
    """A dict of lengths with some of the `wanted` keys and no other; {} for anything else."""
    if not isinstance(value, dict) or set(value) - set(wanted):
        return {}
    if any(type(n) not in (int, float) or not low <= n <= high for n in value.values()):
        return {}
    return {key: float(value[key]) for key in wanted if key in value}


def _spot(param: Param, value: Any) -> Any:
    """Where something is on a slide: a keyword, or the place of its upper left corner in cm."""
    if isinstance(value, str) and value in param.limits:
        return value
    aliases = {"left": "x", "top": "y"}
    named = {aliases.get(k, k): v for k, v in value.items()} if isinstance(value, dict) else value
    place = _lengths(named, ("x", "y"), -MAX_CM, MAX_CM)
    words = ", ".join(map(repr, param.limits))
    wanted = f"write {{'x': 2, 'y': 3.5}} in cm from the upper left corner, or one of {words}"
    _need(len(place) == 2 == len(value) if place else False, param, wanted)
    return place


def _extent(param: Param, value: Any) -> dict[str, float]:
    """A width, a height or both, in cm."""
    size = _lengths(value, ("width", "height"), MIN_CM, MAX_CM)
    _need(bool(size), param, f"write {{'width': 8, 'height': 4.5}} in cm, from {MIN_CM} to {MAX_CM}")
    return size


def string(param: Param, value: Any, limit: int) -> str:
    """A string of at most `limit` characters that can be typed into any application."""
    _need(isinstance(value, str), param, "write a string in quotes")
    _need(len(value) <= limit, param, f"at most {limit} characters, not {len(value)}")
    # No XML, and so no office's file, can hold the last two.
    controls = (c for c in value if unicodedata.category(c) in ("Cc", "Cs") or c in "\ufffe\uffff")
    bad = next((c for c in controls if c not in "\n\t"), None)
    _need(bad is None, param, f"the control character {bad!r} can't be typed, only \\n and \\t")
    return str(value)


def text(param: Param, value: Any) -> str:
    """A string."""
    return string(param, value, param.limits[0])


def scalar(param: Param, value: Any) -> Any:
    """What a cell can hold: a string, a number, True, False or None."""
    if isinstance(value, str):
        return string(param, value, MAX_CELL_TEXT)
    fits = value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value))
    _need(fits, param, "the list holds strings, numbers, True, False and None only")
    short = value is None or abs(value) < 1 << 53
    _need(short, param, "a number this long is written as a string in quotes")
    return value


def one_line(param: Param, value: Any, limit: int, wanted: str) -> str:
    """A string that is one line and not empty; `wanted` says what would be right."""
    text = string(param, value, limit)
    _need(bool(text.strip()) and not _parted(text), param, f"write {wanted}")
    return text


def _parted(text: str) -> bool:
    return "\n" in text or "\t" in text


def line(param: Param, value: Any) -> str:
    """One line of text; a number is taken for its digits, True and False for 1 and 0."""
    if isinstance(value, bool | int | float):
        value = str(int(value)) if isinstance(value, bool) else str(scalar(param, value))
    text = string(param, value, param.limits[0])
    _need(not _parted(text), param, "write one line in quotes")
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
    others = path.startswith("~") and not path.startswith("~/") and path != "~"
    _need(not outside and not others, param, f"the {what} lies outside the home folder: write a path like {like}")


def _path(param: Param, value: Any, wanted: str) -> str:
    path = string(param, value, MAX_PATH)
    fits = ".." not in path.split("/") and not _parted(path) and "://" not in path
    _need(fits, param, f"write {wanted}, without '..'")
    return path


def path(param: Param, value: Any) -> str:
    """A file below HOME, as a path relative to it or an absolute one; the guest checks where it leads."""
    wanted = "a file of your home folder like '~/Documents/report.pdf'"
    path = _path(param, value, wanted)
    _need(path != "" and not path.endswith("/"), param, f"write {wanted}, without '..'")
    _at_home(param, path, "~/Documents/name")
    if param.limits:
        _need(path.lower().endswith(param.limits), param, f"the name ends with {' or '.join(param.limits)}")
    return path


def folder(param: Param, value: Any) -> str:
    """A folder below HOME, or a file there with one of the endings allowed; the guest tells which."""
    wanted = "a folder of your home folder like '~/Documents'"
    path = _path(param, value, wanted)
    _need(bool(path.strip()), param, f"write {wanted}, without '..'")
    _at_home(param, path, "~/Music", "folder")
    return path


def file_name(param: Param, value: Any) -> str:
    """A file's name alone; the ending is added where it lacks."""
    name = string(param, value, MAX_NAME)
    fits = name.strip(" .") and not any(c in "/\\\n\t" for c in name)
    _need(bool(fits), param, f"write a file's name without a folder, like 'report{param.limits[0]}'")
    return string(param, name if name.lower().endswith(param.limits) else name + str(param.limits[0]), MAX_NAME)


def media(param: Param, value: Any) -> str:
    """A file below HOME by its path or file:// address, or an address of the web; the guest checks where it leads."""
    wanted = "a file like 'file:///home/agent/Music/a.mp3' or '~/Music/a.mp3', or an https address"
    text = one_line(param, value, MAX_ADDRESS, wanted).strip()
    scheme, mark, _ = text.partition("://")
    known = not mark or scheme.lower() in ("file", "http", "https")
    _need(known and ".." not in text.split("/") and not text.endswith("/"), param, f"write {wanted}, without '..'")
    if not mark or scheme.lower() == "file":
        _at_home(param, text[len("file://") :].removeprefix("localhost") if mark else text, "~/Music/a.mp3")
    return scheme.lower() + text[len(scheme) :] if mark else text


def setting(param: Param, value: Any) -> str:
    """A setting's name, with or without the dashes of a command line."""
    name = value.strip().removeprefix("--") if isinstance(value, str) else ""
    _need(bool(_SETTING.fullmatch(name)), param, "write a setting's name like 'qt-max-volume'")
    return name


def font(param: Param, value: Any) -> str:
    """One font's name."""
    name = string(param, value, MAX_FONT).strip()
    fits = name and not any(c in ";,\n\t" for c in name)
    _need(bool(fits), param, "write one font's name like 'Liberation Serif'")
    return name


def extension(param: Param, value: Any) -> str:
    """An extension's publisher and name or, where an ending is among the limits, its file below HOME."""
    longest, *endings = param.limits
    text = one_line(param, value, longest, "publisher and name like 'bat.theme'").strip()
    return path(replace(param, limits=tuple(endings)), text) if endings and "/" in text else text


_FITS: dict[str, Callable[[Param, Any], Any]] = {
    "integer": _integer, "number": _number, "boolean": _boolean, "text": text, "choice": _choice, "cell": _cell,
    "range": _range, "column": _column, "columns": _columns, "rows": _rows, "letters": _letters, "sheet": _sheet,
    "scalars": _scalars, "names": _names, "entry": _entry, "rgb": _rgb, "colour": _colour, "path": path,
    "indices": _indices, "font": font, "folder": folder, "file_name": file_name, "lines": _lines, "spot": _spot,
    "extent": _extent, "media": media, "setting": setting, "line": line, "own_line": own_line, "extension": extension,
}  # fmt: skip
