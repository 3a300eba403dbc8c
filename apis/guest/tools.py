"""Application functions by name, and what applications say of their documents.

Invariant: only the public methods of the classes listed here can be called; every answer is a bounded text, in time.
The office is called on its own connection with the document in front; every other application has a module with

    call(name, arguments) -> str    carry out a function; Refused `bad_request` for one that there is not
    info() -> str                   what its window shows now
    reachable(argv) -> list[str]    its command, made to listen for the two above

The module runs on a thread of its application and may block there. Callers wait no longer than the deadline.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from typing import Any

from guest import Refused
from guest.addresses import Place
from guest.application import Application, Lane, declared
from guest.built.calls import Calls
from guest.office import office
from guest.office.office import Call

TOOL_S = 10.0  # less than the host waits
START_S = 22.0  # where an application is started for it
INFO_S = 0.3
SIGHT_S = 1.0  # the first time, it includes the connection
TEXT_CHARS = 5000
STATE_CHARS = 256 << 10
BY_OWNER = {app.owner: app for app in declared()}
BY_CLASS = {name: app for app in BY_OWNER.values() for name in app.classes}
BY_PROGRAM = {name: app for app in BY_OWNER.values() for name in app.programs}
CALC, BROWSER = BY_OWNER["CalcTools"], BY_OWNER["BrowserTools"]


def reachable(argv: list[str]) -> list[str]:
    """`argv`, made to listen where it starts an application that has functions."""
    app = BY_PROGRAM.get(os.path.basename(argv[0])) if argv else None
    made: list[str] = office.reachable(argv) if app is None else _module(app).reachable(argv)
    return made


def usable(window_class: str) -> bool:
    """Whether the application of a window that shows can be used by now."""
    app = BY_CLASS.get(window_class.lower())
    return app is None or not app.slow or bool(_module(app).ready())


def _module(app: Application) -> Any:
    """Its functions; the office's need the office's own Python."""
    return importlib.import_module(app.module)


class Tools:
    """The functions of all applications."""

    def __init__(self) -> None:
        self._office = office.Office()
        self.built = Calls()
        self._lanes: dict[str, Lane] = {}

    def call(self, owner: str, name: str, arguments: dict[str, Any], *, fresh: bool = True) -> str:
        """Call a function; what it says. `fresh`: there was input since the last call of this owner's.

        Raises Refused `tool_failed`, or `bad_request` for one that there is not.
        """
        if isinstance(arguments, dict) and self.built.has(owner, name):
            return self.built.call(owner, name, arguments)
        app = BY_OWNER.get(owner)
        if app is None or name.startswith("_") or not isinstance(arguments, dict):
            raise Refused("bad_request", f"no function {owner[:80]}.{name[:80]}")
        if app.office:
            return self._office.ask(Call("tool", app.module, name, arguments, fresh), TOOL_S)[:TEXT_CHARS]
        return self._beside(app, name, lambda: _module(app).call(name, arguments), TOOL_S)

    def _beside(
        self, app: Application, name: str, work: Callable[[], Any], timeout_s: float, most: int = TEXT_CHARS
    ) -> str:
        return str(self._lane(app).call(name, work, timeout_s))[:most]

    def _lane(self, app: Application) -> Lane:
        return self._lanes.setdefault(app.module, Lane(app.title))

    def keep(self, window_classes: list[str]) -> None:
        """Wait until the applications of these windows have written what was changed. Raises Refused `tool_failed`."""
        for app in BY_OWNER.values():
            if app.late and any(shown.lower() in app.classes for shown in window_classes):
                self._beside(app, "keep", _module(app).keep, TOOL_S)

    def state(self, owner: str) -> str:
        """What an application says of itself, as JSON; of the functions' class `owner`. Raises Refused."""
        if (app := BY_OWNER.get(owner)) is None or app.office:
            raise Refused("bad_request", f"no application {owner[:80]}")
        return self._beside(app, "state", lambda: _module(app).state(), TOOL_S, STATE_CHARS)

    def tabs(self, opened: list[str], closed: list[str]) -> None:
        """Open and close tabs of the browser that runs. Raises Refused."""
        self._beside(BROWSER, "tabs", lambda: _module(BROWSER).tabs(opened, closed), TOOL_S)

    def visited(self, visits: list[Any]) -> None:
        """Put visits, each an address, a title and how many seconds ago, into the browser's history. Raises Refused."""
        self._beside(BROWSER, "visited", lambda: _module(BROWSER).visited(visits), START_S)

    def sight(self, window_class: str, url: str, title: str, elements: list[list[Any]]) -> Any:
        """What the page that a window shows says of its elements; None where it does not."""
        if window_class.lower() not in BROWSER.classes:
            return None
        module = _module(BROWSER)
        try:
            return self._lane(BROWSER).call("sight", lambda: module.sight(url, title, elements), SIGHT_S)
        except Refused:
            return None

    def prepare(self) -> None:
        """Make applications that need it reachable, however they are started."""
        for app in BY_OWNER.values():
            if app.prepares and any(os.path.exists(f"{place}/{app.programs[0]}") for place in os.get_exec_path()):
                importlib.import_module(app.prepares).prepare()

    def warm(self, window_class: str) -> None:
        """Be ready for calls to the application of a window that has just opened."""
        shown = window_class.lower()
        if shown.startswith("libreoffice"):  # a first look loads modules and meets objects for the first time
            self._office.warm(BY_CLASS[shown].module if shown in BY_CLASS else "")

    def info(self, window_class: str) -> str:
        """What the document of an active window of this class holds; why not, where its application does not say."""
        if (app := BY_CLASS.get(window_class.lower())) is None:
            return ""
        try:
            if app.office:
                return self._office.ask(Call("info", app.module, "info"), INFO_S)[:TEXT_CHARS]
            return self._beside(app, "info", lambda: _module(app).info(), INFO_S)
        except Refused as refused:
            return f"not known: {refused}"[:TEXT_CHARS]

    def cells(self, first: Place, last: Place) -> dict[Place, str] | None:
        """What the filled cells of the sheet in front show, by row and column; None where Calc does not say."""
        area = {"first": first, "last": last}
        try:
            rows = json.loads(self._office.ask(Call("cells", CALC.module, "cells", area), INFO_S))
        except Refused:
            return None
        return {(row, column): text for row, column, text in rows}


def public(tools: Any, name: str, arguments: dict[str, Any]) -> str:
    """What the method `name` of `tools` says. Raises Refused `bad_request` for one that there is not."""
    function = None if name.startswith("_") else getattr(tools, name, None)
    if not callable(function):
        raise Refused("bad_request", f"no function {type(tools).__name__}.{name[:80]}")
    return str(function(**arguments))
