"""Tasks: OSWorld's form, generated families, their split, their verifiers."""

import dataclasses
from functools import cache
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.plans.setup import setup
from apis.tasks import osworld
from apis.tasks import registry as tasks
from apis.tasks.families.pictures import PictureGoal, picture
from apis.tasks.family import Family, at_start, reader
from apis.tasks.osworld import data_of, data_url, in_home
from apis.tasks.verify.verify import CHECKS, FileView, TaskVerdict, verify
from apis.tasks.words import HELD_OUT, SPLITS, TRAIN, split_of
from runtime.errors import ConfigError
from tests.proofs import proofs

FAMILIES = sorted(tasks.FAMILIES)


def splits(family: str) -> tuple[str, ...]:
    return SPLITS if tasks.FAMILIES[family].trained else (HELD_OUT,)


PARTS = st.sampled_from([f"{family}/{split}" for family in FAMILIES for split in splits(family)])
IDS = st.builds("{}/{}".format, PARTS, st.integers(0, 10**6))


@given(IDS)
def test_an_id_always_means_the_same_task(task_id: str) -> None:
    family = tasks.family(task_id)
    task = tasks.task(task_id)
    assert family.task(task_id) == task == osworld.load(osworld.dump(task))
    assert task.feasible
    assert setup(task, "/home/agent")


@pytest.mark.parametrize(
    "task_id",
    ["text_editor", "text_editor/train", "x/train/1", "text_editor/test/1", "text_editor/train/-1", "a/b/c/d"],
)
def test_an_unknown_id_is_an_error(task_id: str) -> None:
    with pytest.raises(ConfigError, match=r"FAMILY/SPLIT/NUMBER|there is no family"):
        tasks.task(task_id)


def test_a_family_that_is_never_trained_on_has_no_training_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    untrained = dataclasses.replace(tasks.FAMILIES["text_editor"], templates={})
    monkeypatch.setitem(tasks.FAMILIES, "text_editor", untrained)
    with pytest.raises(ConfigError, match="never trained on"):
        tasks.family("text_editor/train/1")
    assert tasks.family("text_editor/held-out/1") is untrained


def wordings(family: Family, split: str) -> set[str]:
    return {text for by_split in family.templates.values() for text in by_split[split]}


def test_held_out_wordings_are_no_training_wordings_of_any_family() -> None:
    trained = set().union(*(wordings(family, TRAIN) for family in tasks.FAMILIES.values() if family.trained))
    held_out = set().union(*(wordings(family, HELD_OUT) for family in tasks.FAMILIES.values()))
    assert trained.isdisjoint(held_out)


@cache
def made_of(name: str, split: str, count: int) -> tuple[set[str], set[str]]:
    """The instructions, or the pictures that they are about, and the values of `count` instances."""
    goals = [tasks.goal(f"{name}/{split}/{seed}") for seed in range(count if split in splits(name) else 0)]
    told = {picture(goal) if isinstance(goal, PictureGoal) else goal.instruction for goal in goals}
    return told, set().union(*map(tasks.FAMILIES[name].values, goals))


@pytest.mark.parametrize(("count", "distinct"), [(200, 130), *proofs((1500, 1000))])
@pytest.mark.parametrize("name", FAMILIES)
def test_instances_of_a_split_are_many_and_of_its_own_words(name: str, count: int, distinct: int) -> None:
    for split in splits(name):
        instructions, values = made_of(name, split, count)
        assert len(instructions) > distinct
        assert all(split_of(value) == split for value in values if value.isalpha())


@pytest.mark.parametrize("count", [200, *proofs(1500)])
def test_held_out_instances_share_nothing_with_training_ones_of_any_family(count: int) -> None:
    for part in range(2):
        trained = set().union(*(made_of(name, TRAIN, count)[part] for name in FAMILIES))
        held_out = set().union(*(made_of(name, HELD_OUT, count)[part] for name in FAMILIES))
        assert trained.isdisjoint(held_out)


