"""What families on a document share: a file of Documents that an application opens and a check reads.

An oracle ends only after having saved, and acts on a note only after it has quoted it: both are read from its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from apis.actions.gui import Exit, Hotkey, Quote, Tool, Wait, line
from apis.tasks.families import wordings
from apis.tasks.family import (  # fmt: skip
    DOCUMENTS,
    Check,
    Family,
    Files,
    all_of,
    in_documents,
    rule,
    setup,
    words_of,
)
from apis.tasks.oracle import click, keys, pointed, switch
from apis.tasks.osworld import Evaluator, Step, data_url, put
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Decide, Goal, Move, View

G = TypeVar("G", bound=Goal)


@dataclass(frozen=True)
class DocumentKind(Generic[G]):
    """A kind of document; the functions take a goal, whose `target` is the document's file."""

    app: str
    goals: type[G]
    mime: str
    check: str  # the name of its check in a task, which is part of the task's digest
    data: Callable[[G], bytes]  # the file at the start
    expected: Callable[[G], object]  # what the check gets
    wanted: Callable[[dict[str, Any]], bytes]  # the file that the check wants, by what it gets
    values: Callable[[G], set[str]]  # words and numbers that an instance is made of, besides `words_of`
    others: Callable[[G], Sequence[tuple[DocumentKind[Any], Goal]]] = lambda _: ()  # documents judged by their own goal

    def goal(self, goal: Goal) -> G:
        """`goal` as one on this kind of document. Raises TypeError for another."""
        if not isinstance(goal, self.goals):
            raise TypeError(f"{goal.family} is no family on documents of {self.app}")
        return goal

    def steps(self, goal: G) -> list[Step]:
        """Put the document, and the others, into Documents."""
        own = put([(f"{DOCUMENTS}/{goal.target}", data_url(self.data(goal), self.mime))])
        return [*own, *(step for kind, other in self.others(goal) for step in kind.steps(other))]

    def checks(self, goal: G) -> list[Check]:
        """The checks of the document, of the goal's texts, which are kept, and of other documents."""
        kept = [("file_text_is", path, rule(expected=text)) for path, text in goal.files]
        others = [check for kind, other in self.others(goal) for check in kind.checks(other)]
        return [(self.check, goal.target, rule(expected=self.expected(goal))), *kept, *others]

    def solved(self, goal: Goal) -> Files:
        """The files in the end. Raises TypeError for a goal of another kind."""
        end = FileView("file", self.wanted({"expected": self.expected(self.goal(goal))}))
        files = in_documents(dict(goal.files)) | {f"Documents/{goal.target}": end}
        for kind, other in self.others(self.goal(goal)):
            files |= kind.solved(other)
        return files

    def values_of(self, goal: Goal) -> set[str]:
        """The words and numbers that an instance is made of. Raises TypeError for a goal of another kind."""
        others = (kind.values_of(other) for kind, other in self.others(self.goal(goal)))
        return words_of(goal).union(self.values(self.goal(goal)), *others)

    def family(
        self,
        name: str,
        goal: Callable[[Random, str], G],
        routes: Mapping[str, Decide],
        *,
        apps: tuple[str, ...] = (),
        opened: Callable[[G], Sequence[str]] = lambda goal: (goal.target,),
    ) -> Family:
        """A family that is done when the document is as its goal wants it.

        `apps` are the application and others that an episode needs; of `opened`, paths below Documents, the last is in
        front.
        """

        def config(made: G) -> list[Step]:
            return [*self.steps(made), *setup(made, *(f"{DOCUMENTS}/{path}" for path in opened(made)))]

        def evaluator(made: G) -> Evaluator:
            return all_of(*self.checks(made))

        return Family(
            name, apps or (self.app,), goal, config, evaluator, self.solved, routes, wordings(name), self.values_of,
        )  # fmt: skip


EDITOR = "text_editor"


def noted(view: View, says: str) -> bool:
    """Whether the note's text `says` was quoted before."""
    return any(turn.line == line(Quote(content=says)) for turn in view.history)


def read_note(view: View, note: str, says: str) -> Move:
    """Go to the file `note` in the editor, and quote what it says."""
    if view.observation.app != EDITOR:
        return switch(view, EDITOR, note)
    field = view.field()
    if field is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") != says:
        return keys("undo", "ctrl", "z")
    return pointed(view, field, "keep"), Quote(content=says)


def in_the_way(view: View, app: str) -> Move | None:
    """What to do about another window in front, a question for the format, or an open menu; None without one."""
    if view.observation.app != app:
        return switch(view, app)
    keep = view.labelled("push-button", "Keep Current Format")
    if keep is not None:
        return click(view, keep)
    return keys("close this", "esc") if view.find("menu-item", lambda e: True) else None


def after_note(write: Decide) -> Decide:
    """Read the note, the first of the goal's files, and keep what it says; then `write`."""

    def decide(view: View) -> Move:
        says = view.goal.wanted
        return write(view) if noted(view, says) else read_note(view, view.goal.files[0][0], says)

    return decide


SAVE = Hotkey(keys=("ctrl", "s"))
_HARMLESS = (line(Wait()), line(Hotkey(keys=("esc",))))
_DONE: Move = ("saved -> done", Exit(success=True))


@dataclass(frozen=True)
class Saving:
    """How documents of one application are saved: by the key, its button, or its function `call`."""

    call: Tool
    harmless: tuple[str, ...]  # how lines of steps begin that change no document, besides waiting and Escape

    @property
    def lines(self) -> tuple[str, str]:
        """The steps that save, by key and by function."""
        return line(SAVE), line(self.call)

    def done(self, view: View) -> bool:
        """Whether nothing but harmless steps came after the last saving."""
        lines, harmless = self.lines, _HARMLESS + self.harmless
        for turn in reversed(view.history):
            did = turn.line or ""
            if did in lines or (did.startswith("Agent.click(") and "push-button Save" in turn.answer):
                return True
            if did and not did.startswith(harmless):
                return False
        return False

    def by_gui(self, view: View, by_mouse: bool) -> Move:
        """Save by mouse or keyboard, then end."""
        if self.done(view):
            return _DONE
        button = view.labelled("push-button", "Save")
        return click(view, button, "save") if by_mouse and button else ("all there -> save", SAVE)

    def by_tool(self, view: View) -> Move:
        """Save by function, then end."""
        return _DONE if self.done(view) else ("all there -> save", self.call)
