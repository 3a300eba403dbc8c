"""What families of text documents share: a few short paragraphs, and how an oracle changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from apis.actions.gui import Click, Hotkey, Tool, Type, Wait, line
from apis.catalogue import call
from apis.documents.docx import MIME, make_docx
from apis.tasks.families.calc_tables import WORKBOOK, WorkbookGoal
from apis.tasks.families.document import DocumentKind, Saving, in_the_way
from apis.tasks.oracle import keys, pointed
from apis.tasks.verify import office
from apis.tasks.view import Decide, Goal, Move, View
from apis.tasks.words import words

WRITER = "libreoffice_writer"


@dataclass(frozen=True)
class Line:
    """A paragraph with text; `looks` and `layout` as `text_document` of apis/tasks/verify/office.py has them."""

    text: str
    looks: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextDocumentGoal(Goal):
    """What an instance asks for; `target` is the document's file."""

    start: tuple[str, ...] = ()  # its paragraphs, plain; "" is an empty one
    finish: tuple[Line, ...] = ()  # those with text in the end
    workbooks: tuple[WorkbookGoal, ...] = ()  # workbooks next to it, judged by their own goals

    @property
    def before(self) -> list[str]:
        """The paragraphs with text at the start."""
        return [text for text in self.start if text]

    @property
    def after(self) -> list[str]:
        """Those in the end."""
        return [line.text for line in self.finish]


def plain(texts: Sequence[str]) -> tuple[Line, ...]:
    """Paragraphs that look like any other."""
    return tuple(Line(text) for text in texts)


def drawn(random: Random, split: str, sizes: Sequence[int], others: int = 0) -> tuple[list[str], list[str]]:
    """Paragraphs of so many words each, and other words; none of all these words is a part of another."""
    while True:
        found = words(random, split, sum(sizes) + others)
        if not any(one in other for one in found for other in found if one != other):
            break
    left = iter(found)
    return [" ".join(next(left) for _ in range(size)) for size in sizes], list(left)


TEXT_DOCUMENT = DocumentKind(
    app=WRITER,
    goals=TextDocumentGoal,
    mime=MIME,
    check="paper_is",
    data=lambda made: make_docx(made.start),
    expected=lambda made: [
        {"text": line.text, "looks": [*line.looks], "layout": [*line.layout]} for line in made.finish
    ],
    wanted=office.text_document,
    # Capitals are made of small letters.
    values=lambda made: {word.lower() for text in (*made.before, *made.after) for word in text.split()},
    others=lambda made: [(WORKBOOK, workbook) for workbook in made.workbooks],
)


SAVING = Saving(call("WriterTools", "save"), ("Agent.quote(", "Agent.switch_window("))

Edit = Callable[[View], Move | None]  # the next move of the change; None when it is made


def shown(view: View) -> list[str]:
    """The paragraphs with text that are listed."""
    return [view.elements[name].text for name in _names(view)]


def _names(view: View) -> list[str]:
    return [name for name, element in view.elements.items() if element.tag == "paragraph" and element.text.strip()]


def routes(by_gui: Edit, by_tools: Edit) -> dict[str, Decide]:
    """The ways to do it; a mixed one changes by the one and saves by the other."""

    def mixed(view: View) -> Move:
        tools_save = view.route.random() < 0.5
        return _next(view, by_gui if tools_save else by_tools, tools_save=tools_save)

    return {
        "gui": lambda view: _next(view, by_gui, tools_save=False),
        "api": lambda view: _next(view, by_tools, tools_save=True),
        "mixed": mixed,
    }


def _next(view: View, edit: Edit, *, tools_save: bool) -> Move:
    save_by_mouse = view.route.random() < 0.3
    if move := in_the_way(view, WRITER):
        return move
    if not _names(view):
        return "look again", Wait()
    if (move := edit(view)) is not None:
        return move
    return SAVING.by_tool(view) if tools_save else SAVING.by_gui(view, save_by_mouse)


def chosen(view: View, text: str) -> str | None:
    """Name of the paragraph `text` when it is selected."""
    return next((n for n in _names(view) if view.elements[n].text == text and "sel" in view.elements[n].states), None)


