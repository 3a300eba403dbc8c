"""Chromium's and VLC's oracles without a desktop: what they do in which state, and that they never end too early."""

from __future__ import annotations

from typing import Any

import pytest

from apis.actions.gui import Action, Click, Exit, Hotkey, Quote, SwitchWindow, Tool, Type, Wait, line
from apis.observation import Observation, from_guest
from apis.plans.action import Call, plan
from apis.prompts.names import element_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families import vlc, web
from tests.apis.moves import moved

ROUTES = [
    (name, route)
    for name, family in sorted(tasks.FAMILIES.items())
    if family.app in ("google_chrome", "vlc")
    for route in sorted(family.routes)
]
WEB = ("web_bookmark", "web_tab")
Shown = tuple[str, str, str]  # tag, name, text
CHROME, VLC, MOUSEPAD = "Chromium", "vlc", "Mousepad"


def looked(wm_class: str, title: str, rows: list[Shown], info: str = "", other: str = "") -> Observation:
    windows = [{"id": 5, "class": wm_class, "title": title, "active": True}]
    windows += [{"id": 6, "class": other, "title": "behind", "active": False}] * bool(other)
    elements = [[tag, name, text, 5, 30 * n, 90, 20, ["sen", "edt"], 0] for n, (tag, name, text) in enumerate(rows)]
    return from_guest({"windows": windows, "elements": elements, "info": info})


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


def test_all_tabs_are_bookmarked_only_once_they_all_have_their_titles() -> None:
    task_id = "web_all/held-out/1"
    goal = tasks.goal(task_id)
    assert moved(task_id, browser(goal.words[1:], goal.words[0], "Bookmark this tab"), [], "gui") == Wait()
    ask = moved(task_id, first_look(task_id), [], "gui")
    assert ask == Hotkey(keys=("ctrl", "shift", "d"))
    dialog: Any = (("heading", "Bookmark all tabs", ""), ("entry", "Bookmark name", "New folder"))
    named = moved(task_id, browser(goal.words, goal.words[0], "Bookmark this tab", *dialog), [turn(ask)], "gui")
    assert isinstance(named, Type)
    assert (named.text, named.overwrite, named.enter) == (goal.wanted, True, True)
    assert moved(task_id, first_look(task_id), [turn(ask), turn(named)], "gui") == Exit(success=True)


def test_a_number_is_kept_before_the_page_is_left_and_stands_in_no_instruction() -> None:
    for seed in range(20):
        task_id = f"web_note/train/{seed}"
        goal = tasks.goal(task_id)
        assert goal.wanted not in goal.instruction
        kept = moved(task_id, first_look(task_id), [], "gui")
        assert kept == Quote(content=goal.wanted)
        assert moved(task_id, first_look(task_id), [turn(kept)], "gui") == SwitchWindow(window_id="w2")
        page_is_late = looked(CHROME, "Untitled - Chromium", [])
        assert moved(task_id, page_is_late, [], "gui") == Wait()


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


def test_a_setting_is_confirmed_by_the_step_that_types_it() -> None:
    for seed in range(12):
        task_id = f"vlc_setting/train/{seed}"
        goal = tasks.goal(task_id)
        tab, named = vlc.PLACES[goal.kind]
        assert moved(task_id, player(()), [], "gui") == Hotkey(keys=("ctrl", "p"))
        preferences = player((), vlc.SETTINGS_DIALOG, ("check-box", tab, ""))
        chosen = moved(task_id, preferences, [], "gui")
        assert element_names(preferences)[chosen.coordinates].label == tab  # type: ignore[attr-defined]
        typed = moved(task_id, player((), vlc.SETTINGS_DIALOG, ("text", named, "")), [], "gui")
        assert isinstance(typed, Type)
        assert typed.enter
        assert moved(task_id, player(()), [turn(typed)], "gui") == Exit(success=True)
        asked = moved(task_id, player(()), [], "api")
        assert moved(task_id, player(()), [turn(asked)], "api") == Exit(success=True)


def test_only_an_end_beside_a_browser_waits_for_what_it_writes() -> None:
    assert plan(Exit(success=True), browser((), "Plum", "Bookmark this tab")).calls == (Call("keep"),)
    assert plan(Exit(success=True), player(())).calls == ()
