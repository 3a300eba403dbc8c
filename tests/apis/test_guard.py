"""The guard of task files: a start that solves its task is refused, and so is an expectation that does not pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors.cluster import cli
from actors.cluster.config import tasksets
from actors.cluster.config.lanes import lanes_of
from actors.replay.config import TaskRange, TasksConfig
from apis.documents.xlsx import make_xlsx
from apis.tasks import osworld
from apis.tasks.metrics.metric import scored
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME, Task, data_url
from apis.tasks.verify.verify import FileView
from apis.tasksets.coverage import covered, unsound
from apis.tasksets.getters import downloads
from apis.tasksets.steps import carried
from runtime.errors import ConfigError
from tests.apis.standins import standins
from tests.apis.task_files import Part, bring, loaded, of_file, ran, rule
from tests.apis.test_task_files import OSWORLD
from tests.apis.twins import TWINS, Twin

OFFICEWORLD = OSWORLD.with_name("officeworld")


def named(start: bytes, gold: bytes, func: str = "compare_text_file", **changes: Any) -> Part:
    """A task that starts with one text and expects another."""
    expected = {"type": "cloud_file", "path": data_url(gold), "dest": "gold.txt"}
    evaluator = {"func": func, "result": of_file("a.txt"), "expected": expected}
    return {"config": [bring({f"{HOME}/a.txt": start})], "evaluator": evaluator | changes}


def trouble(task: Part) -> str:
    return unsound(loaded(**task), carried)


def test_a_start_that_solves_its_task_is_refused() -> None:
    assert not trouble(named(b"one", b"two"))
    assert "what it starts with solves it" in trouble(named(b"two", b"two"))
    assert "what it starts with solves it" in trouble(
        named(b"two", b"", "file_contains", expected=rule(expected=["two"]))
    )
    both = {"func": ["compare_text_file"] * 2, "result": [of_file("a.txt")] * 2}
    golds = [{"type": "cloud_file", "path": data_url(gold), "dest": "g.txt"} for gold in (b"one", b"two")]
    assert not trouble(named(b"one", b"", expected=golds, **both))
    assert "what it starts with solves it" in trouble(named(b"one", b"", expected=golds, conj="or", **both))


@pytest.mark.parametrize("command", ["cp /home/user/gold /home/user/a.txt", "bash setup.sh", "unzip -o all.zip"])
def test_what_a_command_may_have_made_is_not_judged(command: str) -> None:
    task = named(b"two", b"two")
    assert not trouble({**task, "config": [*task["config"], ran(command, shell=True)]})
    keys = ["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's');"]
    assert trouble({**task, "config": [*task["config"], ran(keys)]})


def test_an_expectation_that_does_not_pass_itself_is_refused() -> None:
    gold = {"answer_position": "'Sheet1'!A1"}
    for start in (b"one", make_xlsx({"Sheet1": [["one"]]})):
        assert "what it expects does not pass itself" in trouble(
            named(start, b"no workbook", "compare_spreadsheet", options=gold)
        )


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_what_is_expected_passes_where_its_metric_says_so(twin: Twin) -> None:
    expected, metric = twin.expected, METRICS[twin.name]
    if not isinstance(expected, FileView):
        return
    gold = replace(expected, of_task=True)
    assert scored(metric, gold, gold, twin.options).solved or metric.differs(twin.options)


@pytest.fixture(scope="module")
def published() -> list[tuple[Task, dict[tuple[str, str], bytes]]]:
    if not OSWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    files = [*sorted(OFFICEWORLD.glob("*/*.json")), *sorted(OSWORLD.glob("*/*.json"))]
    tasks = [osworld.load(file.read_bytes()) for file in files]
    return [(task, standins(task)) for task in tasks]


def of(fixtures: dict[tuple[str, str], bytes]) -> Callable[[str, str], bytes]:
    return lambda url, name: fixtures[url, name] if not url.startswith("data:") else carried(url)


@pytest.mark.slow
def test_published_files_are_sound_and_a_start_that_is_what_is_expected_is_not(
    published: list[tuple[Task, dict[tuple[str, str], bytes]]],
) -> None:
    refused = {True: 0, False: 0}
    for task, fixtures in published:
        if covered(task, lambda *_: True, lambda _: True, published=True).verdict != "runnable":
            continue
        assert not unsound(task, of(fixtures)), task.id
        starts = {(url, name) for _, url, name in downloads(task.config)}
        golds = [data for one, data in fixtures.items() if one not in starts]
        if len(golds) == 1 and len(starts) == 1:
            refused["solves it" in unsound(task, of(dict.fromkeys(fixtures, golds[0])))] += 1
    assert refused[True] >= 50
    office = [task for task, _ in published if task.id.startswith("ow-")]
    assert len(office) == 60


def test_check_eval_and_run_go_by_the_guard(
    tmp_path: Path, own_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasksets.set_of.cache_clear()
    place = tmp_path / "mine"
    place.mkdir()
    for name, start in (("good", b"one"), ("bad", b"two")):
        (place / f"{name}.json").write_bytes(osworld.dump(loaded(id=name, **named(start, b"two"))))
    assert cli.main(["tasks", "check", str(place), "--static"]) == 1
    said = capsys.readouterr().out
    assert "unsound" in said
    assert "what it starts with solves it" in said
    (good,) = tasksets.chosen(TaskRange(set=str(place)))
    assert good.endswith("/good")
    with pytest.raises(ConfigError, match="what it starts with solves it"):
        lanes_of(TasksConfig(eval=[good.replace("good", "bad")]))
    assert lanes_of(TasksConfig(eval=[TaskRange(set=str(place))])).eval == [good]
