"""Suites and task sets: how they are named, chosen and kept apart."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from actors.cluster import cli
from actors.cluster.config import suites, tasksets
from actors.cluster.config.lanes import lanes_of
from actors.replay.config import TaskRange, TasksConfig
from apis.tasks import registry as tasks
from apis.tasksets import store
from apis.tasksets.getters import WantedFixture
from runtime.errors import ConfigError


def test_the_bundled_suites_hold_every_family_one_of_them_those_that_set_up_suffices_for() -> None:
    suite, code, eyes = suites.load("desktop"), suites.load("code"), suites.load("pictures")
    assert {split: numbers.count for split, numbers in suite.splits.items()} == suites.INSTANCES
    assert suites.load("text_editor").splits == suite.splits, "a family alone holds as many"
    assert code.splits == suite.splits
    assert sorted((*suite.families, *code.families, *eyes.families)) == sorted(tasks.FAMILIES)
    assert set(code.families) == {name for name, family in tasks.FAMILIES.items() if "code" in family.apps}
    assert not any(tasks.FAMILIES[family].trained for family in (*suite.untrained, *code.untrained))


def test_a_range_is_spread_evenly_and_every_task_exists() -> None:
    suite = suites.load("desktop")
    ids = suite.spread(TaskRange(suite="desktop", split="train", count=3 * len(suite.trained) + 1, first=10))
    shares = Counter(tasks.family(task_id).name for task_id in ids)
    assert len(set(ids)) == len(ids) == 3 * len(suite.trained) + 1
    assert set(shares) == set(suite.trained)
    assert max(shares.values()) - min(shares.values()) <= 1
    assert {task_id.split("/")[2] for task_id in ids[: len(suite.trained)]} == {"10"}


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_may_choose_families_and_shift_numbers(tmp_path: Path) -> None:
    text = "trained: [file_manager]\nsplits:\n  train: {first: 500, count: 10}\n"
    suite = suites.load(written(tmp_path, text))
    assert suite.families == ("file_manager",)
    assert suite.ids("file_manager", "train", 8, 2) == ["file_manager/train/508", "file_manager/train/509"]
    with pytest.raises(ConfigError, match="numbers train from 0 to 9 in each family: 8 to 10 is not within"):
        suite.ids("file_manager", "train", 8, 3)
    with pytest.raises(ConfigError, match="has no split held-out"):
        suite.ids("file_manager", "held-out", 0, 1)
    with pytest.raises(ConfigError, match="has no never-trained families"):
        suite.spread(TaskRange(suite="x", split="train", count=1, untrained=True))


def test_what_is_held_out_or_never_trained_on_is_kept_out_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    apart = dataclasses.replace(tasks.FAMILIES["file_manager"], name="apart", templates={})
    monkeypatch.setitem(tasks.FAMILIES, "apart", apart)
    with pytest.raises(ConfigError, match=r"tasks.demo: .*held out"):
        lanes_of(TasksConfig(demo=["text_editor/held-out/1"]))
    with pytest.raises(ConfigError, match=r"tasks.train: .*never trained on"):
        lanes_of(TasksConfig(train=["apart/held-out/1"]))
    held_out = TaskRange(suite="desktop", split="held-out", untrained=True, count=99)
    assert "apart/held-out/0" in lanes_of(TasksConfig(eval=[held_out])).eval


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

    def got(url: str) -> dict[str, Any]:
        files = {"files": [{"url": url, "path": "/home/user/a"}]}
        return {"config": [{"type": "download", "parameters": files}]}

    store.keep(WantedFixture("a", "https://x.org/1", "a"), b"same")
    store.keep(WantedFixture("b", "https://x.org/2", "a"), b"same")
    one, two = (
        folder(tmp_path / "one", "a", **got("https://x.org/1")),
        folder(tmp_path / "two", "b", **got("https://x.org/2")),
    )
    with pytest.raises(ConfigError, match="has the fixture of"):  # a shared one is a leak, too
        lanes_of(TasksConfig(train=[TaskRange(set=one)], eval=[TaskRange(set=two)]))


def test_a_range_names_a_set_or_the_rest_in_full() -> None:
    for wrong in ({"set": "a", "split": "train"}, {"set": "a", "suite": "b"}, {"family": "f"}):
        with pytest.raises(ValueError, match=r"range|split"):
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
