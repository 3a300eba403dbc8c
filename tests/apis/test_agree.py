"""What is asked of the published metrics, and how their answers count."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any

from apis.tasks.metrics.metric import Score
from tests.apis import agree, published
from tests.apis.test_metric_twins import TWINS


def asked(metric: Any, *arguments: Any) -> dict[str, Any]:
    module = types.ModuleType("metrics")
    module.__dict__["tried"] = metric
    return published.apart(module, {"metric": "tried", "arguments": arguments, "options": {}})


def test_a_missing_package_gives_no_score_even_where_its_error_is_swallowed() -> None:
    def metric() -> float:
        try:
            published.Missing("easyocr").Reader()
        except ImportError:
            return 1.0
        return 0.5

    assert asked(metric) == {"missing": "easyocr"}


def test_what_a_metric_does_to_its_process_is_its_answer() -> None:
    assert asked(lambda: os._exit(3)) == {"raised": "ended with status 3"}
    assert asked(lambda: b"x" * (published.MEMORY_BYTES + 1))["raised"].startswith("MemoryError")
    assert published.apart(types.ModuleType("metrics"), {"metric": "none"}) == {"missing": "not in the package"}


def test_a_result_arrives_as_a_file_of_its_kind() -> None:
    twin = next(twin for twin in TWINS if twin.name == "compare_table")
    sent = json.loads(agree.order(agree.Case(twin, twin.right, "right")))["arguments"]
    assert [one["name"] for one in sent] == ["mine.xlsx", "gold.xlsx"]
    assert asked(lambda path, _: len(Path(path).read_bytes()), *sent) == {"score": len(twin.right.data)}


def test_what_raises_solves_nothing() -> None:
    assert agree.agrees(Score(0.0, ""), {"raised": "KeyError"})
    assert not agree.agrees(Score(1.0, ""), {"raised": "KeyError"})
    assert not agree.agrees(Score(0.99, ""), {"score": 1.0})
