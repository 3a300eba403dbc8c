"""Metrics of published task files: what is right, nearly right, untouched and broken."""

from __future__ import annotations

from typing import Any

import pytest

from apis.tasks.metrics.metric import Score, scored, together
from apis.tasks.metrics.registry import METRICS
from apis.tasks.verify.verify import FileView
from runtime.errors import ConfigError

WORDS = {"include": ["done"], "exclude": ["failed"]}


def file(content: bytes) -> FileView:
    return FileView("file", data=content)


def value(name: str, result: Any, expected: Any) -> float:
    return scored(METRICS[name], result, expected, {}).value


@pytest.mark.parametrize(
    ("name", "expected", "right", "wrong"),
    [
        ("exact_match", {"expected": "true"}, "true", ["false", "", None, True]),
        ("match_in_list", {"expected": ["Bing", "Microsoft Bing"]}, "Bing", ["bing", "", None]),
        ("is_in_list", {"expected": "/a"}, ["/b", "/a"], [["/b"], [], "/a", None]),
        ("check_include_exclude", WORDS, "all done\n", ["all", "done, failed", "", None]),
        ("check_include_exclude", {}, "anything", ["", " \n"]),
        ("file_contains", {"expected": ["Ping", "Up"]}, file(b"Ping 1\nUp 2"), [file(b"Ping"), file(b"\xff\xfe")]),
        ("file_contains", {"expected": ["Ping"]}, file(b"Ping"), [FileView("missing"), FileView("refused"), None]),
    ],
)
def test_a_right_result_scores_and_any_other_does_not(name: str, expected: Any, right: Any, wrong: list[Any]) -> None:
    assert value(name, right, expected) == 1
    assert [value(name, one, expected) for one in wrong] == [0] * len(wrong)


def settings(path: str, name: str, value: str) -> FileView:
    prop = f'<prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop>'
    return file(f'<oor:items><item oor:path="/org.openoffice.Office.{path}">{prop}</item></oor:items>'.encode())


@pytest.mark.parametrize(
    ("name", "expected", "path", "prop", "right", "wrong"),
    [
        ("check_auto_saving_time", {"minutes": 3}, "Common/Save/Document", "AutoSaveTimeIntervall", "3", "30"),
        ("check_presenter_console_disable", None, "Impress/Misc/Start", "EnablePresenterScreen", "false", "true"),
        ("find_default_font", {"font_name": "A & B"}, "Writer/DefaultFont", "Standard", "A &amp; B", "A"),
    ],
)
def test_settings_of_the_office(name: str, expected: Any, path: str, prop: str, right: str, wrong: str) -> None:
    assert value(name, settings(path, prop, right), expected) == 1
    near = [settings(path, prop, wrong), settings("Calc", prop, right), settings(path, f"{prop}2", right)]
    assert [value(name, one, expected) for one in (*near, file(b"<"), file(b"\xff"), FileView("missing"))] == [0] * 6


def test_a_wrong_expectation_is_the_tasks_fault() -> None:
    with pytest.raises(ConfigError, match="exact_match"):
        value("exact_match", "true", {})


def test_several_metrics_score_together_as_published() -> None:
    none, half, whole = Score(0, "none"), Score(0.5, "half"), Score(1, "whole")
    assert together([whole, none], "and") == none
    assert together([whole, half], "and").value == 0.75
    assert together([none, whole], "or") == whole
