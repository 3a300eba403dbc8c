"""Oracles without a desktop: they answer alike when asked again, in either form, and every answer is an action."""

import itertools

import pytest

from apis.actions.gui import Exit, Quote, SwitchWindow, line
from apis.observation import Observation
from apis.prompts.compact import element_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families.calc_tables import CALC, WorkbookGoal
from apis.tasks.families.files import CUT, PASTE
from apis.tasks.families.presentations import IMPRESS, PresentationGoal
from apis.tasks.families.texts import WRITER, TextDocumentGoal
from apis.tasks.families.writer import BUTTONS
from apis.tasks.words import HELD_OUT
from tests.apis import test_families_calc as calc
from tests.apis import test_families_code as code
from tests.apis import test_families_media as media
from tests.apis import test_families_slides as slides
from tests.apis import test_families_writer as writer
from tests.apis.moves import Row, answers_alike, families_on, moved, screen, split_of

MENU: Row = ["menu", "File", "", 0, 19, 39, 25, ["sen"], 0]


def editor(title: str, text: str, other: str = "") -> Observation:
    return screen("Mousepad", title, [MENU, ["text", "", text, 1, 47, 1278, 670, ["sen", "edt"], 0]], other)


def manager(names: list[str], chosen: str = "", title: str = "Documents") -> Observation:
    rows: list[Row] = [["text", "", f"/home/agent/{title}", 197, 48, 1047, 34, ["sen", "edt"], 0]]
    for n, name in enumerate(sorted(names)):
        rows.append(["icon", "", name, 162 + 94 * n, 91, 88, 82, ["sen", "sel"] if name == chosen else ["sen"], 0])
    return screen("Pcmanfm", title, rows)


def terminal(text: str, other: str = "", note: str = "") -> Observation:
    return screen("XTerm", "xterm", [["terminal", "", text, 1, 20, 1278, 690, ["sen", "edt"], 0]], other, note)


def first_look(task_id: str) -> Observation:
    goal, family = tasks.goal(task_id), tasks.family(task_id)
    other = "XTerm" if goal.front == "text_editor" else "Mousepad" if goal.front else ""
    app = goal.front or ("text_editor" if "text_editor" in family.apps else family.app)
    if app == "text_editor":
        return editor(f"{goal.target} - Mousepad", dict(goal.files)[goal.target], other)
    if app == "terminal":
        return terminal("$", other, f"{goal.target} - Mousepad")
    if family.name == "files_out":
        inside = [name.partition("/")[2] for name, _ in goal.files if "/" in name]
        return manager(inside, title=goal.wanted)
    return manager(sorted({name.partition("/")[0] for name, _ in goal.files}))


def first_look_of(task_id: str, seed: int) -> Observation:
    """What an oracle may see at first, of any family."""
    goal = tasks.goal(task_id)
    match goal:
        case WorkbookGoal():
            return calc.editor(goal) if seed % 2 and goal.files else calc.calc(goal, goal.start)
        case TextDocumentGoal():
            return writer.first_look(goal) if seed % 2 else writer.writer(goal, goal.before)
        case PresentationGoal():
            return slides.impress(goal, goal.slides, 1 + seed % 2)
    app = tasks.family(task_id).app
    if app == "code":
        return code.window_of(goal).look()
    return media.first_look(task_id) if app in ("google_chrome", "vlc") else first_look(task_id)


@pytest.mark.parametrize("family", sorted(tasks.FAMILIES))
@pytest.mark.parametrize("form", ["compact", "published"])
def test_every_answer_is_an_action_and_the_same_when_asked_again(family: str, form: str) -> None:
    for seed in range(30):
        task_id = f"{family}/{split_of(family)}/{seed}"
        history, observation = [Turn("a", "Agent.wait()", "Wait Success")] * (seed % 3), first_look_of(task_id, seed)
        for route in tasks.FAMILIES[family].routes:
            answers_alike(task_id, observation, form, route, seed, history=history, noise=0.3)


