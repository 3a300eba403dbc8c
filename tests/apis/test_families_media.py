"""Chromium's and VLC's oracles without a desktop: what they do in which state, and that they never end too early."""

from __future__ import annotations

import pytest

from apis.actions.gui import Action, Click, Exit, Hotkey, Tool, Type, Wait, line
from apis.observation import Observation
from apis.plans.action import Call, plan
from apis.prompts.compact import element_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families import vlc, web
from tests.apis.moves import moved, screen

ROUTES = [
    (name, route)
    for name, family in sorted(tasks.FAMILIES.items())
    if family.app in ("google_chrome", "vlc")
    for route in sorted(family.routes)
]
WEB = ("web_bookmark", "web_tab")
Shown = tuple[str, str, str]  # tag, name, text
CHROME, VLC, MOUSEPAD = "Chromium", "vlc", "Mousepad"


def looked(wm_class: str, title: str, shown: list[Shown], info: str = "", other: str = "") -> Observation:
    rows = [[tag, name, text, 5, 30 * n, 90, 20, ["sen", "edt"], 0] for n, (tag, name, text) in enumerate(shown)]
    return screen(wm_class, title, rows, other, info=info)


def browser(titles: tuple[str, ...], front: str, star: str, *more: Shown, other: str = "") -> Observation:
    tabs = [("page-tab", title, "") for title in titles]
    return looked(CHROME, f"{front} - Chromium", [("push-button", star, ""), *tabs, *more], other=other)


def player(names: tuple[str, ...], title: str = "VLC media player", *rows: Shown) -> Observation:
    entries = "".join(f"\n  {n}: ~/Music/{name}, 1 s" for n, name in enumerate(names, 1))
    return looked(VLC, title, [("menu-item", "Media", ""), *rows], f"stopped\nplaylist: {len(names)}{entries}")


def first_look(task_id: str) -> Observation:
    goal = tasks.goal(task_id)
    if goal.family == "web_note":
        cells = (("table-cell", "", word) for word in goal.words[3:])
        return looked(CHROME, "Page - Chromium", list(cells), other=MOUSEPAD)
    if tasks.family(task_id).app == "vlc":
        return player(goal.words[:-1] if goal.kind == "add" else goal.words)
    return browser(goal.words, goal.words[0], web.STAR)


def turn(action: Action) -> Turn:
    return Turn("", line(action), "")


@pytest.mark.parametrize(("family", "route"), [(name, route) for name, route in ROUTES if name in WEB])
def test_a_page_is_bookmarked_only_when_it_shows(family: str, route: str) -> None:
    for seed in range(20):
        task_id = f"{family}/train/{seed}"
        goal = tasks.goal(task_id)
        other = browser((*goal.words, "Other"), "Other", web.FILLED)
        chosen = moved(task_id, other, [], route, seed)
        assert element_names(other)[chosen.coordinates].label == goal.wanted  # type: ignore[attr-defined]
        assert moved(task_id, browser((), "Other", web.STAR), [], route, seed) == Wait()
        there = browser(goal.words, goal.wanted, web.STAR)
        by_turns = family == "web_bookmark" and route == "mixed"
        ways = (Click, Hotkey, Tool) if by_turns else (Click, Hotkey) if route == "gui" else Tool
        assert isinstance(moved(task_id, there, [], route, seed), ways)
        done = browser(goal.words, goal.wanted, web.FILLED)
        assert moved(task_id, done, [], route, seed) == Exit(success=True)


@pytest.mark.parametrize("route", ["gui", "mixed"])
def test_a_playlist_is_saved_only_with_the_new_file_in_it(route: str) -> None:
    task_id = "vlc_playlist/train/4"
    goal = tasks.goal(task_id)
    added = moved(task_id, first_look(task_id), [], route)
    assert isinstance(added, Hotkey if route == "gui" else Tool)
    full = player(goal.words)
    assert moved(task_id, full, [turn(added)], route) == Hotkey(keys=("ctrl", "y"))
    field = ("text", vlc.NAME_FIELD, "")
    too_early = player(goal.words[:-1], vlc.SAVE, field)
    assert moved(task_id, too_early, [], route) == Hotkey(keys=("esc",))
    named = moved(task_id, player(goal.words, vlc.SAVE, field), [turn(added)], route)
    assert isinstance(named, Type)
    assert named.text == f"~/Music/{goal.wanted}"
    assert moved(task_id, full, [turn(named)], route) == Exit(success=True)


def test_only_an_end_beside_a_browser_waits_for_what_it_writes() -> None:
    assert plan(Exit(success=True), browser((), "Plum", "Bookmark this tab")).calls == (Call("keep"),)
    assert plan(Exit(success=True), player(())).calls == ()
