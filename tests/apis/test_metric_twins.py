"""Twins of published task files: per metric what is right, near misses, untouched and garbage, judged as known.

OfficeWorld's metrics are tried on files of the packages that it reads them with.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from apis.tasks.metrics.metric import Score, gold, scored, together
from apis.tasks.metrics.registry import METRICS
from apis.tasks.metrics.rules import DIGITS, fits, number
from apis.tasks.verify.verify import FileView
from apis.tasksets import judge
from runtime.errors import ConfigError
from tests.apis import office_pairs
from tests.apis.office_pairs import PAIRS, Pair
from tests.apis.task_files import loaded, of_file
from tests.apis.twins import GARBAGE, TWINS, Twin, as_read, book, file

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


@pytest.mark.parametrize(
    ("name", "expected", "options"),
    [
        ("compare_spreadsheet", book(["a"]), {"answer_position": "Other!A1"}),
        ("compare_spreadsheet", file(b"no workbook"), {"answer_position": "A1"}),
        ("compare_spreadsheet", book(["a"]), {}),
        ("simple_docx_compare", FileView("missing"), {}),
        ("check_json", {"expect": [{"key": ["a"], "method": "magic", "ref": 1}]}, {}),
        *(
            ("check_list", {"expect": [pattern]}, {})
            for pattern in ("(", "(?R)", "x" * 20_000, "(" * 5000 + ")" * 5000)
        ),
        ("exact_match", {}, {}),
    ],
)
def test_what_the_task_has_wrong_is_its_fault(name: str, expected: Any, options: Any) -> None:
    right = as_read(book(["a"]), METRICS[name].reads) if name == "compare_spreadsheet" else file('{"a": 1}')
    if isinstance(expected, FileView):
        expected = replace(expected, of_task=True)
    with pytest.raises(ConfigError, match=name):
        scored(METRICS[name], right, expected, options)


@pytest.mark.parametrize("lines", ["a" * 60_000 + "b", ("a" * 40 + "b\n") * 20_000], ids=["one line", "many lines"])
def test_a_pattern_that_tries_every_way_to_divide_a_text_is_given_up(
    lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apis.tasks.metrics.rules.SEARCH_S", 0.1)
    began = time.process_time()
    found = scored(METRICS["check_list"], lines, {"expect": ["(a|aa)+$"]}, {})
    assert (found.value, "too long" in found.reason) == (0, True)
    assert time.process_time() - began < 5.0


def test_what_is_empty_never_has_what_it_should() -> None:
    said = [scored(METRICS["check_include_exclude"], text, {}, {}).value for text in ("anything", "", " \n")]
    assert said == [1, 0, 0]


def test_several_metrics_score_together_as_published() -> None:
    none, half, whole = Score(0, "none"), Score(0.5, "half"), Score(1, "whole")
    assert together([whole, none], "and") == none
    assert together([whole, half], "and").value == 0.75
    assert together([none, whole], "or") == whole


def test_bytes_of_the_desktop_are_parsed_in_a_process_of_their_own_alone() -> None:
    found = scored(METRICS["compare_spreadsheet"], book(["a"]), book(["a"]), {"answer_position": "A1"})
    assert (found.value, "process of its own" in found.reason) == (0, True)
    with pytest.raises(LookupError, match="process of its own"):
        gold(book(["a"]), "workbook")
    assert gold(replace(book(["a"]), of_task=True), "workbook").sheets[0].name == "Sheet1"


def test_a_workbook_that_another_metric_wants_as_bytes_is_the_tasks_fault() -> None:
    side, at = of_file("a.xlsx"), {"answer_position": "A1"}
    evaluator = {"func": ["compare_spreadsheet", "diff_text_file"], "result": [side, side], "expected": [{}, {}]}
    with pytest.raises(ConfigError, match=r"a\.xlsx as bytes and as workbook"):
        judge.wanted(loaded(evaluator={**evaluator, "options": [at, {}]}))


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


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.metric}: {pair.name}")
def test_a_pair_is_judged_by_the_published_rules(pair: Pair) -> None:
    metric = METRICS[pair.metric]
    left = as_read(replace(file(pair.left), name=pair.called), metric.reads)
    expected = replace(file(pair.expected), of_task=True)
    assert scored(metric, left, expected, pair.options).solved is pair.right
    assert scored(metric, expected, expected, pair.options).solved
    for garbage in (b"", b"PK\3\4torn", pair.left[:-40]):
        assert not scored(metric, as_read(file(garbage), metric.reads), expected, pair.options).solved
    assert not scored(metric, FileView("missing"), expected, pair.options).solved
    with pytest.raises(ConfigError, match=pair.metric):
        scored(metric, left, file(b"no document"), pair.options)


def test_an_expected_workbook_that_was_never_calculated_is_the_tasks_fault() -> None:
    metric, options = METRICS["compare_spreadsheet"], {"answer_position": "B1"}
    never = replace(file(office_pairs.book({"A1": 1, "B1": "=A1+1"})), of_task=True)
    with pytest.raises(ConfigError, match="never calculated"):
        scored(metric, as_read(file(office_pairs.book({"A1": 1, "B1": 2})), metric.reads), never, options)


@pytest.mark.filterwarnings("ignore:Unknown extension")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"</sheetData>", b"</sheetData><extLst><ext uri='sparkline'><xm:f>Sheet!A1</xm:f></ext></extLst>"),
        (b'<c r="B1" t="n"><v>2</v>', b'<c r="B1"><f>A1+1</f>\n <v>2</v>'),
    ],
)
def test_an_expected_workbook_whose_cells_have_values_is_calculated(old: bytes, new: bytes) -> None:
    plain, out = office_pairs.book({"A1": 1, "B1": 2}), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(plain)) as source, zipfile.ZipFile(out, "w") as target:
        parts = {name: source.read(name) for name in source.namelist()}
        sheet = "xl/worksheets/sheet1.xml"
        assert old in parts[sheet]
        parts[sheet] = parts[sheet].replace(old, new.replace(b"xm:f>", b'xm:f xmlns:xm="urn:xm">', 1))
        for name, data in parts.items():
            target.writestr(name, data)
    metric, expected = METRICS["compare_spreadsheet"], replace(file(out.getvalue()), of_task=True)
    assert scored(metric, as_read(file(plain), metric.reads), expected, {"answer_position": "B1"}).solved
