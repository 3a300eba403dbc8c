"""What a value has to be, as task files say it: a method and what it refers to.

A method that is not known is a LookupError, the task's fault. A value of another type than the method takes
does not fit. A pattern is looked for in `SEARCHED` characters of a text at most, and for `SEARCH_S` seconds: one that
tries every way to divide a text would take years.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import regex

SEARCH_S = 2.0  # of processor time, for a pattern in all lines of a text
LONGEST = 10_000  # characters of a pattern
SEARCHED = 1 << 16  # characters of a value that a pattern of a task file is looked for in
DIGITS = 400  # characters of a text that may be a number
_NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?\s*", re.ASCII)
_FLAGS = {"I": re.IGNORECASE, "S": re.DOTALL, "M": re.MULTILINE, "X": re.VERBOSE, "A": re.ASCII}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda value, ref: value < ref,
    "le": lambda value, ref: value <= ref,
    "gt": lambda value, ref: value > ref,
    "ge": lambda value, ref: value >= ref,
}
_ENDS = {"t": _ORDER["lt"], "e": _ORDER["le"]}
_PLAIN = {"eq", "ne", *_ORDER, "str_set_eq", "str_list_eq", "spreadsheet_range", "included"}


def number(value: object) -> float | None:
    """A number, or the one that a text says in plain digits; None for anything else."""
    if isinstance(value, str):
        return float(value) if len(value) < DIGITS and _NUMBER.fullmatch(value) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def found(pattern: str, *values: object, flags: int = 0) -> bool:
    """Whether a task file's pattern is found in one of these texts.

    Raises LookupError for a pattern that is none, and TimeoutError after `SEARCH_S` seconds.
    """
    try:
        if len(pattern) > LONGEST:
            raise LookupError(f"the pattern {pattern[:80]!r}: it has more than {LONGEST} characters")
        re.compile(pattern, flags)  # what is a pattern, Python says; `regex` looks for it, with a limit of time
        expression = regex.compile(pattern, flags)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise LookupError(f"the pattern {pattern[:80]!r}: {error}") from None
    end = time.process_time() + SEARCH_S
    return any(
        expression.search(value[:SEARCHED], timeout=max(0.001, end - time.process_time()), concurrent=True)
        for value in values
        if isinstance(value, str)
    )


def known(method: str) -> bool:
    """Whether `fits` knows it."""
    name, more = _parts(method)
    if name == "re":
        return all(flag in _FLAGS for flag in _flags(more))
    if name == "range":
        return len(more) == 2 and all(end in _ENDS for end in more)
    return number(more) is not None if name == "approx" else name in _PLAIN


def _parts(method: str) -> tuple[str, str]:
    """Its name, and what follows it."""
    name, _, more = method.partition("." if method.startswith(("re", "range.")) else ":")
    return name, more


def _flags(more: str) -> list[str]:
    return [flag.strip().removeprefix("re.") for flag in re.split(r"[|.]", more) if flag.strip() not in ("", "re")]


def fits(value: object, rule: Mapping[str, Any]) -> bool:
    """Whether `value` is what `rule` says: `{"method": ..., "ref": ...}`. Raises LookupError for another method."""
    method, ref = str(rule["method"]), rule.get("ref")
    name, more = _parts(method)
    if name == "re":
        flags = 0
        for flag in _flags(more):
            flags |= _FLAGS[flag]
        return found(str(ref), value, flags=flags)
    if name in ("eq", "ne"):
        same = type(value) is bool or type(ref) is bool
        equal = value == ref and (not same or type(value) is type(ref))
        return equal is (name == "eq")
    if name == "approx":
        there = number(value)
        return there is not None and abs(there - float(str(ref))) <= float(more)
    if name in _ORDER or name == "range":
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        if name == "range":
            low, high = list(ref or [])
            above, below = _ENDS[more[:1]], _ENDS[more[1:]]  # "range.te": above the first, at most the second
            return bool(above(low, value) and below(value, high))
        return _ORDER[name](value, ref)
    if name in ("str_set_eq", "str_list_eq"):
        parts = [part.strip() for part in str(value).strip('"').split(",")]
        wanted = list(ref) if isinstance(ref, list) else [str(ref)]
        return set(parts) == set(wanted) if name == "str_set_eq" else parts == wanted
    if name in ("spreadsheet_range", "included"):
        return value in list(ref or [])
    raise LookupError(f"there is no method {method}")


def without_blanks(text: str) -> str:
    """`text` with each stretch of white space as one space, and none at its ends."""
    return " ".join(text.split())