def choose(view: View, text: str, verb: str) -> Move:
    """Select the paragraph `text`; undo when it is not there."""
    name = next((n for n in _names(view) if view.elements[n].text == text), None)
    if name is None:
        return undo()
    return pointed(view, name, verb), Click(coordinates=name, num_clicks=3)


def undo() -> Move:
    """Take the last change back."""
    return keys("undo", "ctrl", "z")


def tool(view: View, text: str, name: str, **arguments: object) -> Move:
    """Call a function of Writer for the paragraph `text`."""
    at = next((n for n in _names(view) if view.elements[n].text == text), "")
    action: Tool = call("WriterTools", name, **arguments)
    return (pointed(view, at, name) if at else name), action


def texts_by_gui(view: View) -> Move | None:
    """Bring the paragraphs to what they shall say, by mouse and keyboard."""
    goal, now = TEXT_DOCUMENT.goal(view.goal), shown(view)
    if now == goal.after:
        return None
    if goal.kind == "append":
        if now != goal.before:
            return undo()
        if not view.did(Hotkey(keys=("ctrl", "end"))):
            return keys("go to the end", "ctrl", "end")
        return f"at the end -> {goal.after[-1]}", Type(text=goal.after[-1])
    old, new = _change(goal, now)
    if not old:
        return undo()
    name = chosen(view, old)
    if name is None:
        return choose(view, old, "select")
    return keys(f"{name} selected -> delete", "delete") if not new else (f"{name} selected -> {new}", Type(text=new))


def _change(goal: TextDocumentGoal, now: list[str]) -> tuple[str, str]:
    """The first paragraph that is to change and what it shall say, "" for nothing; two times "" when all is astray."""
    if goal.kind == "delete":
        gone = [text for text in goal.before if text not in goal.after]
        return (gone[0], "") if now == goal.before else ("", "")
    if len(now) != len(goal.before):
        return "", ""
    pairs = list(zip(now, goal.before, goal.after, strict=True))
    if any(text not in (before, after) for text, before, after in pairs):
        return "", ""
    return next((before, after) for text, before, after in pairs if text != after)


def texts_by(made: Callable[[View, TextDocumentGoal], Move]) -> Edit:
    """An edit by one call, `made` for the document as it was at the start."""

    def edit(view: View) -> Move | None:
        goal, now = TEXT_DOCUMENT.goal(view.goal), shown(view)
        if now == goal.after:
            return None
        return made(view, goal) if now == goal.before else texts_by_gui(view)

    return edit


def appended(view: View, goal: TextDocumentGoal) -> Move:
    """A new last paragraph by the function that replaces text."""
    last, new = goal.before[-1], goal.after[-1]
    return tool(view, last, "find_and_replace", pattern=last, replacement=f"{last}\n{new}")


def looks(by_tool: Mapping[str, Callable[[TextDocumentGoal], Tool]], by_hand: Mapping[str, Edit]) -> dict[str, Decide]:
    """The ways to change how a paragraph looks, by the goal's kind."""

    def gui(view: View) -> Move | None:
        goal = TEXT_DOCUMENT.goal(view.goal)
        if shown(view) != goal.before:
            return undo()
        return None if _called(view, by_tool[goal.kind](goal)) else by_hand[goal.kind](view)

    def tools(view: View) -> Move | None:
        goal = TEXT_DOCUMENT.goal(view.goal)
        action = by_tool[goal.kind](goal)
        if shown(view) != goal.before:
            return undo()
        if _called(view, action) or by_hand[goal.kind](view) is None:
            return None
        name = next(n for n in _names(view) if view.elements[n].text == goal.words[0])
        return pointed(view, name, goal.wanted), action

    return routes(gui, tools)


def _called(view: View, action: Tool) -> bool:
    return any(turn.line == line(action) for turn in view.history)


def caret_in(view: View, text: str) -> bool:
    """Whether the caret, or the selection, is in the paragraph `text`."""
    here = [view.elements[n] for n in _names(view) if "foc" in view.elements[n].states]
    return any(element.text == text for element in here)
