"""Metrics of applications' own settings; a setting that a file does not name has the application's default."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from defusedxml import ElementTree

from apis.tasks.metrics import rules
from apis.tasks.metrics.metric import Declared, Metric, Options, Score, UnreadableResult, Value, gold_text, is_, text

SETTINGS_MAX, FOLDER_MAX = 2 << 20, 8 << 20  # bytes
_VLC = re.compile(r"^#?([a-z0-9_-]{1,80})=([^\n]*)$", re.MULTILINE)
_SET_VLC = re.compile(r"^([a-z0-9_-]{1,80})=([^\n]*)$", re.MULTILINE)
_PREFERENCE = re.compile(r'^user_pref\("([^"\n]{1,300})", ([^\n]*)\);[ \t]*$', re.MULTILINE)
_DARKEST, _DARK = 0, 96  # of a channel that counts as blackish


def _vlc(value: Value) -> dict[str, str]:
    """The settings that vlcrc sets. Raises UnreadableResult where it is none."""
    content = text(value, SETTINGS_MAX)
    if not _VLC.search(content):
        raise UnreadableResult("it holds no setting of VLC")
    return dict(_SET_VLC.findall(content))


def _setting(key: str, default: str, read: Callable[[Any], str] = str) -> Metric:
    """A metric that holds one setting of VLC against `expected_KEY`."""

    def metric(result: Value, expected: Value, _: Options) -> Score:
        wanted = expected["expected_" + key.replace("-", "_")]
        there = _vlc(result).get(key, default).strip()
        return is_(there == read(wanted), f"{key} is {there[:40]!r}", f"{key} is {there[:40]!r}")

    return metric


def check_qt_slider_colours(result: Value, expected: Value, _: Options) -> Score:
    """The volume slider's colours are `expected_qt_slider_colours`, or are all nearly black."""
    there = _vlc(result).get("qt-slider-colours", "153;210;153;20;210;20;255;199;15;245;39;29").strip()
    if expected["type"] == "match":
        return is_(there == str(expected["expected_qt_slider_colours"]), "the colours match", f"{there[:60]!r}")
    parts = there.split(";")
    shades = [int(part) for part in parts if part.strip().isdecimal() and len(part) < 6]
    black = len(shades) == len(parts) == 12 and all(_DARKEST <= shade <= _DARK for shade in shades)
    return is_(black, "the colours are nearly black", f"the colours are {there[:60]!r}")


def check_thunderbird_prefs(result: Value, expected: Value, _: Options) -> Score:
    """Each preference of `expect` fits its rule, and none of `unexpect` does."""
    there: dict[str, Any] = {}
    for name, value in _PREFERENCE.findall(text(result, SETTINGS_MAX)):
        try:
            there[name] = json.loads(value)
        except (ValueError, RecursionError):
            continue
    if not there:
        return Score(0.0, "it holds no preference")
    for name, rule in expected.get("expect", {}).items():
        if name not in there or not rules.fits(there[name], rule):
            return Score(0.0, f"{name} is {str(there.get(name))[:60]!r}")
    for name, rule in expected.get("unexpect", {}).items():
        if name in there and rules.fits(there[name], rule):
            return Score(0.0, f"{name} is what it should not be")
    return Score(1.0, "the preferences are as they should be")


_FILTER = re.compile(r'^([a-zA-Z]{1,40})="((?:[^"\\\n]|\\.){0,2000})"[ \t]*$', re.MULTILINE)
_CONDITION = re.compile(r"""(?:(?:AND|OR) )?\([\w ]+,[\w ']+,(?:"(?:\\.|[^"\\])*"|[^)]*)\)|\bALL\b""")


def _filters(content: str) -> list[dict[str, Any]]:
    """The rules of msgFilterRules.dat, each with its conditions as a list."""
    found: list[dict[str, Any]] = []
    for key, written in _FILTER.findall(content):
        value = re.sub(r'\\(["\\])', r"\1", written)
        if key == "name":
            found.append({})
        if found and key == "condition":
            found[-1].setdefault(key, []).extend(_CONDITION.findall(value))
        elif found:
            found[-1][key] = value
    return found


def check_thunderbird_filter(result: Value, expected: Value, _: Options) -> Score:
    """A filter of mail has every field of each rule of `expect`, and none has those of `unexpect`."""
    there = _filters(text(result, SETTINGS_MAX))

    def has(rule: dict[str, Any]) -> bool:
        wanted = {key: sorted(value) if isinstance(value, list) else value for key, value in rule.items()}
        return any(
            all((sorted(one.get(key, [])) if isinstance(value, list) else one.get(key)) == value
                for key, value in wanted.items())
            for one in there
        )  # fmt: skip

    absent = [rule for rule in expected.get("expect", []) if not has(rule)]
    extra = [rule for rule in expected.get("unexpect", []) if has(rule)]
    return is_(bool(there) and not absent and not extra, "the filters are as they should be", "a filter is another")


