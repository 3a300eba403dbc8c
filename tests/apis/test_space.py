"""Action spaces without a desktop: what belongs to which, in prompts, refusals and oracles alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Action, functions_for
from apis.actions.spaces import MOUSE_AND_KEYBOARD, SPACES, ActionSpace, allows, routes_in
from apis.applications import APP_NAMES
from apis.catalogue import TOOLS
from apis.observation import Observation, from_guest
from apis.prompts.compact import element_names, render_compact, window_names
from apis.prompts.published import render_published
from apis.prompts.system import compact_system
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families.calc_tables import WorkbookGoal
from apis.tasks.oracle import NOT_HERE
from apis.tasks.words import TRAIN
from runtime.errors import ConfigError

ABLATION = ("calc_cell", "calc_lookup", "calc_sum", "calc_sheet", "sheet_from_note")
CELLS = ("calc_cell", "calc_lookup", "calc_sum")
apps = st.sampled_from(sorted(APP_NAMES))
spaces: st.SearchStrategy[ActionSpace] = st.sampled_from(SPACES)


def calc(task_id: str, *, menu: bool = False, cells: bool = True) -> Observation:
    goal = tasks.goal(task_id)
    assert isinstance(goal, WorkbookGoal)
    rows: list[list[object]] = [["text", "Name Box", "A1", 10, 80, 60, 20, ["sen", "edt"], 0]]
    for n, (name, value) in enumerate(goal.start.items() if cells else ()):
        text = value if isinstance(value, str) else f"{value:g}"
        rows.append(["table-cell", name, text, 40, 120 + 20 * n, 80, 20, ["sen", "edt"], 0])
    rows.append(["menu-item" if menu else "menu", "Sheet", "", 200, 20, 50, 20, ["sen"], 0])
    window = {"id": 6, "class": "libreoffice-calc", "title": f"{goal.target} - LibreOffice Calc", "active": True}
    return from_guest({"windows": [window], "elements": rows})


@given(apps)
def test_the_spaces_share_what_is_neither_gui_nor_function(app: str) -> None:
    both, gui, api = (functions_for(app, space) for space in SPACES)
    assert gui.keys() | api.keys() == both.keys()
    shared = {"Agent.open_app", "Agent.switch_window", "Agent.quote", "Agent.wait", "Agent.exit"}
    assert gui.keys() & api.keys() == shared
    assert api.keys() - shared == {f"{f.owner}.{f.name}" for f in TOOLS.get(app, ())}
    assert gui.keys() - shared == {f"Agent.{name}" for name in MOUSE_AND_KEYBOARD}


@given(apps, spaces)
def test_both_prompts_list_exactly_the_functions_of_the_space(app: str, space: ActionSpace) -> None:
    observation = from_guest({"windows": [], "elements": []})
    paper = render_published("Go", app, [], observation, None, space=space)[0]["content"]
    for prompt in (compact_system(app, space), paper):
        found, owner = set(), ""
        for text in prompt.splitlines():
            owner = named[1] if (named := re.fullmatch(r"class (\w+):", text)) else owner
            if defined := re.match(r"    def (\w+)\(", text):
                found.add(f"{owner}.{defined[1]}")
        assert found == functions_for(app, space).keys()
        assert ("oordinates" in prompt) is (space != "api")
    told = render_compact("Go", [], observation, None, space).splitlines()
    assert told[1] == (f"actions: {space}" if space != "both" else "app: none")


@settings(deadline=None)  # the first parse imports
@given(apps, apps, spaces, st.data())
def test_the_grammar_takes_what_the_space_has_and_names_it_where_not(
    app: str, other: str, space: ActionSpace, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted({**functions_for(app), **functions_for(other)})))
    result = parse(f"{name}()", app, space=space)
    said = result.reason if isinstance(result, RefusedAnswer) else ""
    if name in functions_for(app, space):
        assert "not allowed" not in said
        assert "there is no function" not in said
    elif name in functions_for(app) or space == "gui":
        assert said.startswith(f"{name} is not allowed; Agent has open_app, ")
        assert ("click" in said.partition(";")[2]) is (space == "gui")
    else:
        assert "to the front first" in said
    for literal in ("DONE", "FAIL", "WAIT"):
        assert isinstance(parse(literal, app, space=space), Action)


def test_a_refusal_names_the_functions_at_hand_instead() -> None:
    def said(answer: str, space: ActionSpace) -> str:
        refused = parse(answer, "libreoffice_calc", space=space)
        return refused.reason if isinstance(refused, RefusedAnswer) else ""

    refused = said("Agent.click(e3)", "api")
    agents = "Agent.click is not allowed; Agent has open_app, switch_window, quote, wait, exit; CalcTools has "
    assert refused.startswith(agents)
    assert "save" in refused
    assert said("CalcTools.save()", "gui").endswith("hotkey, quote, wait, exit")
    assert not said("CalcTools.save()", "api")


@pytest.mark.parametrize("name", ABLATION)
@pytest.mark.parametrize("space", ["gui", "api"])
def test_an_oracle_never_leaves_its_space(name: str, space: ActionSpace) -> None:
    seen = set()
    for seed in range(40):
        task_id = f"{name}/{TRAIN}/{seed}"
        views = [calc(task_id), calc(task_id, menu=True), calc(task_id, cells=False)]
        oracle = tasks.oracle(task_id, seed, 0.3, space=space)
        for step, observation in enumerate(views):
            answer = oracle.answer(observation, [Turn("a", "Agent.wait()", "")] * step)
            action = parse(answer, observation.app, element_names(observation), window_names(observation), space=space)
            assert isinstance(action, Action), (answer, action)
            assert allows(space, action)
            seen.add(answer.splitlines()[0] == NOT_HERE)
    assert (True in seen) is (space == "api" and name in CELLS)  # an open menu is nothing that a function closes


@pytest.mark.parametrize("name", ABLATION)
def test_a_mixed_oracle_takes_steps_by_either_and_the_same_when_asked_again(name: str) -> None:
    task_id = f"{name}/{TRAIN}/3"
    observation, ways = calc(task_id), set()
    quoted = [Turn("", f"Agent.quote(content={tasks.goal(task_id).wanted!r})", "")]
    for seed in range(30):
        answers = [tasks.oracle(task_id, seed, route="mixed").answer(observation, quoted) for _ in range(2)]
        assert answers[0] == answers[1]
        by = {route: tasks.oracle(task_id, seed, route=route).answer(observation, quoted) for route in ("gui", "api")}
        assert answers[0] in by.values()
        ways.add(answers[0] == by["api"])
    assert ways == {False, True}


def test_routes_keep_to_their_space() -> None:
    assert routes_in("both", ["gui", "api", "mixed"]) == ["api", "gui", "mixed"]
    assert routes_in("gui", ["gui", "api", "mixed"]) == ["gui"]
    assert routes_in("api", ["gui", "mixed"]) == []
    with pytest.raises(ConfigError, match="no oracle for actions api: it goes by gui only"):
        tasks.oracle("text_editor/train/1", space="api")
    with pytest.raises(ConfigError, match="there is no route 'mixed', only gui"):
        tasks.oracle("calc_cell/train/1", route="mixed", space="gui")
