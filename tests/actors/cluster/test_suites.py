from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from actors.cluster.config import suites
from actors.cluster.config.lanes import lanes_of
from actors.replay.config import TaskRange, TasksConfig
from apis.tasks import registry as tasks
from runtime.errors import ConfigError


def test_the_bundled_suites_hold_every_family_one_of_them_those_that_set_up_suffices_for() -> None:
    suite, code = suites.load("desktop"), suites.load("code")
    assert {split: numbers.count for split, numbers in suite.splits.items()} == suites.INSTANCES
    assert suites.load("text_editor").splits == suite.splits, "a family alone holds as many"
    assert code.splits == suite.splits
    assert sorted((*suite.families, *code.families)) == sorted(tasks.FAMILIES)
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
    with pytest.raises(ConfigError, match="numbers train from 0 to 9: 8 to 10 is not within"):
        suite.ids("file_manager", "train", 8, 3)
    with pytest.raises(ConfigError, match="has no split held-out"):
        suite.ids("file_manager", "held-out", 0, 1)
    with pytest.raises(ConfigError, match="has no never-trained families"):
        suite.spread(TaskRange(suite="x", split="train", count=1, untrained=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trained: [all]\nsplit: {}\n", "unknown key split; did you mean splits?"),
        ("trained: [all]\nsplits:\n  train: {cuont: 3}\n", "unknown key splits.train.cuont; did you mean"),
        ("trained: [all]\nsplits:\n  trian: {count: 3}\n", "splits.trian: no such split; did you mean train?"),
        ("trained: [all]\nsplits:\n  train: {count: 0}\n", "splits.train: it begins at 0 or later"),
        ("trained: [all]\nsplits:\n  train: {count: 9, first: 999992}\n", "splits.train.count: a family has 1000000"),
        ("trained: [text_editr]\nsplits: {}\n", "trained.0: there is no family text_editr; did you mean text_editor?"),
        ("untrained: [text_editor]\nsplits: {}\n", "untrained.0: text_editor is trained on: list it below trained"),
        ("splits: {}\n", "it names no families"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        suites.load(written(tmp_path, text))
    assert said in str(caught.value)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


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
