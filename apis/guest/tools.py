"""Application functions by name, and what applications say of their documents.

Invariant: only the public methods of the classes listed here can be called; every answer is a bounded text, in time.
"""

from __future__ import annotations

import importlib
from typing import Any

from guest.errors import Refused
from guest.office import Office

TOOL_S = 10.0  # less than the host waits
INFO_S = 0.3
TEXT_CHARS = 5000
OWNERS = {"CalcTools": "guest.calc"}  # class -> its module, which needs the office's Python and is loaded when called
CLASSES = {"libreoffice-calc": "guest.calc"}  # window class -> the module that describes its document


class Tools:
    """The functions of all applications."""

    def __init__(self) -> None:
        self._office = Office()

    def call(self, owner: str, name: str, arguments: dict[str, Any]) -> str:
        """Call a function; what it says. Raises Refused `tool_failed`, or `bad_request` for one that there is not."""
        module = OWNERS.get(owner)
        if module is None or name.startswith("_") or not isinstance(arguments, dict):
            raise Refused("bad_request", f"no function {owner[:80]}.{name[:80]}")

        def work(desktop: Any, current: Any) -> str:
            tools = importlib.import_module(module).tools(desktop, current)
            function = getattr(tools, name, None)
            if function is None:
                raise Refused("bad_request", f"no function {owner[:80]}.{name[:80]}")
            return str(function(**arguments))[:TEXT_CHARS]

        return self._office.call(name, work, TOOL_S)

    def warm(self, window_class: str) -> None:
        """Be ready for calls to the application of a window that has just opened."""
        if window_class.lower().startswith("libreoffice"):
            self._office.warm()

    def info(self, window_class: str) -> str:
        """What the document of an active window of this class holds; why not, where its application does not say."""
        module = CLASSES.get(window_class.lower())
        if module is None:
            return ""
        try:
            text = self._office.call(
                "info", lambda *on: importlib.import_module(module).info(*on), INFO_S, connect_s=0.0
            )
        except Refused as refused:
            return f"not known: {refused}"[:TEXT_CHARS]
        return str(text)[:TEXT_CHARS]
