"""Whether a task file is sound by its own files: its start is not the solution, and what it expects is one.

Invariant: pure, and no desktop is asked. A start is judged only where nothing but the set-up's downloads decides it, so
what may be otherwise on a desktop is never called unsound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from apis.tasks.metrics.metric import SOLVED, Score, together
from apis.tasks.osworld import HOME, Getter, Step, Task
from apis.tasks.verify.verify import FileView
from apis.tasksets import getters, judge
from apis.tasksets.fixtures import downloads
from apis.tasksets.needs import Lacking
from apis.tasksets.steps import Fixture, at_home, calls_of, name_of
from runtime.errors import ConfigError

Row = tuple[str, Getter, Getter, Getter]
_ANY_FILE = re.compile(r"\.(?:sh|py)\b|\*|\bunzip\b|\btar\b|\bgit\b")  # in a line that may make any file


def trouble(task: Task, fixture: Fixture) -> str:
    """What is wrong with a task by its files alone; "" where nothing is seen, as where something is lacking."""
    if not task.feasible:
        return ""
    try:
        start = _start(task, fixture)
        if start is not None and start.value >= SOLVED:
            return f"what it starts with solves it: {start.reason}"
        return next((said for row in task.evaluator.rows() if (said := _by_gold(task, row, fixture))), "")
    except Lacking:
        return ""
    except ConfigError as error:
        return str(error).removeprefix(f"task {task.id}: ")


def _start(task: Task, fixture: Fixture) -> Score | None:
    """The score of the files that `task` starts with; None where they don't decide it."""
    files, lines = _files(task.config, fixture), list(_lines(task))
    scores = [_of_start(task, row, files, lines, fixture) for row in task.evaluator.rows()]
    known = [score for score in scores if score is not None]
    decided = bool(known) and (task.evaluator.conj == "or" or len(known) == len(scores))
    return together(known, task.evaluator.conj) if decided else None


def _files(steps: Sequence[Step], fixture: Fixture) -> dict[str, FileView]:
    return {at_home(path): _view(fixture(url, name)) for path, url, name in downloads(steps)}


def _view(data: bytes) -> FileView:
    return FileView("file", data=data, of_task=True)


def _lines(task: Task) -> Iterator[str]:
    """What set-up and postconfig run, but for programs that are shown and keys that are pressed."""
    for step in (*task.config, *task.evaluator.postconfig):
        calls = calls_of(step, HOME, lambda *_: b"")
        yield from (" ".join(call.args["argv"]) for call in calls if call.method in ("run", "launch"))


def _of_start(
    task: Task, row: Row, files: Mapping[str, FileView], lines: Sequence[str], fixture: Fixture
) -> Score | None:
    _, result, expected, _ = row
    if result.get("type") != "vm_file" or judge.native(*row) is None or not _fixed(task, expected):
        return None
    paths = getters.files_of(result)
    stems = [name_of(path).rpartition(".")[0] or name_of(path) for path in paths]
    if any(_ANY_FILE.search(line) or any(stem in line for stem in stems) for line in lines):
        return None
    return _scored(task, row, files, fixture) if files.keys() >= set(paths) else None


def _fixed(task: Task, expected: Getter) -> bool:
    """Whether what is expected does not come of a desktop."""
    known = judge.brought_by(task).keys() >= set(getters.files_of(expected)) > set()
    return not expected or not getters.is_read(expected) or known


def _of_gold(task: Task, expected: Getter, fixture: Fixture) -> list[FileView]:
    """The files that are expected; none where they are no fixtures."""
    brought, paths = judge.brought_by(task), getters.files_of(expected)
    if not brought.keys() >= set(paths):
        return []
    return [_view(fixture(*one)) for one in (*getters.fixtures_of(expected), *(brought[path] for path in paths))]


def _by_gold(task: Task, row: Row, fixture: Fixture) -> str:
    """How what is expected fails in the place of the result; "" where it passes, or is not to be compared so."""
    _, result, expected, options = row
    metric = judge.native(*row)
    if metric is None or metric.differs(options) or result.get("type") != "vm_file":
        return ""
    paths, golds = getters.files_of(result), _of_gold(task, expected, fixture)
    if not golds or len(golds) != len(paths):
        return ""
    found = _scored(task, row, dict(zip(paths, golds, strict=True)), fixture)
    return "" if found.value >= SOLVED else f"what it expects does not pass itself: {found.reason}"


def _scored(task: Task, row: Row, files: Mapping[str, FileView], fixture: Fixture) -> Score:
    name, result, expected, options = row
    evaluator = replace(task.evaluator, func=name, result=result, expected=expected, options=options)
    return judge.score(replace(task, evaluator=evaluator), files.__getitem__, {}, fixture)
