"""Metrics of texts, lists, values, JSON and lines. What the policy wrote is compared, never run or a pattern."""

from __future__ import annotations

import difflib
import io
import json
import re
from typing import Any

import yaml

from apis.tasks.metrics import rules
from apis.tasks.metrics.metric import Declared, Options, Score, UnreadableResult, Value, gold_text, is_, text

SETTING_MAX = 1 << 16  # bytes
SHOWN = 80  # characters of a value in a reason
# A list of texts as `gsettings` writes it, and one text of it.
_TEXTS = re.compile(r"(?:@as )?\[(?:'[^'\\]*'(?:, (?=')|(?=\])))*\]")
_TEXT = re.compile(r"'([^'\\]*)'")
JSON_MAX = 1 << 20  # bytes
YAML_MAX, YAML_NESTED_MAX = 1 << 16, 500  # characters, brackets
LINES_MAX, SHARED_MAX = 20_000, 1000


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


def _plain(value: str, options: Options) -> str:
    value = rules.without_blanks(value) if options.get("ignore_blanks") else value
    return value.lower() if options.get("ignore_case") else value


def compare_text_file(result: Value, expected: Value, options: Options) -> Score:
    """Both files say the same; blanks or case may be left out."""
    same = _plain(text(result), options) == _plain(gold_text(expected), options)
    return is_(same, "it says what it should", "it says something else")


def diff_text_file(result: Value, expected: Value, _: Options) -> Score:
    """The share of lines that both files have in the same order: twice their number by that of all lines.

    Files of more than `SHARED_MAX` lines are equal or not. Source: `difflib.SequenceMatcher.ratio`.
    """
    there, wanted = text(result).splitlines(), gold_text(expected).splitlines()
    if there == wanted or max(len(there), len(wanted)) > SHARED_MAX:
        return is_(there == wanted, "the lines agree", "other lines")
    share = difflib.SequenceMatcher(a=there, b=wanted).ratio()
    return Score(share, f"of the lines {share:.3f} are shared")


def _lines(value: str, options: Options) -> list[str]:
    """The lines with their ends, as a file opened for text has them; without `strict` stripped."""
    lines = io.StringIO(_plain_case(value, options)).readlines()
    return lines if options.get("strict", True) else [line.strip() for line in lines]


def _plain_case(value: str, options: Options) -> str:
    return value.lower() if options.get("ignore_case") else value


def compare_csv(result: Value, expected: Value, options: Options) -> Score:
    """The table has the same lines as what is expected, or as a file of the list that is."""
    there = _lines(text(result), options)
    golds = expected if isinstance(expected, list) else [expected]
    same = any(there == _lines(gold_text(one), options) for one in golds)
    return is_(same, "the lines agree", "other lines")


def compare_config(result: Value, expected: Value, _: Options) -> Score:
    """The text is `expected`."""
    return is_(text(result) == expected["expected"], "it is what it should be", "it is another")


def _yaml(content: str) -> Any:
    """What a small YAML text says, by the loader in Python: libyaml's overflows its stack on nested brackets."""
    if len(content) > YAML_MAX or sum(map(content.count, "[{")) > YAML_NESTED_MAX:
        raise UnreadableResult("its YAML is too large")
    # Aliases may stand for more than any memory holds.
    if "&" in content and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(content, yaml.SafeLoader)):
        raise UnreadableResult("its YAML has aliases")
    return yaml.safe_load(content)


def read_json(value: Value, *, is_yaml: bool = False) -> Any:
    """The JSON or YAML in a file or text. Raises UnreadableResult."""
    if isinstance(value, dict | list):
        return value
    content = text(value, JSON_MAX)
    if len(content) > JSON_MAX:
        raise UnreadableResult(f"it has more than {JSON_MAX} bytes")
    try:
        if is_yaml:
            return _yaml(content)
        return json.loads(content)
    except (ValueError, RecursionError, yaml.YAMLError, OverflowError) as error:
        raise UnreadableResult(f"it can't be read: {type(error).__name__}") from None


