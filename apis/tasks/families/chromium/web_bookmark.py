"""Tasks on Chromium: bookmark the page that is open, by the keyboard, the star beside its address, or a function.

Invariant: a task is solved only if the profile holds one bookmark, with the page's title. The two splits share no
wording and, since words are split by their hash, no name and no title. The oracle bookmarks nothing before the right
page shows, and ends only when the star says that it is bookmarked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from apis.actions.gui import Exit, Wait
from apis.catalogue import call
from apis.tasks.families.chromium import web
from apis.tasks.family import ITS_END, Family, Files, Templates, rule
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys
from apis.tasks.osworld import Evaluator, Step
from apis.tasks.verify.verify import GUEST_HOME
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN, words

STAR, FILLED = "Bookmark this tab", "Edit bookmark for this tab"
BOOKMARK = call("BrowserTools", "bookmark_page")
TEMPLATES = {
    "open": {
        TRAIN: (
            "Bookmark the open page '{title}'",
            "Add a bookmark for the page '{title}' that is open",
            "The page '{title}' is open in the browser, bookmark it",
            "Save the open page '{title}' as a bookmark",
            "Keep the page '{title}' that shows in Chromium as a bookmark",
            "Put the open page '{title}' into the bookmarks",
        ),
        HELD_OUT: (
            "Add the open page '{title}' to the bookmarks",
            "Make a bookmark of the page '{title}' that shows",
            "The page '{title}' that is open should be in the bookmarks",
        ),
    }
}


def titles(random: Random, split: str, count: int) -> list[str]:
    """Different titles of one or two words."""
    drawn = words(random, split, 2 * count)
    return [" ".join(drawn[2 * at : 2 * at + random.choice((1, 2))]).capitalize() for at in range(count)]


Page = tuple[str, str, str]  # title, file name and content


def pages(random: Random, split: str, count: int) -> list[Page]:
    """`count` pages with different titles."""
    names = words(random, split, count)
    called = titles(random, split, count)
    return [(title, f"{name}.html", web.heading(title)) for title, name in zip(called, names, strict=True)]


def asked(family: str, kind: str, template: str, page: Page, shown: Sequence[Page]) -> Goal:
    """To bookmark `page`, one of those that are `shown`."""
    title, name, _ = page
    return Goal(
        family=family,
        kind=kind,
        instruction=template.format(title=title),
        target=name,
        wanted=title,
        files=tuple((file, content) for _, file, content in shown),
        words=tuple(title for title, _, _ in shown),
    )


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    made = pages(random, split, random.choice((1, 1, 2, 3)))
    return asked("web_bookmark", "open", random.choice(TEMPLATES["open"][split]), made[0], made)


def of_bookmarks(
    name: str,
    templates: Templates,
    goal: Callable[[Random, str], Goal],
    routes: Mapping[str, Decide],
    *,
    marks: Callable[[Goal], list[web.Mark]],
) -> Family:
    """A family that is done when the profile's bookmarks are `marks`; of the goal's files the first one shows."""

    def config(made: Goal) -> list[Step]:
        return web.show(made.files, made.words[0])

    def evaluator(made: Goal) -> Evaluator:
        expected = rule(expected=[list(mark) for mark in marks(made)])
        return Evaluator(func="bookmarks_are", result=web.bookmarks_getter(), expected=expected)

    def solved(made: Goal) -> Files:
        return web.written(marks(made), GUEST_HOME)

    def values(made: Goal) -> set[str]:
        names = {name.removesuffix(".html") for name, _ in made.files}
        return names | {word for text in (*made.words, made.wanted) for word in text.lower().split()} - {""}

    return Family(
        name, (web.CHROME,), goal, config, evaluator, solved, routes, templates, values, leaves=web.leaves, may=ITS_END
    )


def one_mark(made: Goal) -> list[web.Mark]:
    """The page that the goal names, in no folder."""
    return [("", made.wanted, f"Documents/{made.target}")]


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    by_mouse = view.route.random() < 0.5
    if move := _first(view):
        return move
    star = view.find("push-button", lambda element: element.label == STAR)
    if by_mouse and star is not None:
        return click(view, star)
    return keys(f"{view.goal.wanted} -> bookmark", "ctrl", "d")


def by_tools(view: View) -> Move:
    """The next move with Chromium's function; a tab is chosen by the mouse."""
    if move := _first(view):
        return move
    if view.did(BOOKMARK):  # the star is filled a moment later
        return "wait for the star", Wait()
    return f"{view.goal.wanted} -> bookmark", BOOKMARK


def _first(view: View) -> Move | None:
    """What comes before bookmarking, and what after; None when it is to be done now."""
    title = view.goal.wanted
    if view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if not web.in_front(view, title):
        return web.to_tab(view, title) or ("wait for the page", Wait())
    if view.find("push-button", lambda element: element.label == FILLED):
        return "bookmarked -> done", Exit(success=True)
    return None


FAMILY = of_bookmarks("web_bookmark", TEMPLATES, goal, {"gui": by_gui, "api": by_tools}, marks=one_mark)
