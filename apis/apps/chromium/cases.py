"""Chromium: what each function did is read from the browser itself, by what it shows and by the profile it writes.

Invariant: no case believes an answer alone; pages are files of the desktop's HOME, for it has no network.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from apis.apps.check.case import Case, Desk, NotSo, Step, Table, told, want
from apis.apps.check.look import has, look

ONE, TWO = "Documents/one.html", "Documents/two.html"
BOOKMARKS = ".config/chromium/Default/Bookmarks"
WAIT_S = 20.0  # for a page to be drawn, on a busy machine; Chromium writes bookmarks 2.5 s late
AGAIN_S = 0.1


def _page(title: str, text: str) -> bytes:
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{text}</h1>".encode()


def _files() -> Mapping[str, bytes]:
    return {ONE: _page("Plum &amp; fig", "Plums"), TWO: _page("Two", "Second page")}


def _shows(title: str, *parts: str) -> Callable[[Desk, str], Any]:
    """The front tab carries the title, and the answer the parts."""

    async def effect(desk: Desk, answer: str) -> None:
        for part in parts:
            want(part in answer, f"the answer lacks {part!r}: {answer}")

        def holds(looked: dict[str, Any]) -> bool:
            return f"{title} - Chromium" in [each["title"] for each in looked["windows"] if each["active"]]

        await look(desk, f"window {title!r}", holds, wait_s=WAIT_S)

    return effect


def _dialog(button: str) -> Callable[[Desk, str], Any]:
    """A dialog with the button is open."""

    async def effect(desk: Desk, _: str) -> None:
        await look(desk, f"button {button!r}", has("push-button", button), wait_s=WAIT_S)

    return effect


def _front(path: str, title: str) -> Step:
    """Have the page in front, in a new tab."""

    async def show(desk: Desk) -> None:
        await desk.call("launch", argv=["chromium", f"file://{desk.home}/{path}"])
        await look(
            desk,
            f"tab {title!r}",
            lambda looked: f"| file://{desk.home}/{path}" in _active(looked["info"]),
            wait_s=WAIT_S,
        )

    return show


def _active(info: str) -> str:
    """The line of the active tab in the window in front."""
    return next((line for line in info.splitlines() if line.startswith("*")), "")


async def _closed(desk: Desk) -> None:
    await _front(TWO, "Two")(desk)
    open_now = _count(await told(desk))
    await desk.call("hotkey", keys=["ctrl", "w"])
    await look(desk, "closed tab", lambda looked: _count(looked["info"]) < open_now, wait_s=WAIT_S)


def _count(info: str) -> int:
    """How many tabs the window in front has."""
    first = info.partition("\n")[0]
    return int(first.removeprefix("tabs: ")) if first.startswith("tabs: ") else 0


async def _back(desk: Desk, answer: str) -> None:
    want("'Two'" in answer, f"the answer does not name the tab: {answer}")
    await _shows("Two")(desk, answer)


async def _marked(desk: Desk, _: str) -> None:
    await look(desk, "filled star", has("push-button", "Edit bookmark for this tab"), wait_s=WAIT_S)
    want("| bookmarked" in _active(await told(desk)), "the tabs do not tell of the bookmark")


async def _one_marked(desk: Desk) -> None:
    await _front(ONE, "Plum & fig")(desk)
    await desk.tool("bookmark_page")


async def _read(desk: Desk) -> Any:
    """The bookmarks bar of the profile, once it has been written."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            bar = json.loads(await desk.contents(BOOKMARKS))["roots"]["bookmark_bar"]["children"]
            if bar:
                return bar
        except (NotSo, ValueError, KeyError) as error:
            if time.monotonic() > until:
                raise NotSo(f"the profile has no bookmarks: {error}") from error
        if time.monotonic() > until:
            raise NotSo("the profile's bookmarks bar stays empty")
        await asyncio.sleep(AGAIN_S)


def _kept(bar: Any) -> None:
    found = [(mark["name"], mark["url"].rpartition("/")[2]) for mark in bar]
    want(found == [("Plum & fig", "one.html")], f"the bookmarks bar holds {found}")


def _case(function: str, says: str, effect: Callable[[Desk, str], Any], **more: Any) -> Case:
    return Case(function=function, says=says, effect=effect, **more)


CASES = (
    _case("bookmark_page", "'Plum & fig' (file:///", _marked, before=_front(ONE, "Plum & fig"), saved=_kept),
    _case("bring_back_last_tab", "two.html) is open again", _back, each=_closed),
    _case("open_profile_settings", "chrome://settings/people is open\nprofile: ",
          _shows("Settings - You and Google", "signed in: no")),
    _case("open_password_settings", "chrome://password-manager/settings is open\noffer to save passwords: on",
          _shows("Password Manager", "saved passwords: 0")),
    _case("open_privacy_settings", "chrome://settings/privacy is open\nsafe browsing: ",
          _shows("Settings - Privacy and security", "third-party cookies: ", "do not track: off")),
    _case("open_appearance_settings", "chrome://settings/appearance is open\ntheme: ",
          _shows("Settings - Appearance", "font size: 16", "page zoom: 100 %")),
    _case("open_search_engine_settings", "chrome://settings/search is open\nsearch engine in use: ",
          _shows("Settings - Search engine", "- Google (google.com)")),
    _case("open_extensions", "chrome://extensions/ is open", _shows("Extensions", "Desktop functions 1.0: on")),
    _case("open_bookmarks", "chrome://bookmarks/ is open", _shows("Bookmarks", "Bookmarks bar: Plum & fig | file:///"),
          before=_one_marked),
    _case("delete_browsing_data", "\nticked: Browsing history", _dialog("Delete from this device")),
    _case("print", "destination: Save as PDF\nsheets: 1 page", _dialog("Save"), before=_front(ONE, "Plum & fig"),
          light=False),
)  # fmt: skip

TABLE = Table(
    app="google_chrome",
    owner="BrowserTools",
    cases=CASES,
    files=_files,
    opens=(f"file://{{home}}/{ONE}",),
    title="Chromium",
    read=_read,
)
