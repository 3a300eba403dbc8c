"""Tasks on Chromium: bookmark the page that shows, one in another tab or all, and note a number of a page's table.

Pages lie in Documents, each in a tab. The first page's tab is in front at the start.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from random import Random

from apis.actions.gui import Exit, Hotkey, Quote, Type, Wait
from apis.applications import app_named
from apis.catalogue import call
from apis.tasks.families import worded, wordings
from apis.tasks.families.calc_tables import Grid, table
from apis.tasks.families.document import EDITOR, noted
from apis.tasks.families.editor import save
from apis.tasks.family import DOCUMENTS, Family, Form, end_of, ends_so, home_getter, rule, setup
from apis.tasks.oracle import click, keys, pointed, switch
from apis.tasks.osworld import Evaluator, Step, data_url, launch, put, raised
from apis.tasks.programs import BOOKMARKS
from apis.tasks.verify import bookmarks
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import GUEST_HOME, FileView
from apis.tasks.view import Decide, Goal, Move, View
from apis.tasks.words import text_file, words

CHROME = "google_chrome"
TWIN = ".config/chromium/Default/EncryptedBookmarks2"  # Chromium writes it with the bookmarks
TWINS = ".config/chromium/Default/Sessions_Encrypted"  # there from the start where Chromium keeps twins
Mark = tuple[str, str, str]  # folder ("": none), title, path of the page below HOME


def page(title: str, text: str) -> str:
    """A page whose body is `text`, which is markup."""
    return f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>{text}\n"


def heading(title: str) -> str:
    """A page that says its title."""
    return page(title, f"<h1>{html.escape(title)}</h1>")


def show(pages: Sequence[tuple[str, str]], title: str) -> list[Step]:
    """Put pages (file name, content) into Documents and open them; `title` is the first one's."""
    steps = put((f"{DOCUMENTS}/{name}", data_url(text.encode())) for name, text in pages)
    # Chromium starts in HOME, so that its pages are found whatever that is called.
    command = (*app_named(CHROME).argv, *(f"Documents/{name}" for name, _ in pages))
    return [*steps, launch(*command), raised(f"{title} - Chromium")]


def leaves(_: Goal, before: Manifest) -> dict[str, Form]:
    """The twin of the bookmarks' file, of a Chromium that keeps such twins."""
    return {TWIN: bookmarks.is_twin} if TWINS in before.entries else {}


def written(marks: Sequence[Mark], home: str) -> dict[str, FileView]:
    """The profile's file with these bookmarks, as a look at it would find it."""
    found = bookmarks.written([(folder, title, f"file://{home}/{path}") for folder, title, path in marks])
    return {BOOKMARKS: FileView("file", found)}


def in_front(view: View, title: str) -> bool:
    """Whether the page of this title is the one that shows."""
    return view.title == f"{title} - Chromium"


def to_tab(view: View, title: str) -> Move | None:
    """The move that brings the tab of this title to the front; None when there is no such tab yet."""
    tab = view.find("page-tab", lambda element: element.label == title)
    return None if tab is None else click(view, tab)


STAR, FILLED = "Bookmark this tab", "Edit bookmark for this tab"
BOOKMARK = call("BrowserTools", "bookmark_page")


def titles(random: Random, split: str, count: int) -> list[str]:
    """Different titles of one or two words."""
    drawn = words(random, split, 2 * count)
    return [" ".join(drawn[2 * at : 2 * at + random.choice((1, 2))]).capitalize() for at in range(count)]


Made = tuple[str, str, str]  # title, file name and content


def pages(random: Random, split: str, count: int) -> list[Made]:
    """`count` pages with different titles."""
    names = words(random, split, count)
    called = titles(random, split, count)
    return [(title, f"{name}.html", heading(title)) for title, name in zip(called, names, strict=True)]


def asked(random: Random, split: str, family: str, page: Made, shown: Sequence[Made]) -> Goal:
    """To bookmark `page`, one of those that are `shown`."""
    title, name, _ = page
    (kind,) = wordings(family)
    return Goal(
        family=family,
        kind=kind,
        instruction=worded(random, family, kind, split, title=title),
        target=name,
        wanted=title,
        files=tuple((file, content) for _, file, content in shown),
        words=tuple(title for title, _, _ in shown),
    )


def _web_bookmark(random: Random, split: str) -> Goal:
    made = pages(random, split, random.choice((1, 1, 2, 3)))
    return asked(random, split, "web_bookmark", made[0], made)


def of_bookmarks(
    name: str, goal: Callable[[Random, str], Goal], routes: Mapping[str, Decide], *, marks: Callable[[Goal], list[Mark]]
) -> Family:
    """A family that is done when the profile's bookmarks are `marks`; of the goal's files the first one shows."""

    def evaluator(made: Goal) -> Evaluator:
        expected = rule(expected=[list(mark) for mark in marks(made)])
        return Evaluator(func="bookmarks_are", result=home_getter(BOOKMARKS), expected=expected)

    def values(made: Goal) -> set[str]:
        names = {name.removesuffix(".html") for name, _ in made.files}
        return names | {word for text in (*made.words, made.wanted) for word in text.lower().split()} - {""}

    return Family(
        name, (CHROME,), goal, lambda made: show(made.files, made.words[0]), evaluator,
        lambda made: written(marks(made), GUEST_HOME), routes, wordings(name), values, leaves=leaves,
    )  # fmt: skip


