"""Task sets beside families: how they are named, chosen and kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.cluster import cli
from actors.cluster.config import tasksets
from actors.cluster.config.lanes import lanes_of
from actors.replay.config import TaskRange, TasksConfig
from apis.tasks import registry as tasks
from apis.tasksets import store
from apis.tasksets.getters import WantedFixture
from runtime.errors import ConfigError


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.PLACE, str(tmp_path / "store"))
    tasksets.set_of.cache_clear()


def folder(place: Path, *names: str, **changes: Any) -> str:
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        bare = {"id": name, "instruction": f"Do {name}", "evaluator": {"func": "infeasible"}}
        (place / f"{name}.json").write_text(json.dumps(bare | changes))
    return str(place)


def test_a_folder_is_a_set_whose_ids_mean_what_its_files_say(tmp_path: Path) -> None:
    mine = folder(tmp_path / "mine", "a", "b")
    lacking = {"func": "no_metric", "result": {"type": "vm_file", "path": "x"}}
    folder(tmp_path / "mine", "c", evaluator=lacking)
    ids = tasksets.chosen(TaskRange(set=mine))
    name = ids[0].partition("/")[0]
    assert ids == [f"{name}/mine/a", f"{name}/mine/b"]
    assert [one.verdict for one in tasksets.verdicts(mine)] == ["runnable", "runnable", "unsupported"]
    assert tasksets.chosen(TaskRange(set=name, count=1, first=1)) == [f"{name}/mine/b"]
    assert tasks.task(ids[0]).instruction == "Do a"
    assert tasks.digest(ids) != tasks.digest(ids[:1])
    with pytest.raises(ConfigError, match="has 2 tasks that can be played here, not 3"):
        tasksets.chosen(TaskRange(set=mine, count=3))


def test_lanes_take_sets_and_refuse_leaks(tmp_path: Path) -> None:
    mine, other = folder(tmp_path / "mine", "a", "b"), folder(tmp_path / "other", "c")
    lanes = lanes_of(TasksConfig(train=[TaskRange(set=mine)], eval=[TaskRange(set=other)]))
    assert [task_id.rpartition("/")[2] for task_id in (*lanes.train, *lanes.eval)] == ["a", "b", "c"]
    for name, changes, kind in (
        ("id", {"instruction": "else"}, "id"),
        ("words", {"id": "z", "instruction": " do  A "}, "instruction"),
    ):
        leaked = folder(tmp_path / name, "a", **changes)
        with pytest.raises(ConfigError, match=rf"tasks\.train: .* has the {kind} of "):
            lanes_of(TasksConfig(train=[TaskRange(set=mine)], eval=[TaskRange(set=leaked)]))
    with pytest.raises(ConfigError, match=r"tasks\.demo: .*no oracle"):
        lanes_of(TasksConfig(demo=[TaskRange(set=mine)]))


def test_a_shared_fixture_is_a_leak(tmp_path: Path) -> None:
    def got(url: str) -> dict[str, Any]:
        files = {"files": [{"url": url, "path": "/home/user/a"}]}
        return {"config": [{"type": "download", "parameters": files}]}

    store.keep(WantedFixture("a", "https://x.org/1", "a"), b"same")
    store.keep(WantedFixture("b", "https://x.org/2", "a"), b"same")
    one, two = (
        folder(tmp_path / "one", "a", **got("https://x.org/1")),
        folder(tmp_path / "two", "b", **got("https://x.org/2")),
    )
    with pytest.raises(ConfigError, match="has the fixture of"):
        lanes_of(TasksConfig(train=[TaskRange(set=one)], eval=[TaskRange(set=two)]))


def test_a_range_names_a_set_or_the_rest_in_full() -> None:
    for wrong in ({"set": "a", "split": "train"}, {"set": "a", "suite": "b"}, {"family": "f"}):
        with pytest.raises(ConfigError, match=r"tasks[.:]"):
            TaskRange(**wrong)


def test_commands_take_a_set_by_name_and_a_task_by_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = tasksets.set_of(folder(tmp_path / "mine", "a", colour=1))
    assert cli.main(["tasks", "show", f"{name}/mine/a"]) == 0
    shown = capsys.readouterr().out
    assert "verdict       runnable" in shown
    assert "note          colour is not known here" in shown
    assert cli.main(["tasks", "check", name, "--static", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "runnable"
    assert cli.main(["tasks", "show", f"{name}/mine/b"]) == 2
    assert f"task set {name} has no mine/b" in capsys.readouterr().err