_MESSAGE = re.compile(r"^From [^\n]*\n", re.MULTILINE)  # what a message of a folder begins with (mbox)
_STATUS, _DELETED = re.compile(r"^X-Mozilla-Status2?:[^\n]*\n?", re.MULTILINE), re.compile(r"X-Mozilla-Status: 000[89]")
_KEYS = re.compile(r"^X-Mozilla-Keys:[^\n]*\n?", re.MULTILINE)


def _messages(content: str, options: Options) -> list[str]:
    """The messages of a folder: by the options without those deleted, without what Thunderbird notes, each once."""
    found = [part.strip() for part in _MESSAGE.split(content) if part.strip()]
    if options.get("remove_deleted", True):
        found = [part for part in found if not _DELETED.search(part)]
    for option, noted in (("ignore_status", _STATUS), ("ignore_keys", _KEYS)):
        found = [noted.sub("", part) for part in found] if options.get(option) else found
    return sorted(set(found) if options.get("remove_duplicate", True) else found)


def check_thunderbird_folder(result: Value, expected: Value, options: Options) -> Score:
    """Folders of mail have the messages that are expected, in any order."""
    there, wanted = (value if isinstance(value, list) else [value] for value in (result, expected))
    same = len(there) == len(wanted) and all(
        _messages(text(one, FOLDER_MAX), options) == _messages(gold_text(other), options)
        for one, other in zip(there, wanted, strict=True)
    )
    return is_(same, "the folders hold them", "a folder holds other messages")


def check_config_status(result: Value, expected: Value, _: Options) -> Score:
    """GIMP's setting `key`, a word or the words that its line begins with, has `value` as its last word."""
    keys = [expected["key"]] if isinstance(expected["key"], str) else expected["key"]
    lines = [line.strip().lstrip("(").rstrip(")").split() for line in text(result, SETTINGS_MAX).splitlines()]
    found = next((words[-1] for words in reversed(lines) if words[:-1][: len(keys)] == keys), None)
    return is_(found == str(expected["value"]), "it is set", f"{expected['key']} is {str(found)[:60]!r}")


def is_utc_0(result: Value, _: Value, __: Options) -> Score:
    """The time zone in what timedatectl says is UTC."""
    zone = re.search(r"^\s*Time zone:[^\n]*\(([A-Za-z0-9+-]{1,12}), ([+-]\d{4})\)\s*$", text(result), re.MULTILINE)
    return is_(zone is not None and zone[2] == "+0000", "the zone is UTC", "the zone is another")


def _playing(value: Value) -> tuple[str, dict[str, str]]:
    """What VLC's status.xml says: the state, and what is known of the medium. Raises UnreadableResult."""
    try:
        root = ElementTree.fromstring(text(value, SETTINGS_MAX))
    except (ElementTree.ParseError, ValueError):
        raise UnreadableResult("it is no status of VLC's") from None
    infos = root.findall("information/category[@name='meta']/info")
    return root.findtext("state", ""), {one.get("name", "").lower(): one.text or "" for one in infos}


def is_vlc_playing(result: Value, expected: Value, _: Options) -> Score:
    """VLC plays the file `file_name`, or the stream `url`, of which it may show the name alone."""
    state, about = _playing(result)
    if state != "playing":
        return Score(0.0, f"VLC is {state[:40]!r}")
    if expected["type"] == "file_name":
        wanted, there = str(expected["file_name"]), _first(about, "filename", "title", "uri", "location", "name")
        same = re.split(r"[/\\]", there)[-1] == wanted
    elif expected["type"] == "url":
        wanted, there = str(expected["url"]), _first(about, "url", "uri", "location", "title", "filename")
        same = there in (wanted, wanted.partition("?")[0].rpartition("/")[2])
    else:
        raise LookupError(f"there is no type {expected['type']}")
    return is_(bool(there) and same, "it plays", f"it plays {there[:60]!r}")


def _first(about: dict[str, str], *names: str) -> str:
    return next((about[name] for name in names if about.get(name)), "")


_SET = "a setting that is commented out is not set, and a file without any setting of VLC scores 0"
DECLARED = (
    Declared("check_qt_max_volume", _setting("qt-max-volume", "125"), _SET),
    Declared("check_qt_bgcone", _setting("qt-bgcone", "1"), _SET),
    Declared("check_qt_minimal_view", _setting("qt-minimal-view", "0"), _SET),
    Declared("check_one_instance_when_started_from_file", _setting("one-instance-when-started-from-file", "1"), _SET),
    Declared("check_qt_slider_colours", check_qt_slider_colours, _SET, types=frozenset(("match", "blackish"))),
    Declared("check_thunderbird_prefs", check_thunderbird_prefs, "a file without preferences scores 0; false is not 0"),
    Declared("check_thunderbird_filter", check_thunderbird_filter, "a file without filters scores 0"),
    Declared("check_thunderbird_folder", check_thunderbird_folder, "messages are read; the published one skips all"),
    Declared("check_config_status", check_config_status),
    Declared("is_utc_0", is_utc_0),
    Declared(
        "is_vlc_playing",
        is_vlc_playing,
        "an address that holds the wanted one is another",
        types=frozenset(("file_name", "url")),
    ),
)