def one_mark(made: Goal) -> list[Mark]:
    """The page that the goal names, in no folder."""
    return [("", made.wanted, f"Documents/{made.target}")]


def _bookmark_by_gui(view: View) -> Move:
    by_mouse = view.route.random() < 0.5
    if move := _before_bookmark(view):
        return move
    star = view.find("push-button", lambda element: element.label == STAR)
    if by_mouse and star is not None:
        return click(view, star)
    return keys(f"{view.goal.wanted} -> bookmark", "ctrl", "d")


def _bookmark_by_tools(view: View) -> Move:
    if move := _before_bookmark(view):
        return move
    if view.did(BOOKMARK):  # the star is filled a moment later
        return "wait for the star", Wait()
    return f"{view.goal.wanted} -> bookmark", BOOKMARK


def _before_bookmark(view: View) -> Move | None:
    """What comes before bookmarking, and what after; None when it is to be done now."""
    title = view.goal.wanted
    if view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if not in_front(view, title):
        return to_tab(view, title) or ("wait for the page", Wait())
    if view.find("push-button", lambda element: element.label == FILLED):
        return "bookmarked -> done", Exit(success=True)
    return None


WEB_BOOKMARK = of_bookmarks(
    "web_bookmark", _web_bookmark, {"gui": _bookmark_by_gui, "api": _bookmark_by_tools}, marks=one_mark
)


def _web_tab(random: Random, split: str) -> Goal:
    made = pages(random, split, random.choice((2, 3, 3)))
    page = random.choice(made[1:])
    return asked(random, split, "web_tab", page, made)


WEB_TAB = of_bookmarks("web_tab", _web_tab, {"gui": _bookmark_by_gui, "mixed": _bookmark_by_tools}, marks=one_mark)


DIALOG = "Bookmark all tabs"
ALL = Hotkey(keys=("ctrl", "shift", "d"))


def _web_all(random: Random, split: str) -> Goal:
    made = pages(random, split, random.choice((2, 2, 3)))
    folder = " ".join(words(random, split, random.choice((1, 2, 2))))
    return Goal(
        kind="all",
        instruction=worded(random, "web_all", "all", split, folder=folder),
        target=made[0][1],
        wanted=folder,
        files=tuple((file, content) for _, file, content in made),
        words=tuple(title for title, _, _ in made),
    )


def all_marks(made: Goal) -> list[Mark]:
    """Every page, in the folder."""
    return [(made.wanted, title, f"Documents/{name}") for title, (name, _) in zip(made.words, made.files, strict=True)]


def _all_decide(view: View) -> Move:
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


WEB_ALL = of_bookmarks("web_all", _web_all, {"gui": _all_decide}, marks=all_marks)


def _web_note(random: Random, split: str) -> Goal:
    grid = table(random, split, random.choice((2, 2, 3)), random.choice((3, 4)))
    row, column = random.randint(1, len(grid) - 1), random.randint(1, len(grid[0]) - 1)
    title, name, stem, old = words(random, split, 4)
    item, asked, value = str(grid[row][0]), str(grid[0][column]), str(grid[row][column])
    file, shown = text_file(random, stem), f"{name}.html"
    content = page(title.capitalize(), _table(grid))
    return Goal(
        kind="value",
        instruction=worded(random, "web_note", "value", split, column=asked, item=item, file=file),
        target=file,
        wanted=value,
        files=((file, f"{old}\n"), (shown, content)),
        end=((file, f"{value}\n"), (shown, content)),
        words=(item, title, name, *(str(cell) for each in grid for cell in each)),
        front=CHROME,
    )


def _table(grid: Grid) -> str:
    head, *body = grid
    rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}' for cell in row)}" for row in body)
    return f"<table><tr>{''.join(f'<th>{escape(str(name))}' for name in head)}{rows}</table>"


def note_config(made: Goal) -> list[Step]:
    """The note is open in the editor, and the page in front of it."""
    note, page = made.files
    return [
        *setup(replace(made, files=(note,)), f"{DOCUMENTS}/{made.target}"),
        *show([page], made.words[1].capitalize()),
    ]


def _note_values(made: Goal) -> set[str]:
    return {*made.words, made.target.partition(".")[0], made.files[0][1].strip()}


def _note_decide(view: View) -> Move:
    goal = view.goal
    if noted(view, goal.wanted):
        if view.observation.app != EDITOR:
            return switch(view, EDITOR)
        return _write(view)
    if view.observation.app != CHROME:
        return switch(view, CHROME)
    if view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    cell = view.find("table-cell", lambda element: element.label == goal.wanted)
    if cell is None:
        return "wait for the page", Wait()
    return pointed(view, cell, f"{goal.words[0]}, keep"), Quote(content=goal.wanted)


def _write(view: View) -> Move:
    """Have the number as the whole text, and save it."""
    field, wanted = view.field(), view.goal.wanted
    if field is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") != wanted:
        return pointed(view, field, wanted), Type(coordinates=field, text=wanted, overwrite=True)
    return save(view, None, by_menu=False)


WEB_NOTE = Family(
    "web_note",
    (CHROME, EDITOR),
    _web_note,
    note_config,
    ends_so,
    end_of,
    {"gui": _note_decide},
    wordings("web_note"),
    _note_values,
)

FAMILIES = (WEB_BOOKMARK, WEB_TAB, WEB_NOTE, WEB_ALL)
