"""Metrics of published task files: whose fault a wrong expectation is, and how several score together."""

from __future__ import annotations

from typing import Any

import pytest

from apis.tasks.metrics.metric import Score, scored, together
from apis.tasks.metrics.registry import METRICS
from runtime.errors import ConfigError


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
