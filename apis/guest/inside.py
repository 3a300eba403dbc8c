"""The functions of office applications, inside the office itself: it loads this file as a component of its own.

Invariant: what is asked for and what comes of it are one text each, so a call crosses the connection once, however many
objects it handles; only the modules listed here are called, and every failure comes back as a text, too.

An object that is handed out over a connection costs its receiver some ten questions on what it can do; here none.

Asked: JSON [what, module, name, arguments], with `what` "tool", "info" or "pid"; answered: JSON [kind, text],
kind "" where all went well, and else that of a refusal.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import unohelper
from com.sun.star.task import XJob

FOLDER = str(Path(__file__).resolve().parent.parent)
if FOLDER not in sys.path:  # the office runs this file alone, by its name
    sys.path.append(FOLDER)

from guest.errors import Refused  # noqa: E402 - found by the line above
from guest.office import IMPLEMENTATION, said  # noqa: E402
from guest.tools import OWNERS, public  # noqa: E402


class Inside(unohelper.Base, XJob):
    """Carries out one call after the other, for whoever is connected."""

    def __init__(self, context: Any) -> None:
        self._desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)

    def execute(self, arguments: Any) -> str:
        """What came of the call that the first argument describes."""
        what, module, name, given = json.loads(arguments[0].Value)
        try:
            told = ["", self.done(what, module, name, given)]
        except Refused as refused:
            told = [refused.kind, str(refused)]
        except Exception as error:  # noqa: BLE001 - whoever asked gets it as a text
            told = ["tool_failed", f"{name}: {said(error)}"]
        return json.dumps(told)

    def done(self, what: str, module: str, name: str, arguments: dict[str, Any]) -> str:
        """Carry out one call; its answer. Raises Refused, and whatever the office raises."""
        if what == "pid":
            return str(os.getpid())
        if module not in OWNERS.values():
            raise Refused("bad_request", f"no module {module[:80]}")
        application = importlib.import_module(module)
        front = self._desktop, self._desktop.getCurrentComponent()
        if what == "tool":
            return public(application.tools(*front), name, arguments)
        return str(application.info(*front))


g_ImplementationHelper = unohelper.ImplementationHelper()  # noqa: N816 - the name that the office looks for
g_ImplementationHelper.addImplementation(Inside, IMPLEMENTATION, ())
