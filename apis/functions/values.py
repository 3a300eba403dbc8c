"""Kinds of values that a parameter can take: `fit` returns one in its canonical spelling, within its bounds."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from apis.functions.declaration import Param
from apis.guest.addresses import ROWS, Place, address, column_of, place_of

MAX_CELLS = 2 * ROWS  # of a range
MAX_ITEMS = 500  # of a list of scalars
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


def _cell_at(text: str) -> Place | None:
    """Row and column of a cell's name, in letters of any case and with or without dollar signs."""
    parts = _CELL.fullmatch(text.strip())
    return place_of(f"{parts[1]}{parts[2]}".upper()) if parts is not None else None


def _integer(param: Param, value: Any) -> int:
    low, high = param.limits
    if type(value) is not int or not low <= value <= high:
        raise Unfit(f"{param.name}: write a whole number from {low} to {high}")
    return value


def _number(param: Param, value: Any) -> float:
    low, high = param.limits
    if type(value) not in (int, float) or not low <= value <= high:  # NaN and infinity lie nowhere
        raise Unfit(f"{param.name}: write a number from {low} to {high}")
    return float(value)


def _boolean(param: Param, value: Any) -> bool:
    if type(value) is not bool:
        raise Unfit(f"{param.name}: write True or False")
    return value


def _choice(param: Param, value: Any) -> str:
    if not isinstance(value, str) or value not in param.limits:
        raise Unfit(f"{param.name}: write one of {', '.join(repr(choice) for choice in param.limits)}")
    return value


def _cell(param: Param, value: Any) -> str:
    at = _cell_at(value) if isinstance(value, str) else None
    if at is None:
        raise Unfit(f"{param.name}: write one cell like 'B3', columns A to XFD, rows 1 to {ROWS}")
    return address(*at)


def _range(param: Param, value: Any) -> str:
    wrong = Unfit(f"{param.name}: write a range like 'A1:C10', with both corners on the active sheet")
    if not isinstance(value, str):
        raise wrong
    first, colon, second = value.partition(":")
    start = _cell_at(first)
    end = _cell_at(second) if colon else start
    if start is None or end is None:
        raise wrong
    (top, bottom), (left, right) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    if (right - left + 1) * (bottom - top + 1) > MAX_CELLS:
        raise Unfit(f"{param.name}: at most {MAX_CELLS} cells, which are two whole columns")
    return f"{address(top, left)}:{address(bottom, right)}" if colon else address(top, left)


def _letters_of(value: Any) -> str | None:
    parts = _LETTERS.fullmatch(value.strip()) if isinstance(value, str) else None
    if parts is None or column_of(parts[1].upper()) is None:
        return None
    return parts[1].upper()


def _column(param: Param, value: Any) -> str:
    letters = _letters_of(value)
    if letters is None:
        raise Unfit(f"{param.name}: write a column's letters, 'A' to 'XFD'")
    return letters


def _columns(param: Param, value: Any) -> str:
    """One column or a span of them: "B", "A:C"."""
    ends = [_letters_of(end) for end in value.split(":", 1)] if isinstance(value, str) else [None]
    if None in ends:
        raise Unfit(f"{param.name}: write columns like 'B' or 'A:C'")
    return ":".join(sorted((end for end in ends if end), key=lambda letters: (len(letters), letters)))


def _rows(param: Param, value: Any) -> str:
    """One row or a span of them: "3", "1:10"."""
    ends = [_ROW.fullmatch(end.strip()) for end in value.split(":", 1)] if isinstance(value, str) else [None]
    numbers = sorted(int(end[1]) for end in ends if end)
    if len(numbers) != len(ends) or numbers[-1] > ROWS:
        raise Unfit(f"{param.name}: write rows like '3' or '1:10', at most {ROWS}")
    return ":".join(str(number) for number in numbers)


def _letters(param: Param, value: Any) -> list[str]:
    given = [_letters_of(item) for item in value] if isinstance(value, list) else []
    if not given or None in given or len(set(given)) < len(given) or len(given) > param.limits[0]:
        raise Unfit(f"{param.name}: write a list of different columns like ['B', 'A'], at most {param.limits[0]}")
    return [item for item in given if item]


def _sheet(param: Param, value: Any) -> str:
    name = string(param, value, MAX_NAME)
    if not name.strip() or any(c in "[]*?:/\\\n\t" for c in name) or name[0] == "'" or name[-1] == "'":
        raise Unfit(f"{param.name}: a sheet's name is not empty, has none of []*?:/\\ and no ' at its ends")
    return name


