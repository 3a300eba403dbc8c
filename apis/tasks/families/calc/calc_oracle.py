"""How to change cells of a sheet, by mouse and keyboard or by the functions of Calc.

Invariant: the oracle saves only when every visible cell says what it should. It puts back what a stray step changed. It
ends only after having saved.
"""

from __future__ import annotations

from apis.actions.gui import Click, SwitchWindow, Type, Wait
from apis.catalogue import call
from apis.tasks.families.calc.common import CALC, WorkbookGoal, Write
from apis.tasks.families.saving import Saving
from apis.tasks.oracle import click, keys
from apis.tasks.view import Move, View

NAME_BOX = "Name Box"
SAVING = Saving(call("CalcTools", "save"), ("Agent.quote(", "Agent.switch_window(", "CalcTools.get_"))


def goal_of(view: View) -> WorkbookGoal:
    """The goal. Raises TypeError for one of another kind."""
    if not isinstance(view.goal, WorkbookGoal):
        raise TypeError(f"{view.goal.family} is no family of sheets")
    return view.goal


def shown(view: View) -> dict[str, str]:
    """What each cell that is listed says, by its name."""
    return {element.name: element.text for element in view.elements.values() if element.tag == "table-cell"}


def wrong(view: View) -> list[Write]:
    """The changes that are still to be made, those asked for first; "" is typed where a cell shall be empty."""
    goal, now = goal_of(view), shown(view)
    asked = [write for write in goal.writes if now.get(write.cell, "") != str(write.value)]
    kept = {name: value for name, value in goal.start.items() if name not in {write.cell for write in goal.writes}}
    back = [
        Write(name, text, text) for name, value in kept.items() if name in now and now[name] != (text := _typed(value))
    ]
    extra = [Write(name, "", "") for name, text in now.items() if text and name not in goal.finish]
    return asked + back + extra


def untouched(view: View) -> bool:
    """Whether the listed cells say what they said at the start."""
    start = {name: _typed(value) for name, value in goal_of(view).start.items()}
    return {name: text for name, text in shown(view).items() if text} == start


def _typed(value: str | float | bool) -> str:
    """What is typed to make a cell say `value`, and what it shows then."""
    return value if isinstance(value, str) else f"{value:.15g}"


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    by_name_box, click_first, save_by_mouse = (view.route.random() < part for part in (0.25, 0.3, 0.3))
    if move := obstacle(view):
        return move
    left = wrong(view)
    if left:
        return _enter(view, left[0], by_name_box, click_first)
    return SAVING.by_gui(view, save_by_mouse)


def by_tools(view: View) -> Move:
    """The next move with Calc's functions."""
    if move := obstacle(view):
        return move
    left = wrong(view)
    if left:
        return because(view, left[0]), call("CalcTools", "set_cell_value", cell=left[0].cell, value=left[0].text)
    return SAVING.by_tool(view)


def because(view: View, write: Write) -> str:
    """The thought of a change: where the table tells it, the cell, and what goes in."""
    goal, now = goal_of(view), shown(view).get(write.cell, "")
    where = f"{goal.evidence} -> " if goal.evidence and write in goal.writes else ""
    name = view.find("table-cell", lambda e: e.name == write.cell)
    cell = f"{name} table-cell {write.cell}" if name else f"table-cell {write.cell}"
    return f"{where}{cell}{f' ({now})' if now else ''} -> {write.text or 'empty'}"


def to_calc(view: View) -> Move | None:
    """The move that brings Calc to the front; None when it is there, or when it has no window."""
    if view.observation.app == CALC:
        return None
    return to_window(view, CALC)


def to_window(view: View, app: str) -> Move | None:
    """The move that brings a window of `app` to the front."""
    found = next((n for n, window in enumerate(view.observation.windows, 1) if window.app == app), None)
    if found is None:
        return None
    return f"w{found} {view.observation.windows[found - 1].title[:40]}", SwitchWindow(window_id=f"w{found}")


def obstacle(view: View) -> Move | None:
    """What to do about another window in front, or a dialog that covers the sheet."""
    if move := to_calc(view):
        return move
    keep = view.labelled("push-button", "Keep Current Format")
    if keep is not None:
        return click(view, keep)
    if view.find("menu-item", lambda e: True) or not shown(view):
        return keys("close this", "esc")
    return None


def _enter(view: View, write: Write, by_name_box: bool, click_first: bool) -> Move:
    cell = view.find("table-cell", lambda e: e.name == write.cell)
    box = view.find("text", lambda e: e.name == NAME_BOX)
    thought = because(view, write)
    current = cell is not None and "foc" in view.elements[cell].states
    if current and (by_name_box or click_first or not write.text):
        return (thought, Type(text=write.text, enter=True)) if write.text else keys(thought, "delete")
    if box is not None and (by_name_box or cell is None):
        return f"{thought}, {box} go there", Type(coordinates=box, text=write.cell, enter=True)
    if cell is None:
        return "look again", Wait()
    if click_first or not write.text:
        return f"{thought}, go there", Click(coordinates=cell)
    return thought, Type(coordinates=cell, text=write.text, enter=True)


ROUTES = {"gui": by_gui, "api": by_tools}
