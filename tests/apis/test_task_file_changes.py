"""What an episode on a task file may change in HOME, and what of it counts against whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apis.tasks import osworld, programs, registry
from apis.tasks.family import reader
from apis.tasks.osworld import HOME, Task, dump
from apis.tasks.verify.allowed import collateral
from apis.tasks.verify.manifest import Entry, Manifest
from apis.tasks.verify.verify import FileView
from apis.tasksets import changes, store
from apis.tasksets.steps import carried
from tests.apis.task_files import Part, bring, loaded, of_command, of_file, rule

STAYS = {
    ".bashrc": Entry("file", 90, 0o644, "b"), ".config": Entry("folder", 0, 0o755),
    "Pictures": Entry("folder", 0, 0o755), ".config/a.conf": Entry("file", 90, 0o644, "c"),
}  # fmt: skip


def task(instruction: str, brought: tuple[str, ...] = (), **evaluator: Any) -> Task:
    config = [bring({f"{HOME}/{path}": b"x" for path in brought})] if brought else []
    return loaded(instruction=instruction, config=config, evaluator=evaluator)


def says(command: str) -> Part:
    return {"func": "check_include_exclude", "result": of_command(command), "expected": rule(include=["x"])}


def trouble(of: Task, before: dict[str, int], after: dict[str, int], mode: int = 0o644) -> str:
    """What is said of an end that has files of these sizes (above 0: other contents) in place of those."""
    was, became = (
        {path: Entry("file", size, mode if which else 0o644, f"m{size}") for path, size in files.items()}
        for which, files in enumerate((before, after))
    )
    folders = {path.rpartition("/")[0]: Entry("folder", 0, 0o755) for path in (*before, *after) if "/" in path}
    rules = changes.rules(of, carried)
    return collateral(Manifest(STAYS | folders | was), Manifest(STAYS | folders | became), rules, programs.RULES)


COPIED = task("Copy garden.txt as new.log in Documents", ("Documents/garden.txt", "Documents/keep.txt"),
              func="file_contains", result=of_file("Documents/new.log"), expected=rule(expected=["x"]))  # fmt: skip
LISTED = task("Rename pea.md to roplet.log", ("Documents/pea.md", "Documents/keep.md"),
              **says("ls -A /home/user/Documents"))  # fmt: skip
START = {"Documents/garden.txt": 5, "Documents/keep.txt": 5}
LIST = {"Documents/pea.md": 5, "Documents/keep.md": 5}


def test_the_result_of_a_task_may_come_and_change_and_what_it_does_not_name_may_not() -> None:
    assert trouble(COPIED, START, START | {"Documents/new.log": 5}) == ""
    for wrong in (
        {"Documents/garden.txt": 0}, {"Documents/garden.txt": 9}, {"Documents/keep.txt": 0}, {"Documents/other.txt": 5},
        {"Pictures/a.png": 5}, {".profile": 5},
    ):  # fmt: skip
        assert trouble(COPIED, START, START | {"Documents/new.log": 5} | wrong), wrong
    assert trouble(COPIED, START, {"Documents/garden.txt": 5, "Documents/new.log": 5}), "keep.txt was removed"
    assert trouble(COPIED, START, START | {"Documents/new.log": 5}, 0o666)
    assert trouble(COPIED, {}, {"Documents/new.log": 5}, 0o4755)


def test_what_lies_in_a_folder_that_a_command_looks_at_may_change_but_for_what_set_up_has_put_there() -> None:
    assert trouble(LISTED, LIST, {"Documents/roplet.log": 5, "Documents/keep.md": 5}) == ""
    for wrong in ({"Documents/keep.md": 0}, {"Documents/keep.md": 9}, {"Desktop/x": 5}, {".bash_profile": 5}):
        assert trouble(LISTED, LIST, LIST | {"Documents/roplet.log": 5} | wrong), wrong
    assert trouble(LISTED, LIST, {"Documents/roplet.log": 5}), "keep.md was removed"


def test_an_author_says_what_else_may_change() -> None:
    plain = task("Count the words", ("words.txt",), **says("which wc"))
    allowed = osworld.load(dump(plain).replace(b'"id"', b'"changes": ["notes/**"], "id"', 1))
    start = {"words.txt": 5, "notes/a": 5}
    assert trouble(plain, start, start | {"notes/a": 7})
    assert trouble(allowed, start, start | {"notes/a": 7, "notes/b": 1}) == ""
    assert trouble(allowed, start, start | {"words.txt": 7})
    assert b"changes" not in dump(plain)


def test_a_script_that_judges_says_what_it_is_about() -> None:
    steps = [bring({"eval.sh": b"test -x ~/tools/run.sh && cat project/out.txt"})]
    of = task("Make it executable", **says("bash eval.sh"), postconfig=steps)
    assert trouble(of, {"tools/run.sh": 5}, {"tools/run.sh": 5}, 0o755) == ""
    assert trouble(of, {}, {"project/out.txt": 5}) == ""
    assert trouble(of, {}, {"elsewhere/out.txt": 5})


@pytest.mark.parametrize(
    "command", ["bash check.sh", "./check.sh", "cd ~ && python3 -u ~/check.sh x", "source check.sh"]
)
def test_a_script_that_set_up_brings_to_judge_by_is_not_the_policys_to_change(command: str) -> None:
    of = task("Copy garden.txt as new.log", ("check.sh",), **says(command))
    assert trouble(of, {"check.sh": 5}, {"check.sh": 5}) == ""
    assert trouble(of, {"check.sh": 5}, {"check.sh": 9})
    for instruction in ("Mend check.sh", "The script on the desktop has a fault"):
        asked = task(instruction, ("check.sh",), **says("bash check.sh"))
        assert trouble(asked, {"check.sh": 5}, {"check.sh": 9}) == ""


@pytest.mark.parametrize(
    ("name", "strict", "success"), [("osworld", False, True), ("osworld", True, False), ("mine", False, False)]
)
def test_collateral_is_said_beside_a_published_score_and_counts_elsewhere(
    name: str, strict: bool, success: bool, tmp_path: Path, own_store: Path
) -> None:
    (tmp_path / "os").mkdir()
    path = tmp_path / "os" / "t.json"
    path.write_bytes(dump(COPIED))
    task_id = store.ids(store.adopt(name, [path], pinned=name == "osworld"))[0]
    files = {"Documents/new.log": FileView("file", b"x")}
    before = Manifest(STAYS | {"Documents": Entry("folder", 0, 0o755)})
    made = {"Documents/new.log": Entry("file", 1, 0o644, "m")}
    right = registry.judged(registry.task(task_id), reader(files), before, Manifest(before.entries | made))
    assert (right.success, "beside" in right.reason) == (True, False)
    less = {path: entry for path, entry in before.entries.items() if path != ".bashrc"}
    found = registry.judged(registry.task(task_id), reader(files), before, Manifest(less | made), strict=strict)
    assert found.success is success
    assert "beside what was asked: .bashrc was removed" in found.reason
