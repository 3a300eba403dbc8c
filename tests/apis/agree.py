"""Compares the metrics here with the published ones on the same generated results: `make agree`.

Invariant: both are given the same. The metric's `instead` explains as many differences as `DIFFER` counts, by kind of
result. The exit status is 1 where more or fewer differ, and where nothing was compared.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from actors.cluster import output
from actors.cluster.config.suggest import hint
from apis.tasks.metrics.metric import Score, scored
from apis.tasks.metrics.registry import METRICS
from apis.tasks.verify.verify import FileView
from apis.tasksets import published
from apis.tasksets.published import PublishedScore
from runtime.errors import ConfigError
from tests.apis.twins import GARBAGE, TWINS, Twin, as_read

SAME = 0.001  # of a score; ratios are rounded differently
COLUMNS = ("twins", "agree", "differ", "raised", "not compared")
# How many results of a metric's twins differ, by kind, each for a reason that its `instead` says.
DIFFER = {
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
SAID = ["", "\u202e\x1b]0;x\x07", "9" * 9999, '{"a": NaN}', "<a>" * 9]  # garbage where a text or a value is wanted


class TwinResult(NamedTuple):
    """A twin's result, and which of it: right, wrong, garbage, or elsewhere (what was made bears another name)."""

    twin: Twin
    result: Any
    kind: str


class BothScores(NamedTuple):
    """Both answers to a case."""

    case: TwinResult
    ours: Score
    theirs: PublishedScore

    @property
    def agree(self) -> bool:
        """Whether the scores are the same; what raises solves nothing."""
        return abs(self.ours.value - self.theirs.score) <= SAME


def cases(metrics: Collection[str] = ()) -> Iterator[TwinResult]:
    """The results of each twin of `metrics`, or of all; then some garbage, the same ever for a twin, and nothing."""
    for number, twin in enumerate(TWINS):
        if metrics and twin.name not in metrics:
            continue
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


def compared(asked: Sequence[TwinResult]) -> Iterator[BothScores]:
    """Both sides' answers. Raises ConfigError where the published side gives none."""
    orders = [published.order(twin.name, result, twin.expected, twin.options) for twin, result, _ in asked]
    for case, theirs in zip(asked, published.answers(orders), strict=True):
        metric = METRICS[case.twin.name]
        result, expected = (as_read(value, metric.reads) for value in (case.result, case.twin.expected))
        yield BothScores(case, scored(metric, result, expected, case.twin.options), theirs)


def agree(args: argparse.Namespace) -> int:
    """Print what differs; the exit status."""
    published.refuse_missing()
    known = {twin.name for twin in TWINS}
    for name in args.metric:
        if name not in known:
            raise ConfigError(f"--metric {name}: there is no such metric; {hint(name, known)}")
    found = list(compared(list(cases(args.metric))))
    there = [one for one in found if not one.theirs.missing]
    differ = [one for one in there if not one.agree]
    bad = unexplained(differ)
    old = stale(there, differ)
    missing = {one.case.twin.name: one.theirs.missing for one in found if one.theirs.missing}
    ok = bool(there) and not bad and not old
    if args.json:
        rows = [_row(one, explained=one not in bad) for one in differ]
        counts = {"compared": len(there), "agree": len(there) - len(differ)}
        output.document({"ok": ok, **counts, "differ": rows, "stale": old, "missing": missing})
        return int(not ok)
    _show(found)
    for one in differ:
        row = _row(one, explained=one not in bad)
        said = f"{row['metric']} ({row['kind']}; {row['reason'][:60]}): here {row['here']:g}, published"
        output.line(output.clean(f"{said} {row['published']}: {row['instead'] or 'NOT EXPLAINED'}"))
    for name, why in missing.items():
        output.line(f"{name}: not compared: {why}")
    for text in old:
        output.line(f"no longer so: {text}")
    for kind in dict.fromkeys(one.case.kind for one in there):
        same = [one.agree for one in there if one.case.kind == kind]
        output.line(f"{kind}: {sum(same)} of {len(same)} agree")
    if not there:
        output.line("nothing was compared")
        return 1
    share = 1 - len(differ) / len(there)
    raised = sum(bool(one.theirs.raised) for one in there)
    output.line(f"{len(there) - len(differ)} of {len(there)} agree: {share:.1%}; published raised on {raised}")
    return int(not ok)


def unexplained(differ: Sequence[BothScores]) -> list[BothScores]:
    """The differences of a metric and kind of which there are more than `DIFFER` counts."""
    counts = Counter((one.case.twin.name, one.case.kind) for one in differ)
    return [one for one in differ if counts[key := (one.case.twin.name, one.case.kind)] > DIFFER.get(key, 0)]


def stale(there: Sequence[BothScores], differ: Sequence[BothScores]) -> list[str]:
    """What `DIFFER` explains and is so no longer, of the metrics that were compared."""
    counts = Counter((one.case.twin.name, one.case.kind) for one in differ)
    asked = {one.case.twin.name for one in there}
    return [
        f"{name} ({kind}): DIFFER counts {most}, {counts[name, kind]} differ"
        for (name, kind), most in DIFFER.items()
        if name in asked and counts[name, kind] < most
    ]


def _row(one: BothScores, *, explained: bool) -> dict[str, Any]:
    """A difference, as --json prints it; `instead` is empty where it is not explained."""
    name = one.case.twin.name
    instead = METRICS[name].instead if explained else ""
    told = {"metric": name, "kind": one.case.kind, "reason": one.ours.reason, "here": one.ours.value}
    return {**told, "published": one.theirs.raised or one.theirs.score, "instead": instead}


def _show(found: Sequence[BothScores]) -> None:
    """A line per metric."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        count = counts.setdefault(one.case.twin.name, Counter())
        if one.theirs.missing:
            count["not compared"] += 1
        else:
            count.update(twins=1, agree=one.agree, differ=not one.agree, raised=bool(one.theirs.raised))
    output.line(f"{'metric':44}" + "".join(f"{column:>13}" for column in COLUMNS))
    for name, count in sorted(counts.items()):
        output.line(f"{name:44}" + "".join(f"{count[column]:13}" for column in COLUMNS))


def main(argv: Sequence[str]) -> int:
    """Compare and print; 1 where a difference is not explained, or is so no longer."""
    parser = argparse.ArgumentParser(prog="make agree", description=__doc__)
    parser.add_argument("--metric", action="append", default=[], metavar="NAME", help="only this metric (repeatable)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    try:
        return agree(parser.parse_args(argv))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
