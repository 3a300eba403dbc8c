"""Metrics of published task files: whose fault a wrong expectation is, and how several score together."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from apis.tasks import task_file
from apis.tasks.metrics import pictures
from apis.tasks.metrics.metric import Score, gold, scored, together
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME
from apis.tasks.verify.verify import FileView
from apis.tasksets import judge
from runtime.errors import ConfigError
from tests.apis.twins.pictures import GOLD, SPECK, TURNED, triangle
from tests.apis.twins.twin import as_read, database

LIKE = ("compare_images", "check_triangle_position")


def value(name: str, result: Any, expected: Any) -> float:
    return scored(METRICS[name], result, expected, {}).value


def test_a_wrong_expectation_is_the_tasks_fault() -> None:
    with pytest.raises(ConfigError, match="exact_match"):
        value("exact_match", "true", {})


def test_what_is_empty_never_has_what_it_should() -> None:
    assert [value("check_include_exclude", text, {}) for text in ("anything", "", " \n")] == [1, 0, 0]


def test_several_metrics_score_together_as_published() -> None:
    none, half, whole = Score(0, "none"), Score(0.5, "half"), Score(1, "whole")
    assert together([whole, none], "and") == none
    assert together([whole, half], "and").value == 0.75
    assert together([none, whole], "or") == whole


@pytest.mark.parametrize(
    ("name", "view", "expected"),
    [
        ("check_image_size", GOLD, {"width": 48}),
        ("run_sqlite3", database(a=[("b",), (1,)]), {"sql": "select b from a"}),
    ],
)
def test_bytes_of_the_desktop_are_unpacked_in_a_process_of_their_own_alone(
    name: str, view: FileView, expected: Any
) -> None:
    found = scored(METRICS[name], view, expected, {})
    assert (found.value, "process of its own" in found.reason) == (0, True)


def test_a_fixture_is_unpacked_here_and_an_expected_picture_of_the_desktop_is_not() -> None:
    assert gold(msgspec.structs.replace(GOLD, of_task=True), "picture").width == 48
    with pytest.raises(LookupError, match="process of its own"):
        gold(GOLD, "picture")


def test_pictures_are_judged_the_same_in_tiles_and_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    views = [as_read(view, "picture") for view in (GOLD, SPECK, TURNED, triangle(24), triangle(38))]

    def found() -> list[float]:
        return [value(name, one, views[0]) for name in LIKE for one in views]

    whole = found()
    monkeypatch.setattr(pictures, "TILE", 19)
    monkeypatch.setattr(pictures, "BAND", 500)
    assert found() == pytest.approx(whole)
    assert len(set(whole)) > 2


def test_a_picture_that_another_metric_wants_as_bytes_is_the_tasks_fault() -> None:
    side = {"type": "vm_file", "path": f"{HOME}/a.png"}
    evaluator = {"func": ["check_image_size", "diff_text_file"], "result": [side, side], "expected": [{}, {}]}
    task = task_file.load(json.dumps({"id": "a", "instruction": "b", "evaluator": evaluator}).encode())
    with pytest.raises(ConfigError, match=r"a\.png as bytes and as picture"):
        judge.wanted(task)


@pytest.mark.parametrize("sql", ["selec 1", "", "select 1 from a; select 2", "select nothing(1)", 5])
def test_sql_that_is_wrong_by_itself_is_the_tasks_fault_whatever_was_left(sql: Any) -> None:
    with pytest.raises(ConfigError, match="run_sqlite3"):
        value("run_sqlite3", FileView("missing"), {"sql": sql})


def test_one_statement_may_end_in_a_comment() -> None:
    found = scored(METRICS["run_sqlite3"], FileView("missing"), {"sql": "select ';' from a; -- b"}, {})
    assert found.reason == "it is missing"
