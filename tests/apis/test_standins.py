"""Published task files with stand-ins for their fixtures: what is right, untouched, garbage or elsewhere is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.cluster.checks import fetch
from apis.tasks import osworld
from apis.tasks.metrics.metric import Score
from apis.tasks.osworld import HOME, Task
from apis.tasks.verify.verify import FileView
from apis.tasksets import getters, judge
from apis.tasksets import published as package
from apis.tasksets.coverage import covered
from apis.tasksets.getters import downloads, wanted_by
from apis.tasksets.steps import Fixture, at_home
from tests.apis.standins import laid, standins
from tests.apis.test_task_files import OSWORLD
from tests.apis.twins import as_read

# Words of options that ask for a state which is neither the start nor the expected file.
OTHER = ("check_cell", "data_validation", "examine_title_bottom_position")


@pytest.fixture(scope="module")
def published() -> list[Task]:
    if not OSWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    return [osworld.load(file.read_bytes()) for file in sorted(OSWORLD.glob("*/*.json"))]


Stands = Mapping[tuple[str, str], bytes]  # stand-ins by their URL and name


def of(fixtures: Stands) -> Fixture:
    """As set-up and judge ask for them."""
    return lambda url, name: fixtures[url, name]


def scored(task: Task, files: Mapping[str, bytes], fixtures: Stands, tail: judge.Tail | None = None) -> float:
    looked_at = {one.path: one.as_ for one in judge.wanted(task)}

    def read(path: str) -> FileView:
        assert path in looked_at
        return as_read(FileView("file", data=files[path]), looked_at[path]) if path in files else FileView("missing")

    found: Score = judge.score(task, read, {}, of(fixtures), tail)
    assert found.reason
    return found.value


def wanted(task: Task, fixtures: Stands) -> Iterator[tuple[str, bytes] | None]:
    """Each result's path with the file that is expected there; None where no file is."""
    for _, result, expected, _ in task.evaluator.rows():
        named = getters.fixtures_of(expected or {})
        paths = getters.files_of(result or {})
        yield from zip(paths, map(fixtures.__getitem__, named), strict=False) if named and paths else [None]


@pytest.mark.slow
def test_with_stand_ins_the_files_are_runnable_and_judged_as_known(published: list[Task]) -> None:
    runnable = judged = right = 0
    for task in published:
        fixtures = standins(task)
        found = covered(task, lambda *one, here=fixtures: one in here, lambda _: True)
        assert not [need for need in found.needs if need.kind == "fixture"]
        runnable += found.verdict == "runnable"
        if found.verdict != "runnable" or not task.feasible:
            continue
        judged += 1
        judge.afterwards(task, HOME, of(fixtures))
        start = {at_home(path): fixtures[url, name] for path, url, name in downloads(task.config)}
        pairs = list(wanted(task, fixtures))
        end = dict(pair for pair in pairs if pair)
        elsewhere = {f"{path}~": data for path, data in end.items()}
        for broken in (start, {}, dict.fromkeys({*start, *end}, b"PK\3\4torn"), elsewhere):
            assert scored(task, broken, fixtures) < 1, task.id
        if all(pairs) and not any(word in json.dumps(task.evaluator.options) for word in OTHER):
            assert scored(task, end, fixtures) == 1, task.id
            right += 1
    assert runnable >= 80
    assert judged >= 60
    assert right >= 5


@pytest.mark.proof
def test_the_published_package_judges_what_is_untouched_and_what_is_expected_as_known(published: list[Task]) -> None:
    if not package.is_here():
        pytest.skip("make osworld-judge")
    orders: list[str] = []
    asked: list[tuple[str, str]] = []

    def tail(name: str, result: object, expected: object, options: Mapping[str, object], starts: Any) -> Score:
        orders.append(package.order(name, result, expected, options, starts))
        asked.append((task.id, turn))
        return Score(1.0, name)

    for task in published:
        fixtures = standins(task)
        found = covered(task, lambda *one, here=fixtures: one in here, lambda _: True, published=True)
        pairs = list(wanted(task, fixtures))
        if (found.verdict, found.judge) != ("runnable", "published") or not all(pairs):
            continue
        start = {at_home(path): fixtures[url, name] for path, url, name in downloads(task.config)}
        for side, files in (("start", start), ("end", dict(pair for pair in pairs if pair))):
            turn = side
            scored(task, files, fixtures, tail)
    answers = zip(asked, package.answers(orders), strict=True)
    scores: dict[tuple[str, str], list[float]] = {}
    for key, answer in answers:
        scores.setdefault(key, []).append(answer.score)
    lowest = {side: [min(each) for (_, where), each in scores.items() if where == side] for side in ("start", "end")}
    assert max(lowest["start"]) < 1
    ends = lowest["end"]
    assert sum(end > 0.99 for end in ends) >= 70, ends


def test_a_cache_of_stand_ins_is_found_by_fetch(tmp_path: Path, published: list[Task]) -> None:
    for task in published[::20]:
        laid(task, tmp_path)
        for one in wanted_by(task):
            assert fetch.found_in(tmp_path, one) == standins(task)[one.url, one.name]
