"""Twins of published task files: per metric what is right, near misses, untouched and garbage, judged as known."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis.tasks.metrics.metric import scored
from apis.tasks.metrics.registry import METRICS
from apis.tasks.metrics.rules import DIGITS, LONGEST, fits, likeness, number
from apis.tasks.verify.verify import FileView
from runtime.errors import ConfigError
from tests.apis.twins.every import GARBAGE, TWINS
from tests.apis.twins.general import DATA, GOLD, SAID
from tests.apis.twins.twin import Twin, as_read, file

PARTS = (
    "fuzzy_match",
    "compare_docx_files",
    "diff_text_file",
    "compare_images",
    "compare_pdfs",
    "compare_archive",
)  # that score near misses, too
STRANGE = [
    None,
    "",
    [],
    {},
    5,
    float("nan"),
    True,
    FileView("missing"),
    FileView("refused", reason="a link"),
    FileView("folder", names=("a",)),
    [FileView("missing")],
    {"url": 5},
    [[]],
    [None],
]


def score(twin: Twin, result: Any) -> float:
    metric = METRICS[twin.name]
    found = scored(metric, as_read(result, metric.reads), as_read(twin.expected, metric.reads), twin.options)
    assert 0 <= found.value <= 1
    assert found.reason
    return found.value


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_twin_is_judged_as_known(twin: Twin) -> None:
    assert score(twin, twin.right) == 1
    scores = [score(twin, one) for one in twin.wrong]
    assert max(scores) < 1, scores
    assert all(found == 0 for found in scores) or twin.name in PARTS


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_garbage_is_a_failure_with_a_reason(twin: Twin) -> None:
    empty = twin.name in ("is_cookie_deleted", "check_history_deleted")
    if "not_contain" in str(twin.expected):
        return  # what says nothing lacks what it should lack
    if twin.expected in ({"exclude": ["error"]}, {"unexpect": ["old"]}):
        return  # so does any text
    cut = [file(twin.right.data[:40])] if isinstance(twin.right, FileView) and len(twin.right.data) > 99 else []
    for broken in [*map(file, GARBAGE), *STRANGE, *cut]:
        assert score(twin, broken) < 1 or (empty and broken == []), broken


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TWINS),
    st.binary(max_size=300)
    | st.text(max_size=100)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=9,
    ),
)
def test_no_result_raises(twin: Twin, result: Any) -> None:
    score(twin, file(result) if isinstance(result, bytes) else result)
    score(twin, file(json.dumps(result, default=repr)))


def test_what_the_task_has_wrong_is_its_fault() -> None:
    for name, expected, options in (
        ("compare_table", GOLD, {"rules": [{"type": "sparkline"}]}),
        ("compare_table", GOLD, {"rules": [DATA | {"sheet_idx1": "EI7"}]}),
        ("compare_table", file(b"no workbook"), {"rules": [DATA]}),
        ("compare_table", GOLD, {}),
        ("compare_docx_files", FileView("missing"), {}),
        ("check_json", {"expect": [{"key": ["a"], "method": "magic", "ref": 1}]}, {}),
        ("check_list", {"expect": ["("]}, {}),
    ):
        right = GOLD if name == "compare_table" else file('{"a": 1}') if name.startswith("check") else SAID
        with pytest.raises(ConfigError, match=name):
            scored(METRICS[name], right, expected, options)
    assert METRICS["compare_table"].lacks({"rules": [DATA, {"type": "sparkline"}]}) == "rule sparkline"


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_likeness_is_what_its_formula_says(one: str, other: str) -> None:
    longest = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            longest[i + 1][j + 1] = longest[i][j] + 1 if a == b else max(longest[i][j + 1], longest[i + 1][j])
    whole = len(one) + len(other)
    assert likeness(one, other) == pytest.approx(2 * longest[-1][-1] / whole if whole else 1.0)
    assert likeness("a" * (LONGEST + 1), "a") == 0


def test_methods_of_rules() -> None:
    for value, method, ref, fit in (
        (5, "le", 5, True),
        ("5", "le", 5, False),
        (True, "eq", 1, False),
        (1, "eq", 1.0, True),
        (None, "ne", 1, True),
        ("a\nb", "re.S", "a.b", True),
        ('"b,a"', "str_set_eq", ["a", "b"], True),
        ("D2:D9", "spreadsheet_range", ["D2:D9"], True),
        (3, "range.te", [2, 3], True),
        (2, "range.te", [2, 3], False),
    ):
        assert fits(value, {"method": method, "ref": ref}) is fit, (value, method)


def test_texts_that_say_a_number() -> None:
    said = {"1": 1, "1.": 1, ".5": 0.5, " +2.50 ": 2.5, "-1.5e3": -1500, "9E-1": 0.9}
    assert {text: number(text) for text in said} == said
    assert [number(text) for text in ("", ".", "1..2", "1.2.3", "1e", "1 2", "x1", "1_0")] == [None] * 8
    longest = "9" * (DIGITS - 2)
    started = time.process_time()
    assert not any(number(text) for text in (longest + "x", longest[1:] + ".x", "." + longest[1:] + "x") * 300)
    assert time.process_time() - started < 1  # each text once over, not once from each of its digits
