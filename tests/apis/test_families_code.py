"""VS Code's oracles on a stand-in for its window: they end only when all is saved, in few steps, and find back."""

from __future__ import annotations

from typing import Any

import pytest

from apis.actions.gui import Action, Click, Exit, Hotkey, Quote, SwitchWindow, Tool, Type, Wait, line
from apis.observation import Observation, from_guest
from apis.prompts.compact import element_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families import code_extension
from apis.tasks.families.code_extension import listed
from apis.tasks.view import Goal
from tests.apis.moves import families_on, moved, split_of

Shown = tuple[str, str, str, list[str]]  # tag, name, text, states beside "sen"


class Window:
    """Texts of Documents, extensions that are installed, and what is open; changes reach `files` when saved."""

    def __init__(self, files: dict[str, str], extensions: set[str] = frozenset(), note: str = "") -> None:  # type: ignore[assignment]
        self.files, self.texts = dict(files), dict(files)
        self.extensions = set(extensions)
        self.note, self.in_note = note, bool(note)
        self.active, self.inside = "", False
        self.line = self.character = 1
        self.selected = self.asks = self.lists = False
        self.menu: list[str] = []
        self.chosen = self.gone = ""

    def look(self) -> Observation:
        """What it shows."""
        windows = [{"id": 5, "class": "code", "title": "Documents - VS Code", "active": not self.in_note}]
        windows += [{"id": 6, "class": "Mousepad", "title": self.note, "active": self.in_note}] * bool(self.note)
        at = 1 if self.in_note else 0
        rows: list[Shown] = [("text", "", self.files[self.note], ["edt"])] if self.in_note else self._rows()
        elements: list[list[Any]] = [
            [tag, name, text, 5, 20 * n, 90, 18, ["sen", *states], at]
            for n, (tag, name, text, states) in enumerate(rows)
        ]
        return from_guest({"windows": windows, "elements": elements, "info": self._info()})

    def _info(self) -> str:
        dirty = ", not saved" * (self.texts != self.files)
        front = f"\n* ~/Documents/{self.active}, line {self.line}, character {self.character}{dirty}"
        return f"folders: 1\n- ~/Documents\nopen files: {bool(self.active):d}{front * bool(self.active)}"

    def _rows(self) -> list[Shown]:
        rows: list[Shown] = [("menu-item", name, "", []) for name in ("Application Menu", *self.menu)]
        rows.append(("page-tab", "Explorer (Ctrl+Shift+E)", "", ["sel"] * (not self.lists)))
        if self.lists:
            rows.append(("entry", "Search Extensions in Marketplace", "", ["edt"]))
            for each in sorted(self.extensions | {self.gone} - {""}):
                publisher, _, name = each.partition(".")
                rows.append(("list-item", f"{name}, 1.0.0, Publisher {publisher}, An extension", "", []))
            rows += [("push-button", "Uninstalled", "", [])] * bool(self.gone)
        else:
            rows += [("tree-item", name, "", []) for name in sorted(self.files)]
        if self.active:
            focus = ["foc"] * (self.inside and not self.asks)
            rows.append(("entry", f"{self.active}, preview", self.texts[self.active] + "\n", ["edt", *focus]))
        rows += [("entry", "Current Line: 1, Character: 1.", ":", ["edt"])] * self.asks
        return rows

    def do(self, action: Action) -> str:
        """Carry an action out; what it answers."""
        match action:
            case Click(coordinates=str(name)):
                element = element_names(self.look())[name]
                self._click(element.tag, element.name, action)
            case Hotkey(keys=names):
                self._keys("+".join(names))
            case Type():
                self._type(action)
            case Tool(arguments=arguments, name="goto_file"):
                self._open(str(arguments["file_path"]).rpartition("/")[2], int(str(arguments["line"])))
            case Tool(arguments=arguments, name=name):
                return self._extension(name, str(arguments["extension_id"]))
            case SwitchWindow():
                self.in_note = False
            case other:
                assert isinstance(other, Wait | Quote), other
        return ""

    def _click(self, tag: str, name: str, action: Click) -> None:
        if action.button_type == "right":
            self.chosen = name
            self.menu = ["Rename... F2", "Uninstall" if tag == "list-item" else "Install Extension VSIX"]
        elif tag == "menu-item":
            stem = self.chosen.partition(",")[0].removesuffix(".vsix")
            self.menu = []
            if name == "Uninstall":
                self.gone = next(each for each in self.extensions if each.endswith(f".{stem}"))
                self.extensions.discard(self.gone)
            else:
                self.extensions.add(f"{self.publishers[stem]}.{stem}")
        elif tag == "tree-item":
            self._open(name, 1)
            self.inside = action.num_clicks == 2
        else:
            assert tag == "entry"
            self.inside = True

    publishers: dict[str, str] = {}

    def _open(self, name: str, line: int) -> None:
        self.active, self.line, self.character, self.inside, self.selected = name, line, 1, True, False

    def _keys(self, names: str) -> None:
        lines = self.texts.get(self.active, "").split("\n")
        self.menu = []
        self.selected = names == "shift+end"
        if names == "ctrl+g":
            self.asks = True
        elif names == "ctrl+shift+x":
            self.lists = True
        elif names == "ctrl+s":
            self.files = dict(self.texts)
        elif names == "ctrl+end":
            assert self.inside
            self.line, self.character = len(lines), len(lines[-1]) + 1
        elif names == "shift+end":
            self.character = len(lines[self.line - 1]) + 1
        elif names == "ctrl+shift+k":
            del lines[self.line - 1]
            self.texts[self.active] = "\n".join(lines)
        else:
            assert names == "esc", names

    def _type(self, action: Type) -> None:
        if self.asks:
            assert action.enter
            self.asks, self.line, self.character, self.inside = False, int(action.text), 1, True
            return
        if action.overwrite:
            self.texts[self.active] = action.text
            return
        assert self.inside
        lines = self.texts[self.active].split("\n")
        kept = "" if self.selected else lines[self.line - 1]
        lines[self.line - 1] = kept[: self.character - 1] + action.text + kept[self.character - 1 :]
        self.texts[self.active] = "\n".join(lines)

    def _extension(self, name: str, wanted: str) -> str:
        if name == "uninstall_extension":
            self.extensions.discard(wanted)
            return f"{wanted} 1.0.0 is removed"
        stem = wanted.rpartition("/")[2].removesuffix(".vsix")
        self.extensions.add(f"{self.publishers[stem]}.{stem}")
        return f"{self.publishers[stem]}.{stem} 1.0.0 is installed"


