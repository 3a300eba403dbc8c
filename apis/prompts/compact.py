"""How a model sees a task: the published form, and a compact form of it for small models.

Invariant: everything from the guest is escaped and cut before it stands in a prompt, so it can neither forge a line of
the form nor steer a terminal; successive compact prompts of an episode begin with the same text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal

import msgspec

from apis.actions.gui import Function, Place, functions_for
from apis.actions.spaces import MEANING, ActionSpace
from apis.apps.calc.ranking import sheet_first
from apis.apps.code.ranking import code_first
from apis.apps.impress.ranking import slide_first
from apis.apps.writer.ranking import paper_first
from apis.observation import Element, Observation, Window

Form = Literal["compact", "published"]
FORMS: tuple[Form, ...] = ("compact", "published")
MAX_TASK = 2000
ESCAPED_MAX = 20_000  # longer than any label, however it is escaped
LAST_TURNS_COMPACT, LAST_TURNS_PAPER = 8, 30
COMPACT_WINDOWS, COMPACT_ELEMENTS, COMPACT_TEXT = 8, 60, 80
COMPACT_TERMINAL = 200  # characters of a terminal's last lines
_FIRST = {
    "libreoffice_calc": sheet_first,
    "libreoffice_writer": paper_first,
    "libreoffice_impress": slide_first,
    "code": code_first,
}  # what is worked with comes first
_UNMARKED = {"menu", "menu-item"}  # what the pointer is on, not what was chosen
PAPER_ELEMENTS, PAPER_TEXT, PAPER_INFO, PAPER_RESULT, PAPER_ANSWER = 300, 500, 5000, 2000, 1500


class Turn(msgspec.Struct, frozen=True):
    """An earlier step: the answer, the action's line (None when it was refused) and what came of it."""

    answer: str
    line: str | None
    result: str


def escaped(text: str, limit: int) -> str:
    """`text` on one line of at most `limit` characters; what is not plain becomes \\n, \\x1b or \\u202e."""
    shown = "".join(c if c == " " or _plain(c) else _escape(c) for c in text[: limit + 1])
    return shown if len(shown) <= limit and len(text) <= limit else shown[: limit - 3] + "..."


def _plain(char: str) -> bool:
    return unicodedata.category(char)[0] not in "CZ"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def element_names(observation: Observation) -> dict[str, Element]:
    """The elements a compact prompt lists, by the names it gives them, in its order.

    Of several windows only the active one can be worked with, so elements known to belong to another are left out, and
    so are disabled ones. A spreadsheet lists what is worked with before its menus, and of its tool bars a few buttons.
    """
    here = _here(observation)
    return {f"e{n}": element for n, element in zip(range(1, COMPACT_ELEMENTS + 1), here, strict=False)}


def _here(observation: Observation) -> list[Element]:
    """What can be worked with, in the order of the compact form; where that is nothing, what stands behind it."""
    active = observation.active
    here = [
        element
        for element in observation.elements
        if (element.window in (-1, active) or "behind" in element.states)
        and ("sen" in element.states or not element.states)
    ]
    order = _FIRST.get(observation.app)
    return here if order is None else order(here)


def place(where: Place, observation: Observation) -> tuple[int, int]:
    """Screen pixels of a place. Raises KeyError for an element that the observation does not list."""
    if isinstance(where, str):
        element = element_names(observation)[where]
        return element.cx, element.cy
    return where


def window_names(observation: Observation) -> dict[str, int]:
    """Window names, "w1" and the paper's hexadecimal ones, to X window numbers."""
    numbers = [window.number for window in observation.windows]
    named = {f"w{n}": number for n, number in enumerate(numbers[:COMPACT_WINDOWS], 1)}
    return named | {f"0x{number:08x}": number for number in numbers}


def row(element: Element) -> str:
    """An element in the compact form: tag, label, and a star where it is selected, checked or the current cell."""
    if element.tag == "terminal":
        label = escaped(_last_lines(element.text), 2 * COMPACT_TERMINAL)
    else:
        label = around(element.label, element.label_caret, COMPACT_TEXT)
        label = "" if label == element.tag.replace("-", " ") else label  # which its tag says
    marked = element.tag not in _UNMARKED and ("sel" in element.states or "chk" in element.states)
    marked = marked or (element.tag == "table-cell" and "foc" in element.states)
    behind = " (behind)" if "behind" in element.states else ""
    return f"{escaped(element.tag, 40)} {label}".rstrip() + (" *" if marked else "") + behind


