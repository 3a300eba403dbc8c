"""A new application is a package with an entry point, and a folder in the guest where it has functions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.apis.test_entries import installed

ROOT = Path(__file__).resolve().parents[2]
FOLDER = {
    "__init__.py": "",
    "app.py": """
from apis.applications import App

APP = App("paint", ("paint-window",), "paint", ("paint",), opens=("png",), late=True, program="paint", packages="p.txt")
""",
    "functions.py": """
from apis.functions.declaration import Function, Param, Tool

FUNCTIONS = (
    Function("PaintTools", "fill", Tool, (Param("size", "integer", "int", (0, 9)),), "Fill the picture."),
)
""",
    "ranking.py": """
def ranked(elements):
    return sorted(elements, key=lambda element: element.tag != "canvas")
""",
    "cases.yaml": """
app: paint
owner: PaintTools
cases:
  - {function: fill, right: {size: 1}}
""",
}
LOOK = """
import json, sys
sys.path.append(sys.argv[1])
from apis.actions.grammar import parse
from apis.actions.gui import Exit, OpenApp
from apis.applications import APP_NAMES, app_named, app_of_class
from apis.catalogue import TOOLS, app_of
from apis.apps.check.case import tables
from apis.observation import Element, Observation, Window
from apis.plans.action import plan
from apis.plans.setup import setup
from apis.prompts.compact import element_names
from apis.prompts.published import render_published
from apis.prompts.system import compact_system
from apis.tasks.osworld import HOME, Evaluator, Open, Task

rows = tuple(Element(tag, "x", "", 0, 0, 9, 9, ("sen",)) for tag in ("menu", "canvas"))
seen = Observation((Window(1, "Paint-Window", "a.png", True),), rows)
opened = Open(HOME + "/a.png")
task = Task(id="t", snapshot="paint", instruction="i", source="s", config=[opened], trajectory="", related_apps=[],
            evaluator=Evaluator(func="exact"))
print(json.dumps({
    "last": APP_NAMES[-1],
    "class": app_of_class("Paint-Window"),
    "app": seen.app,
    "owner": app_of("PaintTools.fill"),
    "compact": compact_system("paint"),
    "published": render_published("Go", "paint", [], seen, None)[0]["content"],
    "action": str(parse("PaintTools.fill(size=3)", "paint")),
    "refusal": parse("PaintTools.fill(size='much')", "paint").reason,
    "elsewhere": parse("PaintTools.fill(size=3)", "vlc").reason,
    "first": element_names(seen)["e1"].tag,
    "cases": [case.function for case in tables()["paint"].cases],
    "opens": setup(task, "/home/u")[0].args["argv"],
    "kept": [call.method for call in plan(Exit(success=True), seen).calls],
    "needs": [app_named("paint").program, app_named("paint").packages],
    "others": [name in APP_NAMES and name in TOOLS for name in ("libreoffice_calc", "vlc")],
}))
"""
IN_GUEST = """
import sys
sys.path.insert(0, sys.argv[1])
import guest.tools as tools
print(tools.BY_OWNER["PaintTools"].module, tools.usable("paint-window"), tools.Tools().call("PaintTools", "fill", {}))
"""


def run(program: str, *words: str) -> str:
    command = [sys.executable, "-P", "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_new_application_is_one_package(tmp_path: Path) -> None:
    place = tmp_path / "paint"
    installed(tmp_path, "paint", "[computerrl.applications]\npaint = paint\n")
    place.mkdir()
    for name, text in FOLDER.items():
        (place / name).write_text(text)
    found: dict[str, Any] = json.loads(run(LOOK, str(tmp_path)))
    assert found["last"] == found["class"] == found["app"] == found["owner"] == "paint"
    for prompt in (found["compact"], found["published"]):
        assert "class PaintTools:" in prompt
        assert "Fill the picture." in prompt
    assert "PaintTools" in found["action"]
    assert "size" in found["refusal"]
    assert "PaintTools" in found["elsewhere"]
    assert found["first"] == "canvas"
    assert found["cases"] == ["fill"]
    assert found["opens"] == ["paint", "/home/u/a.png"]
    assert found["kept"] == ["keep"]
    assert found["needs"] == ["paint", "p.txt"]
    assert found["others"] == [True, True]


def test_its_functions_are_one_folder_of_the_guest(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "apis" / "guest", tmp_path / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    place = tmp_path / "guest" / "paint"
    place.mkdir()
    (place / "__init__.py").touch()
    (place / "application.py").write_text(
        "from guest.tools import Application\n\n"
        "APPLICATION = Application('PaintTools', 'Paint', ('paint-window',), ('paint',), slow=True)\n"
    )
    (place / "functions.py").write_text("def call(name, arguments):\n    return 'filled'\n\n\nready = bool\n")
    assert run(IN_GUEST, str(tmp_path)) == "guest.paint.functions False filled"
