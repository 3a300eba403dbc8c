"""A new family is one module below `apis.tasks.families`: a temporary one is found, told, played and judged."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apis.actions.gui import Exit, Type
from apis.observation import Element, Observation, Window
from apis.plans.setup import setup
from apis.tasks import families
from apis.tasks import registry as tasks
from apis.tasks.verify.verify import FileView
from runtime.errors import ConfigError

MODULE = """
from apis.actions.gui import Exit, Type
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.view import Goal
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES = {"say": {TRAIN: ("Let {file} say yes",), HELD_OUT: ("Have yes in {file}",)}}


def goal(random, split):
    return Goal(
        "say", TEMPLATES["say"][split][0].format(file="a.txt"), "a.txt", "yes",
        files=(("a.txt", "no\\\\n"),), end=(("a.txt", "yes"),),
    )


def decide(view):
    field = view.field()
    if view.elements[field].text == "yes":
        return "done", Exit(success=True)
    return "write", Type(coordinates=field, text="yes", overwrite=True)


SAY_YES = of_files(
    "say_yes", ("text_editor",), TEMPLATES, goal, opened=lambda made: [f"{DOCUMENTS}/a.txt"], decide=decide
)

FAMILIES = (SAY_YES,)
""".replace("\\\\n", "\\n")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "say_yes.py").write_text(MODULE)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    monkeypatch.setattr(tasks, "FAMILIES", tasks.declared())
    yield "say_yes"
    tasks.task.cache_clear()
    tasks.task.cache_clear()
    sys.modules.pop("apis.tasks.families.say_yes", None)
    importlib.invalidate_caches()


def seen(text: str) -> Observation:
    field = Element("text", "", text, 10, 10, 80, 20, ("sen", "edt", "foc"))
    return Observation((Window(1, "mousepad", "a.txt - Mousepad", True),), (field,))


def test_a_new_family_is_one_module(found: str) -> None:
    assert list(tasks.FAMILIES)[-1] == found
    task_id = f"{found}/train/0"
    task = tasks.task(task_id)
    assert task.instruction == "Let a.txt say yes"
    assert [call.method for call in setup(task, "/home/u")] == ["write_file", "open_window", "settle", "settle"]
    oracle = tasks.oracle(task_id)
    assert oracle.move(seen("no"), [])[1] == Type(coordinates="e1", text="yes", overwrite=True)
    assert oracle.move(seen("yes"), [])[1] == Exit(success=True)
    assert tasks.solved(task_id) == {"Documents/a.txt": FileView("file", b"yes")}
    assert tasks.kind_of(task_id) == "say_yes/say"


def test_without_its_module_there_is_no_such_family() -> None:
    with pytest.raises(ConfigError, match="there is no family 'say_yes'"):
        tasks.task("say_yes/train/0")


def test_suites_share_out_instances_in_the_written_order() -> None:
    assert list(tasks.FAMILIES) == list(families.every())