def around(text: str, caret: int, limit: int) -> str:
    """`text` escaped to at most `limit` characters: its start, or where the caret is not in that, what is around it."""
    at = len(escaped(text[:caret], ESCAPED_MAX)) if caret > 0 else 0
    if at <= limit - 10:
        return escaped(text, limit)
    whole = escaped(text, ESCAPED_MAX)
    first = min(at - limit // 2, len(whole) - limit + 3)
    if first <= 0 or len(whole) <= limit:
        return escaped(text, limit)
    return f"...{whole[first:]}" if len(whole) - first <= limit - 3 else f"...{whole[first : first + limit - 6]}..."


def _left_out(observation: Observation, listed: int, there: int) -> str:
    """What there is more than is listed, "" where that is nothing."""
    parts = [f"{observation.beyond} out of view"] * (observation.beyond > 0)
    parts += [f"{there - listed} not listed"] * (there > listed)
    parts += ["some not read"] * observation.cut
    return ", ".join(parts)


def _last_lines(text: str) -> str:
    """The last whole lines of at most `COMPACT_TERMINAL` characters together; of a longer line its end."""
    if len(text) <= COMPACT_TERMINAL:
        return text
    end = text[-COMPACT_TERMINAL:]
    return end.partition("\n")[2] or end


def render_compact(
    task: str, history: Sequence[Turn], observation: Observation, last: str | None, space: ActionSpace = "both"
) -> str:
    """One step's prompt in the compact form. `last` is the result of the last action or the reason of its refusal.

    A space that lacks something is named below the task.
    """
    lines = [f"task: {escaped(task, MAX_TASK)}"]
    lines += [f"actions: {space}"] * (space != "both")
    lines += [f"did: {escaped(turn.line or 'refused', 2 * COMPACT_TEXT)}" for turn in history[-LAST_TURNS_COMPACT:]]
    lines.append(f"app: {escaped(observation.app, 80) or 'none'}")
    for n, window in enumerate(observation.windows[:COMPACT_WINDOWS], 1):
        title = escaped(window.title, COMPACT_TEXT) + " (minimised)" * window.minimised
        lines.append(f"w{n} {'* ' if window.active else ''}{title}".rstrip())
    elements = element_names(observation)
    lines += [f"{name} {row(element)}" for name, element in elements.items()]
    if more := _left_out(observation, len(elements), len(_here(observation))):
        lines.append(f"more: {more}")
    if observation.unread:
        lines.append(f"front: {observation.unread}")
    sheet = observation.app == "libreoffice_calc" and any(element.tag == "table-cell" for element in elements.values())
    if observation.info and not sheet:  # what the info says of a sheet, its cells say
        lines.append(f"info: {escaped(observation.info, COMPACT_TEXT * 5)}")
    lines.append(f"last: {escaped(last, 2 * COMPACT_TEXT) if last else 'None'}")
    return "\n".join(lines)


def compact_system(app: str, space: ActionSpace = "both") -> str:
    """What a model that was not trained on the compact form has to be told of it, with the functions of `app`."""
    return f"{_SETUP}\n\n{_functions(app, space)}\n\n{_notes(_COMPACT_NOTES, space)}"


def render_paper(
    task: str,
    app: str,
    history: Sequence[Turn],
    observation: Observation,
    last: str | None,
    *,
    space: ActionSpace = "both",
) -> list[dict[str, str]]:
    """One step's messages in the published form: a system message, earlier turns without their trees, the state now."""
    system = "\n\n".join((_SETUP, _functions(app, space), _notes(_NOTES, space), _ASK + escaped(task, MAX_TASK)))
    messages = [{"role": "system", "content": system}]
    before = None
    for turn in history[-LAST_TURNS_PAPER:]:
        state = f"**Environment State (Omitted)**\nPrevious Action Result: {_result(before)}"
        messages.append({"role": "user", "content": state})
        messages.append({"role": "assistant", "content": turn.answer[:PAPER_ANSWER]})
        before = turn.result
    messages.append({"role": "user", "content": _state(observation, last)})
    return messages


def _state(observation: Observation, last: str | None) -> str:
    apps = ["Window ID    App Name    Title"]
    apps += [f"0x{w.number:08x}    {escaped(w.app, 80)}    {_titled(w)}" for w in observation.windows]
    active = observation.active
    current = f"0x{observation.windows[active].number:08x}" if active >= 0 else "None"
    rows = ["tag\ttext\tposition (center x & y)\tsize (w & h)"]
    rows += [
        f"{escaped(e.tag, 40)}\t{_labelled(e)}\t({e.cx}, {e.cy})\t({e.w}, {e.h})"
        for e in observation.elements[:PAPER_ELEMENTS]
    ]
    if len(observation.elements) > PAPER_ELEMENTS:
        rows.append("...")
    if more := _left_out(observation, 0, 0):
        rows.append(f"more: {more}")
    if observation.unread:
        rows.append(f"front: {observation.unread}")
    info = escaped(observation.info, PAPER_INFO) or "None"
    parts = (
        "Apps: " + "\n".join(apps),
        f"Current App: {current}",
        "A11y Tree: " + "\n".join(rows),
        f"App Info: {info}",
    )
    return "\n\n".join(f"* {part}" for part in (*parts, f"Previous Action Result: {_result(last)}"))


def _titled(window: Window) -> str:
    return escaped(window.title, PAPER_TEXT) + " (minimised)" * window.minimised


def _labelled(element: Element) -> str:
    return escaped(element.label, PAPER_TEXT) + " (behind)" * ("behind" in element.states)


def _result(text: str | None) -> str:
    return escaped(text, PAPER_RESULT) if text else "None"


def _notes(notes: tuple[str, ...], space: ActionSpace) -> str:
    said = [note for note in notes if not (space == "api" and note in _OF_THE_MOUSE)]
    said += [f"You have {MEANING[space]}."] * (space != "both")
    return "Notes:\n" + "\n".join(f"- {note}" for note in said)


def _functions(app: str, space: ActionSpace) -> str:
    by_owner: dict[str, list[Function]] = {}
    for function in functions_for(app, space).values():
        by_owner.setdefault(function.owner, []).append(function)
    blocks = ["You can call these functions:", "```python"]
    for owner, functions in by_owner.items():
        blocks.append(f"class {owner}:")
        for function in functions:
            blocks.append(f"    def {function.signature.removeprefix(owner + '.')}:")
            blocks.append(f'        """{function.description}')
            blocks += [f"        {p.name}: {p.meaning}" for p in function.params if p.meaning]
            blocks.append('        """')
    return "\n".join((*blocks, "```"))


_SETUP = (
    "You operate a computer desktop for its user. At every step you are shown the open windows, the accessibility tree "
    "of the active application and the result of your previous action, and you answer with one action."
)
_PIXELS = "Coordinates are screen pixels; the tree lists the centre of every element."
_MENUS = "Menus and dialogs appear in the next state; look before you go on."
_POINTING = "Where a function wants coordinates give an element's name, for example Agent.click(e3)."
_OF_THE_MOUSE = (_PIXELS, _MENUS, _POINTING)
_END = "When the task is done call Agent.exit(success=True); if it can't be done, Agent.exit(success=False)."
_NOTES = (
    "Think inside <think></think>, then give one ```python block with exactly ONE line: a call of a listed function "
    "with literal arguments. Nothing else is run.",
    _PIXELS,
    _MENUS,
    _END,
)
_COMPACT_NOTES = (
    "The state lists windows as w1, w2, ... and elements as e1, e2, ..., one a line: name, tag, text; a star marks "
    "what is selected.",
    _POINTING,
    "Where a function wants a window give a window's name.",
    "Answer with two lines: a few words of thought, then a call of a listed function with literal arguments.",
    _END,
)
_ASK = "**IMPORTANT** You are asked to complete the following task: "