@given(IDS, st.randoms())
def test_the_verifier_accepts_the_solution_and_nothing_less(task_id: str, random: Random) -> None:
    task, files = tasks.task(task_id), dict(tasks.solved(task_id))
    verdict = verify(task, reader(files))
    assert verdict.success, verdict.reason
    assert not verify(task, reader(at_start(task))).success
    path = random.choice(sorted(files))
    for other in (FileView("missing"), FileView("file", b"other"), FileView("refused", reason="link")):
        broken = {p: view for p, view in files.items() if p != path and not p.startswith(path + "/")}
        assert not verify(task, reader(broken | {path: other})).success, path


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if "folder_holds" in tasks.task(f"{name}/held-out/1").evaluator.func]
)
def test_a_file_too_many_is_a_failure(name: str) -> None:
    for seed in range(30):
        task_id = f"{name}/held-out/{seed}"
        extra = {**tasks.solved(task_id), "Documents/.extra": FileView("file", b"")}
        verdict = verify(tasks.task(task_id), reader(extra))
        assert verdict == TaskVerdict(False, "Documents: it should not hold '.extra'")


def test_another_verifier_makes_another_set_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"{name}/held-out/{seed}" for name in FAMILIES for seed in (0, 1)]
    before = tasks.digest(ids)
    tasks.task.cache_clear()
    assert tasks.digest([*reversed(ids), ids[0]]) == before, "made anew they are the same, in whatever order"
    assert tasks.digest(ids[1:]) != before
    of = tasks.FAMILIES["file_manager"]
    changed = dataclasses.replace(of, evaluator=lambda _: osworld.Evaluator(func="file_contains"))
    monkeypatch.setitem(tasks.FAMILIES, "file_manager", changed)
    tasks.task.cache_clear()
    assert tasks.digest(ids) != before
    tasks.task.cache_clear()


def test_a_folder_holds_files_and_folders_apart() -> None:
    check = CHECKS["folder_holds"]
    assert check(FileView("folder", names=("a", "b/")), {"expected": ["a", "b/"]}, {}).success
    assert check(FileView("folder", names=("a", "b")), {"expected": ["a", "b/"]}, {}).reason == (
        "it lacks 'b/' and should not hold 'b'"
    )
    assert not check(FileView("missing"), {"expected": []}, {}).success


DOCUMENTS = {
    "workbook_is": [{"name": "x", "cells": {"A1": "x"}}],
    "paper_is": [{"text": "x"}],
    "deck_is": [{"boxes": [["title", "x"]]}],
}


@pytest.mark.parametrize("func", sorted(CHECKS))
def test_a_file_that_was_not_read_is_never_a_success(func: str) -> None:
    inside = b'{"roots":{"bookmark_bar":{"name":"\xff'
    for view in (FileView("refused", reason="link"), FileView("file", b"\xff\xfe"), FileView("file", inside)):
        assert not CHECKS[func](view, {"expected": DOCUMENTS.get(func, ["x"])}, {}).success


def test_lists_are_joined_as_osworld_does() -> None:
    task = tasks.task("file_manager/train/1")
    one = msgspec.structs.replace(task.evaluator, conj="or")
    some = msgspec.structs.replace(task, evaluator=one)
    path = next(path for path, view in tasks.solved(task.id).items() if view.kind == "file")
    left = reader({path: tasks.solved(task.id)[path]})
    assert verify(some, left).success
    assert not verify(task, left).success


def test_a_task_that_cannot_be_judged_or_prepared_is_at_fault() -> None:
    task = tasks.task("text_editor/train/1")
    strange = msgspec.structs.replace(task, evaluator=osworld.Evaluator(func="is_utc_0"))
    with pytest.raises(ConfigError, match="is_utc_0"):
        verify(strange, lambda _: FileView("missing"))
    step = osworld.UnknownStep("reboot")
    with pytest.raises(ConfigError, match="step reboot"):
        setup(msgspec.structs.replace(task, config=[step]), "/home/agent")
    remote = osworld.Download([osworld.Source("https://example.org/a", "/home/user/a")])
    with pytest.raises(ConfigError, match="fixture https"):
        setup(msgspec.structs.replace(task, config=[remote]), "/home/agent")


def test_paths_and_urls() -> None:
    assert in_home("/home/user/Documents/a.txt") == "Documents/a.txt"
    assert in_home("/home/user") == ""
    for outside in ("/etc/passwd", "/home/username/a"):
        with pytest.raises(ValueError, match="not below"):
            in_home(outside)
    assert data_of("data:text/plain;base64,aGk=") == b"hi"
    assert data_of("data:,a%20b") == b"a b"
    assert data_url(b"hi") == "data:text/plain;base64,aGk="
    assert data_of(data_url(b"\xff\0", "audio/wav")) == b"\xff\0"
