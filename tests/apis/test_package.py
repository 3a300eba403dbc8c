"""The published package's metrics, getters and steps: each is known here, left to the package, or refused."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import Step, UnknownStep
from apis.tasks.verify.verify import FileView
from apis.tasksets import getters, package, published, published_guards, published_worker
from apis.tasksets.getters import AskedOfPackage
from runtime.errors import ConfigError
from tests.apis.office_pairs import book

OFFICEWORLD = {"compare_spreadsheet", "simple_docx_compare", "simple_pptx_compare"}  # of no package
INFEASIBLE = "infeasible"  # no metric: it says that giving up is the solution
PACKAGE = "lib/python3.11/site-packages/desktop_env"
MADE = Path(__file__).with_name("published_cases.py")
PINNED = json.loads(Path(__file__).with_name("published_names.json").read_bytes())
KINDS = ("metrics", "getters", "steps")


def imported(module: Path) -> Iterator[str]:
    """The names that a module of the package offers."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def installed() -> dict[str, list[str]]:
    """The package's own lists."""
    root = published.ENVIRONMENT / PACKAGE
    setup = ast.parse((root / "controllers/setup.py").read_text())
    named = [node.name for node in ast.walk(setup) if isinstance(node, ast.FunctionDef)]
    offered = imported(root / "evaluators/getters/__init__.py")
    return {
        "metrics": sorted(set(imported(root / "evaluators/metrics/__init__.py"))),
        "getters": sorted({name.removeprefix("get_") for name in offered}),
        "steps": sorted(name[1:-6] for name in named if name.startswith("_") and name.endswith("_setup")),
    }


