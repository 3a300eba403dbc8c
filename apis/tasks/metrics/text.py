"""Metrics of texts, lists and values.

Invariant: no text of the policy's is used as a pattern or run.
"""

from __future__ import annotations

import re

from apis.tasks.metrics.metric import Declared, Options, Score, Value, is_, text

SETTING_MAX = 1 << 16  # bytes
SHOWN = 80  # characters of a value in a reason
# A list of texts as `gsettings` writes it, and one text of it.
_TEXTS = re.compile(r"(?:@as )?\[(?:'[^'\\]*'(?:, (?=')|(?=\])))*\]")
_TEXT = re.compile(r"'([^'\\]*)'")


def _shown(value: object) -> str:
    return repr(value)[:SHOWN]


def exact_match(result: Value, expected: Value, _: Options) -> Score:
    """The result is `expected`."""
    return is_(result == expected["expected"], "it is what it should be", f"it is {_shown(result)}")


def match_in_list(result: Value, expected: Value, _: Options) -> Score:
    """The result is a value of the list `expected`."""
    return is_(result in expected["expected"], "it is in the list", f"{_shown(result)} is not in the list")


def is_in_list(result: Value, expected: Value, _: Options) -> Score:
    """`expected` is a value of the result, a list."""
    found = isinstance(result, list) and expected["expected"] in result
    return is_(found, "the list has it", f"the list lacks {_shown(expected['expected'])}")


def check_include_exclude(result: Value, expected: Value, _: Options) -> Score:
    """The text has each of `include` and none of `exclude`; an empty text never does."""
    found = text(result)
    if not found.strip():
        return Score(0.0, "there is no text")
    absent = [part for part in expected.get("include", []) if part not in found]
    present = [part for part in expected.get("exclude", []) if part in found]
    if absent:
        return Score(0.0, f"it lacks {_shown(absent[0])}")
    return is_(not present, "it has what it should", f"it has {_shown(present[:1])}")


def file_contains(result: Value, expected: Value, _: Options) -> Score:
    """The file has each text of `expected`."""
    found = text(result)
    absent = [part for part in expected["expected"] if part not in found]
    return is_(not absent, "it has what it should", f"{len(absent)} of {len(expected['expected'])} texts are absent")


def check_moved_jpgs(result: Value, expected: Value, _: Options) -> Score:
    """The folder holds files of the names `expected`, and nothing else."""
    children = result.get("children") if isinstance(result, dict) else None
    names = [str(one.get("name")) for one in children or [] if isinstance(one, dict)]
    return is_(sorted(names) == sorted(expected["expected"]), "it holds them", f"it holds {len(names)} others")


def check_gnome_favorite_apps(result: Value, expected: Value, _: Options) -> Score:
    """The list that a setting holds, written as the settings' own program does, has the values `expected`."""
    shown = text(result, SETTING_MAX).strip()
    if not _TEXTS.fullmatch(shown):
        return Score(0.0, "it is no list")
    names = _TEXT.findall(shown)
    return is_(sorted(names) == sorted(expected["expected"]), "they are the favourites", f"they are {_shown(names)}")


DECLARED = (
    Declared("exact_match", exact_match),
    Declared("match_in_list", match_in_list),
    Declared("is_in_list", is_in_list),
    Declared("check_include_exclude", check_include_exclude, "an empty text scores 0, even with nothing to include"),
    Declared("file_contains", file_contains),
    Declared("check_moved_jpgs", check_moved_jpgs),
    Declared("check_gnome_favorite_apps", check_gnome_favorite_apps, "the setting is read, not run"),
)
