"""How to bookmark a page: by the keyboard or the star beside its address, or by Chromium's function.

Invariant: nothing is bookmarked before the right page shows, and the end comes only when the star says that it is.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Wait
from apis.apps.catalogue import call
from apis.tasks.families.chromium import web
from apis.tasks.oracle import click, keys
from apis.tasks.view import Move, View

STAR, FILLED = "Bookmark this tab", "Edit bookmark for this tab"
BOOKMARK = call("BrowserTools", "bookmark_page")


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
