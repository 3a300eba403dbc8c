"""LibreOffice, reached over one UNO connection by a pipe of this session's own.

UNO calls block for as long as the office likes, so all of them run in one `Lane`. A call is one question to
`guest.office.inside`, which the office runs within itself.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from guest import Refused
from guest.application import Lane, command_lines

PROGRAMS = {"soffice", "libreoffice", "localc", "lowriter", "loimpress"}
CONNECT_S = 2.0  # an office that has just been started takes a while until it listens
ASK_AGAIN_S = 10.0
LOOK_S = 0.02
ENDS_S = 1.0  # from the end of the connection to that of the process
INSIDE = Path(__file__).with_name("inside.py")
IMPLEMENTATION = "computerrl.guest.Inside"


def pipe_name() -> str:
    """The session's own name for the pipe: LibreOffice puts all of a user's pipes into one folder."""
    import hashlib  # late: it loads OpenSSL

    mark = os.environ.get("COMPUTERRL_DESKTOP", "") + os.environ.get("XDG_RUNTIME_DIR", "")
    return "crl" + hashlib.blake2b(mark.encode(), digest_size=12).hexdigest()


def reachable(argv: list[str]) -> list[str]:
    """`argv`, made to listen on the pipe where it starts the office."""
    if not argv or os.path.basename(argv[0]) not in PROGRAMS or any(part.startswith("--accept") for part in argv):
        return argv
    return [argv[0], f"--accept=pipe,name={pipe_name()};urp;StarOffice.ComponentContext", *argv[1:]]


class Call(NamedTuple):
    """What is asked of `guest.office.inside`, which says what the words mean."""

    what: str
    module: str = ""
    name: str = ""
    arguments: dict[str, Any] = {}
    fresh: bool = True


class Office:
    """The connection and the thread that uses it; both are made when first needed."""

    def __init__(self) -> None:
        self._lane = Lane("LibreOffice", said)
        self._inside: Any = None
        self._process = -1  # of the office, as a descriptor that can be read from once it has ended
        self._again_s = self._ask_s = 0.0  # when to try again
        self._messenger: subprocess.Popen[bytes] | None = None

    def ask(self, call: Call, timeout_s: float) -> str:
        """What the office says to `call`; only one of a function waits for an office that still starts.

        Raises Refused `tool_failed`, also at the deadline, and `bad_request` for a function that there is not.
        """
        connect_s = CONNECT_S if call.what == "tool" else 0.0
        return str(self._lane.call(call.name, lambda: self._asked(call, connect_s), timeout_s))

    def warm(self, module: str) -> None:
        """Begin to connect and to look, so that the first call finds all of that done, without waiting for it."""
        now_s = time.monotonic()
        if self._lane.free and (self._inside is not None or now_s >= self._again_s):
            self._again_s = now_s + ASK_AGAIN_S
            self._lane.start("the start", lambda: self._begin(module))

    def _begin(self, module: str) -> None:
        if module:
            self._asked(Call("info", module, "info"), CONNECT_S)
        else:
            self._connected(CONNECT_S)

    def _asked(self, call: Call, connect_s: float) -> str:
        inside = self._connected(connect_s)
        try:
            refusal, text = _answer(inside, call)
        except Exception as error:
            if not _of_bridge(error):
                raise
            self._inside = None  # the connection has ended, for all else comes back as a text
            raise Refused("tool_failed", f"{call.name}: {self._cut()}") from error
        if refusal:
            raise Refused(refusal, text)
        return text

    def _cut(self) -> str:
        """Why the connection ended, and what to do."""
        if select.select([self._process], [], [], ENDS_S)[0]:
            return "LibreOffice ended during the call: open it again; what was not saved may be lost"
        return "LibreOffice closed the connection during the call: look at what it shows before you call again"

    def _connected(self, wait_s: float) -> Any:
        """What runs within the office, on a connection to one that lives."""
        if self._inside is not None and not select.select([self._process], [], [], 0.0)[0]:
            return self._inside
        self._inside = None
        there = self.reached(wait_s)
        loader = there.ServiceManager.createInstanceWithContext("com.sun.star.loader.Python", there)
        made = loader.activate(IMPLEMENTATION, "", INSIDE.as_uri(), None)
        inside = made.createInstanceWithContext(there)
        process = os.pidfd_open(int(_answer(inside, Call("pid"))[1]))
        if self._process >= 0:
            os.close(self._process)
        self._inside, self._process = inside, process
        return inside

    def reached(self, wait_s: float) -> Any:
        """The office's own context, over a new connection. Raises Refused `tool_failed`."""
        import uno  # late, for it costs 10 MB and changes how modules are imported

        here = uno.getComponentContext()
        resolver = here.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", here)
        until = time.monotonic() + wait_s
        while True:
            try:
                there = resolver.resolve(f"uno:pipe,name={pipe_name()};urp;StarOffice.ComponentContext")
                self._ask_s = 0.0  # this office has heard; the next one, which may start at once, has not
                return there
            except Exception as error:
                if not _of_bridge(error):
                    raise
                if not any(command_lines({"soffice.bin"})):
                    raise Refused("tool_failed", "LibreOffice is not running: open it first") from error
                if time.monotonic() >= until:
                    raise Refused("tool_failed", "LibreOffice can't be reached: it is still starting") from error
                if wait_s and time.monotonic() >= until - wait_s / 2:  # no office of ours, which would listen by now
                    self._ask()
                time.sleep(LOOK_S)

    def _ask(self) -> None:
        """Have an office that the user started listen, too: a second start hands its arguments to the first."""
        now_s = time.monotonic()
        if self._messenger is not None and self._messenger.poll() is None:
            return
        if now_s >= self._ask_s:
            self._ask_s = now_s + ASK_AGAIN_S
            argv = reachable(["soffice", "--nodefault", "--norestore", "--nologo"])
            null = subprocess.DEVNULL
            self._messenger = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null, start_new_session=True)


def _answer(inside: Any, call: Call) -> tuple[str, str]:
    """What `guest.office.inside` says: "" or the kind of a refusal, and a text."""
    import uno

    asked = uno.createUnoStruct("com.sun.star.beans.NamedValue")
    asked.Name, asked.Value = "call", json.dumps(call)
    kind, text = json.loads(inside.execute((asked,)))
    return str(kind), str(text)


class Absent(Refused):
    """There is no document of an application; right after a start there soon may be."""


def document(desktop: Any, current: Any, service: str, kind: str) -> Any:
    """The document in front, `current`, when it is of that service, or else the newest of it. Raises Absent."""
    if _is(current, service):
        return current
    newest = None
    listed = desktop.Components.createEnumeration()  # without `guest.office.base`, which needs the office's Python
    while listed.hasMoreElements():
        each = listed.nextElement()
        newest = each if _is(each, service) else newest
    if newest is None:
        raise Absent("tool_failed", f"no {kind} is open")
    return newest


def _is(component: Any, service: str) -> bool:
    try:
        return component is not None and component.supportsService(service)
    except AttributeError:  # not every component says what it is
        return False


def _of_bridge(error: Exception) -> bool:
    """Whether an exception comes from the office or the connection to it, and not from a defect here."""
    return hasattr(error, "typeName") and type(error).__name__.startswith("com.sun.star.")


def said(error: Exception) -> str:
    """An UNO exception's own message, or else its type."""
    text = str(getattr(error, "Message", "") or error).split(" at ./")[0].strip()
    return f"{type(error).__name__.rpartition('.')[2]}{': ' + text[:200] if text else ''}"