def here() -> dict[str, tuple[set[str], ...]]:
    """What is known here, what is left to the package, and what is refused."""
    steps = {kind.__struct_config__.tag for kind in get_args(Step) if kind is not UnknownStep}
    left = set(package.LEFT_GETTERS)
    return {
        "metrics": ({*METRICS, INFEASIBLE} - OFFICEWORLD, set(package.LEFT_METRICS), set(package.REFUSED_METRICS)),
        "getters": (getters.KNOWN - left, left, set(package.REFUSED_GETTERS)),
        "steps": (steps, set(), {*package.REFUSED_STEPS, *package.ACCOUNTS}),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_each_name_of_the_package_is_known_left_to_it_or_refused(kind: str) -> None:
    parts = here()[kind]
    assert sorted(set().union(*parts)) == PINNED[kind]
    assert sum(map(len, parts)) == len(PINNED[kind]), "a name has two fates"


@pytest.mark.parametrize("kind", KINDS)
def test_the_pinned_names_are_those_of_the_installed_package(kind: str) -> None:
    if not published.is_here():
        pytest.skip("make osworld-judge")
    assert installed()[kind] == PINNED[kind]


def viewed(value: Any) -> Any:
    """An argument as a getter gives it."""
    if isinstance(value, dict) and set(value) == {"name", "data"}:
        return FileView("file", data=base64.b64decode(value["data"]), name=value["name"])
    return [viewed(one) for one in value] if isinstance(value, list) else value


@lru_cache(maxsize=1)
def made() -> dict[str, list[dict[str, Any]]]:
    python = published.ENVIRONMENT / "bin/python" if published.is_here() else sys.executable
    done = subprocess.run([python, "-s", MADE], capture_output=True, check=True, timeout=120)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def cases() -> list[dict[str, Any]]:
    return made()["cases"]


def order(case: dict[str, Any], result: Any) -> str:
    starts = viewed(case.get("starts", []))
    return published.order(case["metric"], result, viewed(case["expected"]), case["options"], starts)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_metric_that_is_left_to_the_package_judges_a_right_end_and_a_near_miss() -> None:
    if not published.is_here():
        pytest.skip("make osworld-judge")
    asked = [case for case in cases() if case["metric"] in package.LEFT_METRICS]
    assert sorted({case["metric"] for case in asked}) == sorted(package.LEFT_METRICS.keys() - {"compare_videos"})
    given = [(case, "right", viewed(case["right"])) for case in asked + made()["honest"]]
    given += [(case, "wrong", viewed(case["wrong"])) for case in asked]
    given += [(case, "blank", published._blank(result)) for case, side, result in given if side == "right"]
    given = [one for one in given if one[1] != "blank" or one[2] is not None]
    answers = published.answers([order(case, result) for case, _, result in given])
    said = [(case["metric"], side, one) for (case, side, _), one in zip(given, answers, strict=True)]
    assert [row for row in said if row[2].missing] == []
    assert [row for row in said if row[1] == "right" and row[2].score < 0.999] == []
    assert [row for row in said if row[1] == "wrong" and row[2].score > 0.9] == []
    assert [row for row in said if row[1] == "blank" and row[2].score == 1] == []


@pytest.mark.slow
def test_a_guard_alone_lets_right_ends_pass_and_refuses_weak_ones(tmp_path: Path) -> None:
    """With the libraries of this environment, where the package is not installed."""
    drawing = find_spec("pypdfium2") is not None
    asked = made()["weak"] + made()["cases"] + made()["honest"]
    for number, case in enumerate(case for case in asked if drawing or case["metric"] != "compare_pdfs"):
        sides = [case["wrong"] if "starts" in case else case["right"], case["expected"], *case.get("starts", ())]
        orders = json.loads(published.order("", viewed(sides[0]), viewed(sides[1]), {}, list(map(viewed, sides[2:]))))
        given = [
            published_worker.given(one, tmp_path / f"{number}-{at}")
            for at, one in enumerate([*orders["arguments"], *orders["starts"]])
        ]
        split = len(orders["arguments"])
        said = published_guards.refused(case["metric"], given[:split], case["options"], given[split:])
        assert bool(said) is ("starts" in case), (case["metric"], said)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_guard_refuses_the_wrong_ends_that_a_published_metric_accepts() -> None:
    """Each is accepted by the metric itself: a guard is asked for nothing else."""
    assert {name for name, one in package.LEFT_METRICS.items() if one.weak} == published_guards.GUARDS.keys()
    if not published.is_here():
        pytest.skip("make osworld-judge")
    weak = made()["weak"]
    assert {case["metric"] for case in weak} == published_guards.GUARDS.keys()
    answers = zip(weak, published.answers([order(case, viewed(case["wrong"])) for case in weak]), strict=True)
    assert [(case["metric"], one) for case, one in answers if not one.refused or "can't be read" in one.refused] == []


@pytest.mark.slow
def test_an_expected_workbook_that_was_never_calculated_is_the_tasks_fault() -> None:
    if not published.is_here():
        pytest.skip("make osworld-judge")
    rules = {"rules": [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]}
    right, never = (
        FileView("file", data=book({"A1": 1, "B1": value}), name="a.xlsx", of_task=True) for value in (2, "=A1+1")
    )
    assert published.score("compare_table", right, right, rules).solved
    with pytest.raises(ConfigError, match="never calculated"):
        published.score("compare_table", right, never, rules)


@pytest.mark.slow
def test_the_package_carries_out_getters_of_an_address_of_a_file_and_of_the_clock() -> None:
    if not published.is_here():
        pytest.skip("make osworld-judge")
    url = "https://www.a.org/b/c?from=BOM&to=STO"
    parts = {"type": "active_tab_url_parse", "parse_keys": ["from", "to"], "replace": {"to": "there"}}
    dash = {"type": "url_dashPart", "partIndex": -1, "needDeleteId": True, "returnType": "string"}
    rules = {"relativeTime": {"from": "tomorrow"}, "expected": {"time": "{Year}"}, "timezone": "UTC"}
    book = {
        "type": "content_from_vm_file",
        "path": "/home/user/a.xlsx",
        "file_type": "xlsx",
        "file_content": "last_row",
    }
    sheet = next(viewed(case["right"]) for case in cases() if case["metric"] == "last_row")
    orders = [
        published.order("check_direct_json_object", AskedOfPackage(parts, {}, url), {"expected": wanted}, {})
        for wanted in ({"from": "BOM", "there": "STO"}, {"from": "STO", "there": "STO"})
    ]
    orders += [published.order("exact_match", AskedOfPackage(dash, {}, url), {"expected": one}, {}) for one in "cb"]
    time = AskedOfPackage({"type": "rule_relativeTime", "rules": rules})
    year = str((datetime.now(UTC) + timedelta(days=1)).year)
    orders += [published.order("check_direct_json_object", {"time": one}, time, {}) for one in (year, "1999")]
    rows = (["milk", "2"], ["tea", "2"])
    orders += [
        published.order("exact_match", AskedOfPackage(book, {"a.xlsx": sheet}), {"expected": row}, {}) for row in rows
    ]
    assert [one.score for one in published.answers(orders)] == [1, 0] * 4
