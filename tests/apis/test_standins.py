"""Published task files with stand-ins for their fixtures: what is right, untouched, garbage or elsewhere is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from actors.cluster.checks.tasks import fetch
from apis.tasks import task_file
from apis.tasks.metrics.metric import Score
from apis.tasks.osworld import HOME, Task
from apis.tasks.twins.twin import as_read
from apis.tasks.verify.verify import FileView
from apis.tasksets import getters, judge
from apis.tasksets.coverage import covered
from apis.tasksets.steps import at_home
from tests.apis.standins import brought, laid, standins
from tests.apis.test_task_files import OSWORLD

# Words of options that ask for a state which is neither the start nor the expected file.
OTHER = ("check_cell", "data_validation", "examine_title_bottom_position")


@pytest.fixture(scope="module")
def published() -> list[Task]:
    if not OSWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    return [task_file.load(file.read_bytes()) for file in sorted(OSWORLD.glob("*/*.json"))]


def scored(task: Task, files: Mapping[str, bytes], fixtures: Mapping[str, bytes]) -> float:
    looked_at = {one.path: one.as_ for one in judge.wanted(task)}

    def read(path: str) -> FileView:
        assert path in looked_at
        return as_read(FileView("file", data=files[path]), looked_at[path]) if path in files else FileView("missing")

    found: Score = judge.score(task, read, {}, fixtures.__getitem__)
    assert found.reason
    return found.value


def wanted(task: Task, fixtures: Mapping[str, bytes]) -> Iterator[tuple[str, bytes] | None]:
    """Each result's path with the file that is expected there; None where no file is."""
    for _, result, expected, _ in task.evaluator.rows():
        urls = getters.fixtures_of(expected or {})
        paths = getters.files_of(result or {})
        yield from zip(paths, map(fixtures.__getitem__, urls), strict=False) if urls and paths else [None]


@pytest.mark.slow
def test_with_stand_ins_the_files_are_runnable_and_judged_as_known(published: list[Task]) -> None:
    runnable = judged = right = 0
    for task in published:
        fixtures = {url: data for url, _, data in standins(task)}
        found = covered(task, fixtures.__contains__, lambda _: True)
        assert not [need for need in found.needs if need.kind == "fixture"]
        runnable += found.verdict == "runnable"
        if found.verdict != "runnable" or not task.feasible:
            continue
        judged += 1
        judge.afterwards(task, HOME, fixtures.__getitem__)
        start = {at_home(file.path): fixtures[file.url] for file in brought(task) if file.url in fixtures}
        pairs = list(wanted(task, fixtures))
        end = dict(pair for pair in pairs if pair)
        elsewhere = {f"{path}~": data for path, data in end.items()}
        for broken in (start, {}, dict.fromkeys({*start, *end}, b"PK\3\4torn"), elsewhere):
            assert scored(task, broken, fixtures) < 1, task.id
        if all(pairs) and not any(word in json.dumps(task.evaluator.options) for word in OTHER):
            assert scored(task, end, fixtures) == 1, task.id
            right += 1
    assert runnable >= 158
    assert judged >= 140
    assert right >= 80


def test_a_cache_of_stand_ins_is_found_by_fetch(tmp_path: Path, published: list[Task]) -> None:
    for task in published[::20]:
        laid(task, tmp_path)
        for one in fetch.wanted_by(task):
            assert fetch.found_in(tmp_path, one) in [data for url, _, data in standins(task) if url == one.url]
