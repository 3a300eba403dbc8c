"""The functions of office applications, inside the office itself: it loads this file as a component of its own.

Invariant: only the modules of office applications are called, and every failure comes back as a text, too. Documents
are touched on the office's main thread alone. That thread answers the accessibility bus without the lock that a
connection's calls hold: a shape that another thread takes away meanwhile would end the office.

Asked: JSON [what, module, name, arguments, again]. `what` is "tool", "info", "cells" or "pid"; `again` says that there
was input since the last call. Answered: JSON [kind, text], kind "" where all went well, and else that of a refusal.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import unohelper
from com.sun.star.awt import XCallback
from com.sun.star.task import XJob

FOLDER = str(Path(__file__).resolve().parents[2])
if FOLDER not in sys.path:  # the office runs this file alone, by its name
    sys.path.append(FOLDER)

from guest import Refused  # noqa: E402 - found by the line above
from guest.office.office import IMPLEMENTATION, LOOK_S, Absent, document, said  # noqa: E402
from guest.tools import BY_OWNER, TOOL_S, public  # noqa: E402

DOCUMENT_S = 3.0  # for a document that is being opened
BEGIN_S = TOOL_S - 1  # until the main thread is free; the caller still hears that it was not


class _Turn:
    """One piece of work for the main thread; not begun once its caller has gone.

    No future of the library: it allocates while it is locked. An object of the office's that is collected then waits
    for the main thread, which waits for that lock.
    """

    def __init__(self, work: Callable[[], str]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._taken = False
        self._done = threading.Event()
        self._answer = ""
        self._error: Exception | None = None

    def take(self) -> bool:
        """Do it, on the main thread, if somebody still waits for it; whether that was so."""
        if not self._take():
            return False
        try:
            self._answer = self._work()
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            self._error = error
        finally:
            self._done.set()
        return True

    def answer(self) -> str:
        """What came of it. Raises what the work raised, and Refused `tool_failed` where it could not begin in time."""
        if not self._done.wait(BEGIN_S) and self._take():
            raise Refused("tool_failed", "LibreOffice is busy: nothing was done; look at its window and try again")
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._answer

    def _take(self) -> bool:
        """Whether it is the caller's to decide on: once only."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken


class Inside(unohelper.Base, XJob, XCallback):
    """Carries out one call after the other, for any connection.

    It is also what the main thread calls: the office knows it already, and to know a new object costs 0.1 ms.
    """

    def __init__(self, context: Any) -> None:
        self._desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
        self._turns: SimpleQueue[_Turn] = SimpleQueue()
        self._main = context.ServiceManager.createInstanceWithContext("com.sun.star.awt.AsyncCallback", context)

    def execute(self, arguments: Any) -> str:
        """What came of the call that the first argument describes."""
        what, module, name, given, fresh = json.loads(arguments[0].Value)
        try:
            reply = ["", str(os.getpid()) if what == "pid" else self._on_main(what, module, name, given, fresh)]
        except Refused as refused:
            reply = [refused.kind, str(refused)]
        except Exception as error:  # noqa: BLE001 - the caller gets it as a text
            reply = ["tool_failed", f"{name}: {said(error)}"]
        return json.dumps(reply)

    def notify(self, _: Any) -> None:
        """Take the next turn that somebody waits for; the office calls this on its main thread, once for each."""
        with contextlib.suppress(Empty):
            while not self._turns.get_nowait().take():
                pass

    def _on_main(self, what: str, module: str, name: str, arguments: dict[str, Any], fresh: bool) -> str:
        """Have the main thread carry out one call; again while the document is still being opened."""
        until = time.monotonic() + (DOCUMENT_S if what == "tool" else 0.0)
        while True:
            turn = _Turn(lambda: self.done(what, module, name, arguments, fresh=fresh))
            self._turns.put(turn)
            self._main.addCallback(self, None)
            try:
                return turn.answer()
            except Absent:
                if time.monotonic() >= until:
                    raise
            time.sleep(LOOK_S)  # here, for the main thread is the one that opens it

    def done(self, what: str, module: str, name: str, arguments: dict[str, Any], *, fresh: bool = True) -> str:
        """Carry out one call; its answer. Raises Refused, and whatever the office raises."""
        if module not in {app.module for app in BY_OWNER.values() if app.office}:
            raise Refused("bad_request", f"no module {module[:80]}")
        application = importlib.import_module(module)
        kind = application.TOOLS
        front = document(self._desktop, self._desktop.getCurrentComponent(), kind._service, kind._sort or kind._kind)
        tools = kind(front)
        if what == "cells":
            return str(application.cells(tools, **arguments))
        if what != "tool":
            return str(tools._info())
        if name not in tools._reading:
            tools._editable()
        if fresh:
            tools._begin()
        return public(tools, name, arguments)


g_ImplementationHelper = unohelper.ImplementationHelper()  # noqa: N816 - the name that the office looks for
g_ImplementationHelper.addImplementation(Inside, IMPLEMENTATION, ())