_ABSENT = object()


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        listed = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not listed and not (isinstance(value, dict) and key in value):
            return _ABSENT
        value = value[key]
    return value


def check_json(result: Value, expected: Value, options: Options) -> Score:
    """The value at each `key` of `expect` fits its rule, and of `unexpect` does not."""
    content = read_json(result, is_yaml=bool(options.get("is_yaml")))
    for rule in expected.get("expect", []):
        there = _at(content, rule["key"])
        if there is _ABSENT or not rules.fits(there, rule):
            return Score(0.0, f"{rule['key']} is another")
    for rule in expected.get("unexpect", []):
        there = _at(content, rule["key"])
        if there is not _ABSENT and rules.fits(there, rule):
            return Score(0.0, f"{rule['key']} is what it should not be")
    return is_(bool(expected.get("expect") or expected.get("unexpect")), "it is as it should be", "nothing to expect")


def check_json_settings(result: Value, expected: Value, _: Options) -> Score:
    """The file has each setting of `expected` with its value."""
    content, wanted = read_json(result), expected["expected"]
    others = [key for key, value in wanted.items() if not isinstance(content, dict) or content.get(key) != value]
    return is_(not others, "the settings are as they should be", f"{others[:1]} is another")


def check_direct_json_object(result: Value, expected: Value, _: Options) -> Score:
    """Each key of `expected` has its value; with `expect_in_result` a part of it, or one of several values."""
    content = read_json(result.replace("'", '"') if isinstance(result, str) else result)
    if not isinstance(content, dict) or not content:
        return Score(0.0, "it is no object")
    inside = expected.get("expect_in_result", False)
    for key, wanted in expected["expected"].items():
        there = content.get(key)
        if not (_holds(there, wanted) if inside else there == wanted):
            return Score(0.0, f"{key!r} is {str(there)[:60]!r}")
    return Score(1.0, "it is as it should be")


def _holds(there: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(one in there if isinstance(there, list) else one == there for one in wanted)
    if isinstance(wanted, str):
        return isinstance(there, str | list) and wanted in there
    return bool(there == wanted)


def check_list(result: Value, expected: Value, _: Options) -> Score:
    """Each pattern of `expect` is found in a line, and none of `unexpect`."""
    lines = text(result).splitlines()[:LINES_MAX]
    if not lines:
        return Score(0.0, "there is no line")
    for pattern in expected.get("expect", []):
        if not rules.found(pattern, *lines):
            return Score(0.0, f"no line has {pattern[:60]!r}")
    for pattern in expected.get("unexpect", []):
        if rules.found(pattern, *lines):
            return Score(0.0, f"a line has {pattern[:60]!r}")
    return Score(1.0, "the lines are as they should be")


def is_extension_installed(result: Value, expected: Value, _: Options) -> Score:
    """The list of a command has `expected`, or has it not."""
    has = str(expected["expected"]) in text(result)
    return is_(has is (expected["type"] == "contain"), "the list is as it should be", "the list is another")


DECLARED = (
    Declared("exact_match", exact_match),
    Declared("match_in_list", match_in_list),
    Declared("is_in_list", is_in_list),
    Declared("check_include_exclude", check_include_exclude, "an empty text scores 0, even with nothing to include"),
    Declared("file_contains", file_contains),
    Declared("check_moved_jpgs", check_moved_jpgs),
    Declared("check_gnome_favorite_apps", check_gnome_favorite_apps, "the setting is read, not run"),
    Declared("compare_text_file", compare_text_file),
    Declared("diff_text_file", diff_text_file),
    Declared("compare_csv", compare_csv),
    Declared("compare_config", compare_config),
    Declared("check_json", check_json, "with neither expect nor unexpect it scores 0"),
    Declared("check_json_settings", check_json_settings),
    Declared("check_direct_json_object", check_direct_json_object),
    Declared("check_list", check_list, "a text without a line scores 0"),
    Declared("is_extension_installed", is_extension_installed, types=frozenset(("contain", "not_contain"))),
)