def _scalars(param: Param, value: Any) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= param.limits[0]:
        raise Unfit(f"{param.name}: write a list of 1 to {param.limits[0]} values like ['a', 2]")
    return [scalar(param, item) for item in value]


def _names(param: Param, value: Any) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= param.limits[0]:
        raise Unfit(f"{param.name}: write a list of 1 to {param.limits[0]} names in quotes like ['Sales']")
    return [string(param, item, MAX_NAME) for item in value]


def _entry(param: Param, value: Any) -> str:
    """What goes into a cell, as a user types it; a number is taken for its digits."""
    if not isinstance(value, str | int | float):
        raise Unfit(f"{param.name}: write a string in quotes like '42' or '=SUM(B2:B5)'")
    typed = scalar(param, value)
    return typed if isinstance(typed, str) else str(typed).upper() if isinstance(typed, bool) else str(typed)


def _rgb(param: Param, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 0xFFFFFF:
        raise Unfit(f"{param.name}: write a whole number from 0 to 16777215 (0xRRGGBB), e.g. 16776960 for yellow")
    return value


def _colour(param: Param, value: Any) -> str:
    text = value.strip().lower() if isinstance(value, str) else ""
    digits = _HEX.fullmatch(COLOURS.get(text, text))
    if digits is None:
        raise Unfit(f"{param.name}: write a colour like '#ff0000' or one of {', '.join(COLOURS)}")
    return f"#{digits[1]}"


def _lines(param: Param, value: Any) -> list[int]:
    """Numbers of lines, from 1."""
    given = value if isinstance(value, list) else [None]
    if not 1 <= len(given) <= param.limits[0] or any(type(n) is not int or not 1 <= n <= MAX_LINE for n in given):
        raise Unfit(f"{param.name}: write a list of 1 to {param.limits[0]} line numbers from 1 on, like [1, 3]")
    return sorted(set(given))


def _lengths(value: Any, wanted: tuple[str, ...], low: float, high: float) -> dict[str, float] | None:
    """A dict of lengths with some of the `wanted` keys and no other; None for anything else."""
    if not isinstance(value, dict) or not value or set(value) - set(wanted):
        return None
    if any(type(n) not in (int, float) or not low <= n <= high for n in value.values()):
        return None
    return {key: float(value[key]) for key in wanted if key in value}


def _spot(param: Param, value: Any) -> Any:
    """Where something is on a slide: a keyword, or the place of its upper left corner in cm."""
    if isinstance(value, str) and value in param.limits:
        return value
    aliases = {"left": "x", "top": "y"}
    named = {aliases.get(k, k): v for k, v in value.items()} if isinstance(value, dict) else value
    place = _lengths(named, ("x", "y"), -MAX_CM, MAX_CM)
    if place is None or len(place) < 2 or len(place) < len(value):
        words = ", ".join(repr(word) for word in param.limits)
        raise Unfit(f"{param.name}: write {{'x': 2, 'y': 3.5}} in cm from the upper left corner, or one of {words}")
    return place


def _extent(param: Param, value: Any) -> dict[str, float]:
    """A width, a height or both, in cm."""
    size = _lengths(value, ("width", "height"), MIN_CM, MAX_CM)
    if size is None:
        raise Unfit(f"{param.name}: write {{'width': 8, 'height': 4.5}} in cm, from {MIN_CM} to {MAX_CM}")
    return size


def _indices(param: Param, value: Any) -> list[int]:
    """Numbers from 0, each once, in rising order."""
    highest, most = param.limits
    fits = isinstance(value, list) and 1 <= len(value) <= most
    if not fits or any(type(item) is not int or not 0 <= item <= highest for item in value):
        raise Unfit(f"{param.name}: write a list of 1 to {most} whole numbers from 0 on, like [0, 2]")
    return sorted(set(value))


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


_FITS: dict[str, Callable[[Param, Any], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "text": text,
    "choice": _choice,
    "cell": _cell,
    "range": _range,
    "column": _column,
    "columns": _columns,
    "rows": _rows,
    "letters": _letters,
    "sheet": _sheet,
    "scalars": _scalars,
    "names": _names,
    "entry": _entry,
    "rgb": _rgb,
    "colour": _colour,
    "path": path,
    "indices": _indices,
    "font": font,
    "folder": folder,
    "file_name": file_name,
    "lines": _lines,
    "spot": _spot,
    "extent": _extent,
    "media": media,
    "setting": setting,
    "line": line,
    "own_line": own_line,
    "extension": extension,
}
