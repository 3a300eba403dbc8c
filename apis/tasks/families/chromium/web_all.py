"""Tasks on Chromium, never trained on: bookmark all tabs, in a folder of a given name.

Invariant: a task is solved only if the profile holds one folder of that name with exactly the open pages.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Hotkey, Type, Wait
from apis.tasks.families.chromium import web
from apis.tasks.families.chromium.web_bookmark import of_bookmarks, pages
from apis.tasks.goal import Goal
from apis.tasks.oracle import pointed
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, words

DIALOG = "Bookmark all tabs"
ALL = Hotkey(keys=("ctrl", "shift", "d"))
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {
        TRAIN: (),
        HELD_OUT: (
            "Bookmark all tabs in a new folder '{folder}'",
            "All open tabs should be bookmarks, in a folder called '{folder}'",
            "Keep every open page as a bookmark in one folder, '{folder}'",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    made = pages(random, split, random.choice((2, 2, 3)))
    folder = " ".join(words(random, split, random.choice((1, 2, 2))))
    return Goal(
        kind="all",
        instruction=random.choice(TEMPLATES["all"][split]).format(folder=folder),
        target=made[0][1],
        wanted=folder,
        files=tuple((file, content) for _, file, content in made),
        words=tuple(title for title, _, _ in made),
    )


def marks(made: Goal) -> list[web.Mark]:
    """Every page, in the folder."""
    return [(made.wanted, title, f"Documents/{name}") for title, (name, _) in zip(made.words, made.files, strict=True)]


def decide(view: View) -> Move:
    """The next move of its oracle."""
    name = view.find("entry", lambda element: element.name == "Bookmark name")
    if view.find("heading", lambda element: element.label == DIALOG) and name is not None:
        typed = Type(coordinates=name, text=view.goal.wanted, overwrite=True, enter=True)
        return pointed(view, name, view.goal.wanted), typed
    if any(f"text={view.goal.wanted!r}" in (turn.line or "") for turn in view.history):
        return "bookmarked -> done", Exit(success=True)
    tabs = {element.label for element in view.elements.values() if element.tag == "page-tab"}
    if set(view.goal.words) - tabs or view.did(ALL):
        return "wait for the tabs", Wait()
    return f"{len(tabs)} tabs -> bookmark", ALL


FAMILY = of_bookmarks("web_all", TEMPLATES, goal, {"gui": decide}, marks=marks)
