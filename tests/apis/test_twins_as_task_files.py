"""Twins in the form of published task files: right, near misses, untouched and elsewhere, judged as known."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from apis.tasks import osworld
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME, Task
from apis.tasks.verify.verify import FileView
from apis.tasksets import judge, states
from tests.apis.test_metric_twins import score as judged
from tests.apis.twins import TWINS, Twin, as_read, database

SAID = "say"
# What stands in a database of the browser.
LISTED: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "is_cookie_deleted": ("cookie_data", "Cookies", "cookies", ("name", "host_key")),
    "check_history_deleted": ("history", "History", "urls", ("url", "title", "last_visit_time")),
}
LIVE = {
    "is_expected_active_tab": "active_tab_info", "is_expected_search_query": "active_tab_info",
    "is_expected_tabs": "open_tabs_info",
}  # fmt: skip


class Found(NamedTuple):
    """What is found on the desktop: files by their paths below HOME, and what commands said."""

    files: Mapping[str, FileView] = {}
    told: Mapping[str, str] = {}


def named(view: FileView, stem: str) -> dict[str, FileView]:
    """A file and those beside it, by their names."""
    return {view.name or stem: view, **view.beside}


def getter(kind: str, names: list[str], start: str) -> dict[str, Any]:
    places = [f"{start}/{name}" for name in names]
    if len(names) == 1:
        return {"type": kind, "path": places[0], "dest": names[0]}
    return {"type": kind, "path": places, "dest": names, "multi": True, "gives": [0]}


def left(twin: Twin, result: Any) -> Found | None:
    """A desktop on which `twin` has this result; None where no getter gives such a one."""
    if twin.name in LIVE:
        tabs = result if isinstance(result, list) else [result]
        told = {"tabs": [[tab["url"], tab.get("title", "")] for tab in tabs if isinstance(tab, dict)], "active": 0}
        return Found(told={json.dumps(LIVE[twin.name]): json.dumps(told)})
    if twin.name == "is_in_list":
        settings = {str(at): {"path": path} for at, path in enumerate(result)}
        listed = json.dumps({"extensions": {"settings": settings}}).encode()
        return Found({states.PREFERENCES: FileView("file", data=listed)})
    if twin.name in LISTED:
        _, path, table, columns = LISTED[twin.name]
        found = database(**{table: [columns, *map(tuple, result)]})
        return Found({f"{states.PROFILE}/Default/{path}": found})
    if isinstance(result, FileView):
        return Found(named(result, "a"))
    if isinstance(result, str):
        asked_for = "accessibility_tree" if twin.name == "check_left_panel" else SAID
        return Found(told={json.dumps(asked_for): result})
    if twin.name == "is_expected_bookmarks":
        return Found(
            {f"{states.PROFILE}/Default/Bookmarks": FileView("file", data=json.dumps({"roots": result}).encode())}
        )
    if twin.name == "check_moved_jpgs":
        return Found({"a": FileView("folder", names=tuple(one["name"] for one in result.get("children", [])))})
    return None


def asked(twin: Twin) -> dict[str, Any]:
    """The getter of a twin's result."""
    if twin.name in LIVE:
        return {"type": LIVE[twin.name]}
    if twin.name == "is_in_list":
        return {"type": "find_unpacked_extension_path"}
    if twin.name in LISTED:
        return {"type": LISTED[twin.name][0]}
    if isinstance(twin.right, FileView):
        return getter("vm_file", list(named(twin.right, "a")), HOME)
    if twin.name == "is_expected_bookmarks":
        return {"type": "bookmarks"}
    if twin.name == "check_moved_jpgs":
        return {"type": "list_directory", "path": f"{HOME}/a"}
    if twin.name == "check_left_panel":
        return {"type": "accessibility_tree"}
    return {"type": "vm_command_line", "command": SAID}


def filed(twin: Twin) -> tuple[Task, dict[str, bytes]]:
    """A twin as a task file, with the fixtures that it names."""
    evaluator: dict[str, Any] = {"func": twin.name, "result": asked(twin), "options": twin.options}
    fixtures = {}
    golds = twin.expected if isinstance(twin.expected, list) else [twin.expected]
    if golds and all(isinstance(gold, FileView) for gold in golds):
        files = {name: view for at, gold in enumerate(golds) for name, view in named(gold, f"gold{at}").items()}
        evaluator["expected"] = getter("cloud_file", list(files), "https://x.org")
        if len(golds) > 1:
            evaluator["expected"]["gives"] = list(range(len(golds)))
        fixtures = {f"https://x.org/{name}": view.data for name, view in files.items()}
    elif twin.expected is not None:
        evaluator["expected"] = {"type": "rule", "rules": twin.expected}
    text = json.dumps({"id": twin.name, "instruction": "Do it", "evaluator": evaluator})
    return osworld.load(text.encode()), fixtures


@pytest.mark.parametrize("twin", [twin for twin in TWINS if left(twin, twin.right)], ids=lambda twin: twin.name)
def test_a_twin_is_judged_as_known_by_its_task_file(twin: Twin) -> None:
    right = left(twin, twin.right)
    assert right is not None
    task, fixtures = filed(twin)
    looked_at = {one.path: one.as_ for one in judge.wanted(task)}

    def score(found: Found) -> float:
        seen = {path: as_read(view, looked_at[path]) for path, view in found.files.items() if path in looked_at}
        read = defaultdict(lambda: FileView("missing"), seen)
        return judge.score(task, read.__getitem__, found.told, lambda url, _: fixtures[url]).value

    assert score(right) == 1
    for result in twin.wrong:
        if found := left(twin, result):
            assert score(found) == judged(twin, result) < 1
    elsewhere = {f"{path}~": view for path, view in right.files.items()}
    assert score(Found(elsewhere, {f"{key}~": said for key, said in right.told.items()})) < 1


def test_every_metric_has_a_twin_and_a_task_file() -> None:
    assert sorted(METRICS.keys() - {twin.name for twin in TWINS}) == []
    assert METRICS.keys() - {twin.name for twin in TWINS if left(twin, twin.right)} == set()
    near = {name: max(len(twin.wrong) for twin in TWINS if twin.name == name) for name in METRICS}
    assert [name for name, count in near.items() if count < 3] == []  # two near misses, and what is untouched