def window_of(goal: Goal) -> Window:
    """VS Code as a task of this goal begins."""
    there = goal.words[len(goal.files) :] if goal.family == "code_extension" else ()
    made = Window(dict(goal.files), set(there), goal.words[0] if goal.family == "code_from_note" else "")
    made.publishers = {name: publisher for publisher, _, name in (each.partition(".") for each in goal.words)}
    return made


ROUTES = [(name, route) for name in families_on("code") for route in sorted(tasks.FAMILIES[name].routes)]
MOST_STEPS = 8


def played(task_id: str, route: str, seed: int, window: Window, noise: float = 0.0) -> list[Action]:
    """What the oracle does from what `window` shows to its end, which must come within an episode's answers."""
    oracle, history, did = tasks.oracle(task_id, seed, noise, route), list[Turn](), list[Action]()
    while not did or not isinstance(did[-1], Exit):
        assert len(did) < 12, did
        thought, action = oracle.move(window.look(), history)
        did.append(action)
        if not isinstance(action, Exit):
            history.append(Turn(thought, line(action), window.do(action)))
    return did


@pytest.mark.parametrize(("family", "route"), ROUTES)
def test_what_an_oracle_leaves_is_what_was_asked_for(family: str, route: str) -> None:
    for seed in range(60):
        task_id = f"{family}/{split_of(family)}/{seed}"
        goal, window = tasks.goal(task_id), window_of(tasks.goal(task_id))
        steps = played(task_id, route, seed, window)
        assert len(steps) <= MOST_STEPS, steps
        if family == "code_extension":
            assert sorted(window.extensions) == listed(goal)
        else:
            assert {name: text.rstrip("\n") for name, text in window.files.items()} == {
                name: (text or "").rstrip("\n") for name, text in goal.end
            }
        assert route != "gui" or not any(isinstance(step, Tool) for step in steps)


@pytest.mark.parametrize("route", ["gui", "api", "mixed"])
def test_an_answer_about_another_extension_does_not_end_the_task(route: str) -> None:
    for seed in range(20):
        task_id = f"code_extension/train/{seed}"
        goal, name = tasks.goal(task_id), f"{tasks.goal(task_id).kind}_extension"
        asked = code_extension.wish(goal)
        history = [
            Turn("", line(Tool(owner="CodeTools", name=name, arguments={"extension_id": "fox"})), result)
            for result in ("Failed: extension_id: fox is not installed; there are: a.b", "a.fox 1.0.0 is installed")
        ]
        look = window_of(goal).look()
        assert not isinstance(moved(task_id, look, history, route), Exit)
        done = Turn("", line(asked), f"{goal.wanted} 1.0.0 {code_extension.DONE[goal.kind][0]}")
        assert moved(task_id, look, [*history, done], route) == Exit(success=True)
