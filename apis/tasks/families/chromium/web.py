"""What families on Chromium have in common: pages that lie in Documents, each in a tab, and the profile's bookmarks.

Invariant: pages need no network and run no script; the first page's tab is in front at the start.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from apis.applications import app_named
from apis.tasks.family import DOCUMENTS, Form
from apis.tasks.goal import Goal
from apis.tasks.oracle import click
from apis.tasks.osworld import HOME, Step, data_url, launch, put, raised
from apis.tasks.programs import BOOKMARKS
from apis.tasks.verify import bookmarks
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Move, View

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


def bookmarks_getter() -> dict[str, str]:
    """The getter of the profile's bookmarks."""
    return {"type": "vm_file", "path": f"{HOME}/{BOOKMARKS}", "dest": "Bookmarks"}


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