def done_of(task_id: str) -> tuple[Observation, list[Turn]]:
    """What an office shows when all is done but for saving, and what was read and named on the way."""
    match tasks.goal(task_id):
        case WorkbookGoal() as goal:
            named = f"Agent.type(coordinates=e3, text={goal.renamed!r}, overwrite=True, enter=True)"
            read = Turn("", line(Quote(content=goal.wanted)), "")
            return calc.calc(goal, goal.finish), [read, Turn("", named, "")]
        case PresentationGoal() as goal:
            return slides.impress(goal, goal.finish), []
        case TextDocumentGoal() as goal:
            if goal.family != "writer_look":
                return writer.writer(goal, goal.after), writer.read_before(goal)
            down = BUTTONS.get(goal.kind, "")
            return writer.writer(goal, goal.after, goal.words[0], down, goal.wanted or "11"), []
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(("app", "owner"), [(CALC, "CalcTools"), (WRITER, "WriterTools"), (IMPRESS, "ImpressTools")])
def test_a_document_is_saved_before_it_is_claimed_and_again_after_a_change(app: str, owner: str) -> None:
    keys, tool = "Agent.hotkey(keys=['ctrl', 's'])", f"{owner}.save()"
    for family, seed in itertools.product(families_on(app), range(12)):
        task_id = f"{family}/{HELD_OUT}/{seed}"
        observation, done = done_of(task_id)
        for route in tasks.FAMILIES[family].routes:
            saving = line(moved(task_id, observation, done, route, seed))
            button = next(name for name, element in element_names(observation).items() if element.name == "Save")
            assert saving in ({tool} if route == "api" else {tool, keys, f"Agent.click(coordinates={button})"})
            saved = [*done, Turn("", keys, "")]
            assert moved(task_id, observation, saved, route, seed) == Exit(success=True)
            later = [*saved, Turn("", "Agent.type(text='x')", "")]
            assert not isinstance(moved(task_id, observation, later, route, seed), Exit)


def test_a_note_is_kept_before_its_window_is_left() -> None:
    for seed in range(20):
        task_id = f"note_to_terminal/train/{seed}"
        goal, oracle = tasks.goal(task_id), tasks.oracle(task_id, seed)
        assert not set(goal.words[0].split()) & set(goal.instruction.replace("'", " ").split())
        note = editor(f"{goal.target} - Mousepad", f"{goal.words[0]}\n", "XTerm")
        _, kept = oracle.move(note, [])
        assert kept == Quote(content=goal.words[0])
        history = [Turn("", line(kept), "")]
        assert oracle.move(note, history)[1] == SwitchWindow(window_id="w2")
        _, command = oracle.move(terminal("$", "Mousepad"), history)
        assert goal.words[0] in command.text  # type: ignore[attr-defined]


def test_a_file_is_cut_only_when_selected_and_pasted_only_in_its_folder() -> None:
    for seed in range(20):
        task_id = f"files_move/train/{seed}"
        goal, oracle = tasks.goal(task_id), tasks.oracle(task_id, seed)
        names = sorted({name.partition("/")[0] for name, _ in goal.files})
        cut = Turn(f"icon {goal.target} -> cut\n{line(CUT)}", line(CUT), "")
        assert oracle.move(manager(names), [])[1].coordinates  # type: ignore[attr-defined]
        opening = oracle.move(manager(names, goal.target), [cut])[1]
        assert element_names(manager(names))[opening.coordinates].label == goal.wanted  # type: ignore[attr-defined]
        folder = manager(["other.txt"], title=goal.wanted)
        assert oracle.move(folder, [cut])[1] == PASTE
        assert oracle.move(folder, [])[1] != PASTE
        assert oracle.move(manager([goal.target], title=goal.wanted), [cut])[1].success  # type: ignore[attr-defined]


def test_the_text_editor_oracle_saves_before_it_claims() -> None:
    task_id = "text_editor/train/1"
    wanted = tasks.goal(task_id).wanted
    unsaved = tasks.oracle(task_id, 0).answer(editor("*a.txt - Mousepad", wanted), [])
    saved = tasks.oracle(task_id, 0).answer(editor("a.txt - Mousepad", wanted + "\n"), [])
    assert "exit" not in unsaved
    assert saved == "saved -> done\nAgent.exit(success=True)"
