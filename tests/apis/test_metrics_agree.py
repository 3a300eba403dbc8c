"""The metrics here and the published ones on the same generated results: `make agree`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from apis.tasks.metrics.metric import scored
from apis.tasks.metrics.registry import METRICS
from apis.tasks.verify.verify import FileView
from apis.tasksets import published
from tests.apis.twins import GARBAGE, TWINS, Twin, as_read

SAME = 0.001  # of a score; ratios are rounded differently
# How many results of a metric's twins differ, by kind, each for a reason that its `instead` says.
DIFFER = Counter(
    {
        ("check_list", "garbage"): 1,
        ("check_one_instance_when_started_from_file", "garbage"): 1,
        ("check_qt_bgcone", "garbage"): 1,
        ("check_qt_bgcone", "wrong"): 1,
        ("check_qt_max_volume", "wrong"): 1,
        ("check_qt_minimal_view", "garbage"): 1,
        ("check_qt_minimal_view", "wrong"): 1,
        ("check_qt_slider_colours", "wrong"): 1,
        ("check_thunderbird_folder", "wrong"): 2,
        ("check_thunderbird_prefs", "garbage"): 1,
        ("check_thunderbird_prefs", "wrong"): 1,
        ("is_expected_active_tab", "wrong"): 1,
    }
)
SAID = ["", "\u202e\x1b]0;x\x07", "9" * 9999, '{"a": NaN}', "<a>" * 9]  # garbage where a text or a value is wanted


class TwinResult(NamedTuple):
    """A twin's result, and which of it: right, wrong, garbage, or elsewhere (what was made bears another name)."""

    twin: Twin
    result: Any
    kind: str


def cases() -> Iterator[TwinResult]:
    """The results of each twin; then some garbage, the same ever for a twin, and nothing."""
    for number, twin in enumerate(TWINS):
        yield TwinResult(twin, twin.right, "right")
        yield from (TwinResult(twin, result, "wrong") for result in twin.wrong)
        broken = FileView("file", data=GARBAGE[number % len(GARBAGE)])
        if isinstance(twin.right, FileView):
            yield TwinResult(twin, broken, "garbage")
            yield TwinResult(twin, FileView("missing"), "elsewhere")
        elif isinstance(twin.right, list) and isinstance(twin.right[0], FileView):
            yield TwinResult(twin, [broken] * len(twin.right), "garbage")
            yield TwinResult(twin, [FileView("missing")] * len(twin.right), "elsewhere")
        else:
            of_kind: dict[type, Any] = {list: [5], dict: {"x": 5}, str: SAID[number % len(SAID)]}
            yield TwinResult(twin, of_kind[type(twin.right)], "garbage")
            yield TwinResult(twin, None, "elsewhere")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_metrics_agree_with_the_published_ones_but_where_they_say_why_not() -> None:
    assert all(METRICS[name].instead for name, _ in DIFFER)
    if not published.is_here():
        pytest.skip("make osworld-judge")
    asked, differ, all_of = list(cases()), Counter[tuple[str, str]](), Counter[str]()
    answers = published.answers([published.order(twin.name, it, twin.expected, twin.options) for twin, it, _ in asked])
    for (twin, it, kind), theirs in zip(asked, answers, strict=True):
        metric = METRICS[twin.name]
        ours = scored(metric, *(as_read(value, metric.reads) for value in (it, twin.expected)), twin.options)
        all_of[kind] += not theirs.missing
        differ[twin.name, kind] += not theirs.missing and abs(ours.value - theirs.score) > SAME  # what raises scores 0
    by_kind = {kind: sum(count for (_, of), count in differ.items() if of == kind) for kind in all_of}
    sys.stdout.write(
        "\n" + "".join(f"{kind}: {all_of[kind] - by_kind[kind]} of {all_of[kind]} agree\n" for kind in all_of)
    )
    assert +differ == DIFFER
