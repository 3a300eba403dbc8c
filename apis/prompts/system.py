"""System messages: what a model learns of its task, the functions it may call and the form of its answer."""

from __future__ import annotations

from collections.abc import Mapping

from apis.actions.arguments import MEANING as UNITS
from apis.actions.arguments import Unit
from apis.actions.gui import Function, functions_for
from apis.actions.spaces import MEANING, ActionSpace
from apis.functions.declaration import Param
from apis.observation import SCREEN
from apis.prompts import USUAL, Observed, Sight
from apis.prompts.template import filled
from apis.prompts.text import whole

_TREE, _PICTURE = ", the accessibility tree of the active application", ", a picture of the screen"
_SEEN: Mapping[Observed, str] = {"text": _TREE, "picture": _PICTURE, "both": _TREE + _PICTURE}
_SETUP = (
    "You operate a computer desktop for its user. At every step you are shown the open windows{} and the result of "
    "your previous action, and you answer with one action."
)
_MENUS = "Menus and dialogs appear in the next state; look before you go on."
_POINTING = "Where a function wants coordinates give an element's name, for example Agent.click(e3)."
_OF_THE_MOUSE = (_MENUS, _POINTING)
_END = "When the task is done call Agent.exit(success=True); if it can't be done, Agent.exit(success=False)."
_ANSWER = (
    "Think inside <think></think>, then give one ```python block with exactly ONE line: a call of a listed function "
    "with literal arguments. Nothing else is run."
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


def compact_system(app: str, space: ActionSpace = "both") -> str:
    """What a model that was not trained on the compact form has to know of it, with the functions of `app`."""
    return f"{_SETUP.format(_TREE)}\n\n{_functions(app, space, 'pixels')}\n\n{_notes(_COMPACT_NOTES, space)}"


def _notes(notes: tuple[str, ...], space: ActionSpace) -> str:
    lines = [note for note in notes if not (space == "api" and note in _OF_THE_MOUSE)]
    lines += [f"You have {MEANING[space]}."] * (space != "both")
    return "Notes:\n" + "\n".join(f"- {note}" for note in lines)


def _functions(app: str, space: ActionSpace, unit: Unit) -> str:
    by_owner: dict[str, list[Function]] = {}
    for function in functions_for(app, space).values():
        by_owner.setdefault(function.owner, []).append(function)
    blocks = ["You can call these functions:", "```python"]
    for owner, functions in by_owner.items():
        blocks.append(f"class {owner}:")
        for function in functions:
            blocks.append(f"    def {function.signature.removeprefix(owner + '.')}:")
            blocks.append(f'        """{function.description}')
            blocks += [f"        {p.name}: {_told(p, unit)}" for p in function.params if p.told]
            blocks.append('        """')
    return "\n".join((*blocks, "```"))


def _told(param: Param, unit: Unit) -> str:
    return param.told.replace(UNITS["pixels"], UNITS[unit]) if param.kind == "place" else param.told


def published_system(
    app: str, space: ActionSpace, task: str, sight: Sight = USUAL, screen: tuple[int, int] = SCREEN
) -> str:
    """The system message of the published form: how to answer, the functions of `app`, and the task.

    `sight` says what of the `screen` (pixels) the model is shown, and may have a template of its own.
    """
    functions = _functions(app, space, sight.unit)
    places = () if space == "api" else (_placed(sight, screen),)
    notes = _notes((_ANSWER, *places, _MENUS, _END), space)
    if not sight.template.system:
        return "\n\n".join((_SETUP.format(_SEEN[sight.observed]), functions, notes, _ASK + whole(task)))
    width, height = map(str, screen)
    values = {"task": whole(task), "functions": functions, "notes": notes, "width": width, "height": height}
    return filled(sight.template.system, values)


def _placed(sight: Sight, screen: tuple[int, int]) -> str:
    written = "screen pixels" if sight.unit == "pixels" else f"whole numbers {UNITS[sight.unit]}"
    shown = "the tree lists the centre of every element" if sight.tree else "the screen is {}x{} pixels".format(*screen)
    return f"Coordinates are {written}; {shown}."
