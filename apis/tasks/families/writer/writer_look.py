"""Tasks on Writer: align a paragraph, strike it through or give it another size, and save.

Invariant: the two splits share no wording and, since words and numbers are split by their hash, no name and no value.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Tool, Type
from apis.catalogue import call
from apis.tasks.families.writer import writer_oracle
from apis.tasks.families.writer.common import TEXT_DOCUMENT, Line, TextDocumentGoal, drawn
from apis.tasks.numbers import number
from apis.tasks.oracle import click, pointed
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN

BUTTONS = {"center": "Center", "right": "Right", "justify": "Justified", "strike": "Strikethrough"}
LEAST, MOST = 12, 40  # points
SIZE = "Font Size"
TEMPLATES = {
    "center": {
        TRAIN: ("Center the paragraph '{text}' and save", "In {file}, '{text}' should be centered"),
        HELD_OUT: ("The paragraph '{text}' of {file} must stand in the center",),
    },
    "right": {
        TRAIN: ("Align the paragraph '{text}' to the right and save", "In {file}, '{text}' should be aligned right"),
        HELD_OUT: ("The paragraph '{text}' of {file} must stand on the right",),
    },
    "justify": {
        TRAIN: ("Justify the paragraph '{text}' and save", "In {file}, '{text}' should be justified"),
        HELD_OUT: ("The paragraph '{text}' of {file} must have justified alignment",),
    },
    "strike": {
        TRAIN: ("Strike through the paragraph '{text}' and save", "In {file}, '{text}' should be struck through"),
        HELD_OUT: ("The paragraph '{text}' of {file} must get a strikethrough",),
    },
    "size": {
        TRAIN: (
            "Set the paragraph '{text}' to {size} points and save",
            "In {file}, '{text}' should have the font size {size}",
        ),
        HELD_OUT: ("The paragraph '{text}' of {file} must be {size} points large",),
    },
}


def goal(random: Random, split: str) -> TextDocumentGoal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    texts, (stem,) = drawn(random, split, [random.choice((1, 2)) for _ in range(random.choice((3, 4)))], 1)
    text = random.choice(texts)
    size = str(number(random, split, LEAST, MOST)) if kind == "size" else ""
    looks = {"strike": ("strike",), "size": (f"size {size}",)}.get(kind, ())
    layout = () if looks else (kind,)
    return TextDocumentGoal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(text=text, size=size, file=f"{stem}.docx"),
        target=f"{stem}.docx",
        wanted=size,
        words=(text,),
        start=tuple(texts),
        finish=tuple(Line(each, looks, layout) if each == text else Line(each) for each in texts),
    )


def _align(goal: TextDocumentGoal) -> Tool:
    at = goal.before.index(goal.words[0])
    return call("WriterTools", "set_paragraph_alignment", alignment=goal.kind, paragraph_indices=[at])


def _strike(goal: TextDocumentGoal) -> Tool:
    return call("WriterTools", "set_strikethrough", pattern=goal.words[0])


def _size(goal: TextDocumentGoal) -> Tool:
    return call("WriterTools", "set_font_size", font_size=float(goal.wanted), pattern=goal.words[0])


def _press(view: View) -> Move | None:
    """Select the paragraph, press the button; a button that is down tells that it is done."""
    goal = TEXT_DOCUMENT.goal(view.goal)
    text, wanted = goal.words[0], BUTTONS[goal.kind]
    button = view.find("toggle-button", lambda e: e.name == wanted)
    if button is None or not writer_oracle.caret_in(view, text):
        return writer_oracle.choose(view, text, goal.kind)
    if "chk" in view.elements[button].states:
        return None
    if goal.kind == "strike" and writer_oracle.chosen(view, text) is None:
        return writer_oracle.choose(view, text, goal.kind)
    return click(view, button)


def _enter_size(view: View) -> Move | None:
    goal = TEXT_DOCUMENT.goal(view.goal)
    text = goal.words[0]
    field = view.find("text", lambda e: e.name == SIZE)
    if field is None or writer_oracle.chosen(view, text) is None:
        return writer_oracle.choose(view, text, f"size {goal.wanted}")
    if view.elements[field].text.split(" ")[0] == goal.wanted:
        return None
    return pointed(view, field, goal.wanted), Type(coordinates=field, text=goal.wanted, overwrite=True, enter=True)


FAMILY = TEXT_DOCUMENT.family(
    "writer_look",
    TEMPLATES,
    goal,
    writer_oracle.looks(
        dict.fromkeys(("center", "right", "justify"), _align) | {"strike": _strike, "size": _size},
        dict.fromkeys(BUTTONS, _press) | {"size": _enter_size},
    ),
)
