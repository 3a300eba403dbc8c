"""What is asked of the published metrics, and how their answers count."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any

import pytest

from actors.cluster import cli
from actors.cluster.checks.tasks import agree
from apis.tasks.metrics.metric import Score
from apis.tasks.twins.every import TWINS
from apis.tasksets import published, published_worker
from apis.tasksets.published import PublishedScore
from runtime.errors import ConfigError


def asked(metric: Any, *arguments: Any) -> dict[str, Any]:
    module = types.ModuleType("metrics")
    module.__dict__["tried"] = metric
    return published_worker.apart(module, {"metric": "tried", "arguments": arguments, "options": {}})


def test_a_missing_package_gives_no_score_even_where_its_error_is_swallowed() -> None:
    def metric() -> float:
        try:
            published_worker.Missing("easyocr").Reader()
        except ImportError:
            return 1.0
        return 0.5

    assert asked(metric) == {"missing": "easyocr"}


def test_what_a_metric_does_to_its_process_is_its_answer() -> None:
    assert asked(lambda: os._exit(3)) == {"raised": "ended with status 3"}
    assert asked(lambda: b"x" * (published_worker.MEMORY_BYTES + 1))["raised"].startswith("MemoryError")
    assert published_worker.apart(types.ModuleType("metrics"), {"metric": "none"}) == {"missing": "not in the package"}


def test_a_result_arrives_as_a_file_of_its_kind() -> None:
    twin = next(twin for twin in TWINS if twin.name == "compare_table")
    sent = json.loads(published.order(twin.name, twin.right, twin.expected, twin.options))["arguments"]
    assert [one["name"] for one in sent] == ["mine.xlsx", "gold.xlsx"]
    assert asked(lambda path, _: len(Path(path).read_bytes()), *sent) == {"score": len(twin.right.data)}


def test_what_raises_solves_nothing() -> None:
    case = agree.TwinResult(TWINS[0], None, "right")
    assert agree.BothScores(case, Score(0.0, ""), PublishedScore(raised="KeyError")).agree
    assert not agree.BothScores(case, Score(1.0, ""), PublishedScore(raised="KeyError")).agree
    assert not agree.BothScores(case, Score(0.99, ""), PublishedScore(score=1.0)).agree


def test_a_difference_without_a_reason_fails_and_a_missing_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = cli.build_parser().parse_args(["tasks", "agree", "--metric", "file_contains", "--json"])
    monkeypatch.setattr(published, "ENVIRONMENT", tmp_path)
    with pytest.raises(ConfigError, match="make osworld-judge"):
        agree.agree(asked)
    (tmp_path / ".computerrl").touch()
    monkeypatch.setattr(published, "answers", lambda orders: [PublishedScore(score=1.0)] * len(orders))
    assert agree.agree(asked) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["compared"], found["agree"]) == (False, 6, 1)
    asked.metric = ["file_contain"]
    with pytest.raises(ConfigError, match="did you mean file_contains"):
        agree.agree(asked)
