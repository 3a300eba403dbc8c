"""LibreOffice, reached over one UNO connection by a pipe of this session's own.

Invariant: nothing here waits longer than its caller's deadline. UNO calls block for as long as the office likes, so all
of them run in one thread; while a call is stuck there, later ones are refused at once, and the death of the office
ends it. The connection is made anew when the office was started again. No document is ever closed.
"""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest.errors import Refused

PROGRAMS = {"soffice", "libreoffice", "localc", "lowriter", "loimpress"}
CONNECT_S = 2.0  # an office that has just been started takes a while until it listens
ASK_AGAIN_S = 10.0
STUCK_S = 10.0  # a call that has lasted this long is not waited for any more
LOOK_S = 0.02


def pipe_name() -> str:
    """The session's own name for the pipe: LibreOffice puts all of a user's pipes into one folder."""
    mark = os.environ.get("COMPUTERRL_DESKTOP", "") + os.environ.get("XDG_RUNTIME_DIR", "")
    return "crl" + hashlib.blake2b(mark.encode(), digest_size=12).hexdigest()


def reachable(argv: list[str]) -> list[str]:
    """`argv`, made to listen on the pipe where it starts the office."""
    if not argv or os.path.basename(argv[0]) not in PROGRAMS or any(part.startswith("--accept") for part in argv):
        return argv
    return [argv[0], f"--accept=pipe,name={pipe_name()};urp;StarOffice.ComponentContext", *argv[1:]]


def _running() -> bool:
    """Whether there is an office, whoever started it."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and Path(f"/proc/{entry}/comm").read_text() == "soffice.bin\n":
                return True
        except OSError:  # it ended meanwhile
            continue
    return False


class _Job:
    """One piece of work for the thread."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.work = work
        self.started_s = time.monotonic()
        self.done = threading.Event()
        self.value: Any = None
        self.error: Exception | None = None


class Office:
    """The connection and the thread that uses it; both are made when first needed."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: _Job | None = None
        self._desktop: Any = None
        self._again_s = self._ask_s = 0.0  # when to try again
        self._messenger: subprocess.Popen[bytes] | None = None

    def call(self, name: str, work: Callable[[Any, Any], Any], timeout_s: float, connect_s: float = CONNECT_S) -> Any:
        """What `work` makes of the office's desktop object and the component in front.

        Raises Refused `tool_failed`, also at the deadline.
        """
        started_s = time.monotonic()
        last = self._last
        if last is not None and not last.done.wait(max(0.0, min(timeout_s, last.started_s + STUCK_S - started_s))):
            since = time.monotonic() - last.started_s
            raise Refused("tool_failed", f"LibreOffice has been busy with {last.name} for {since:.1f} s")
        job = self._start(name, lambda: work(*self._connected(connect_s)))
        if not job.done.wait(max(0.0, started_s + timeout_s - time.monotonic())):
            text = f"{name}: LibreOffice did not answer within {timeout_s:g} s; what was asked may still happen"
            raise Refused("tool_failed", text)
        if job.error is not None:
            raise job.error
        return job.value

    def warm(self) -> None:
        """Begin to connect, so that the first call finds a connection; nobody waits for it here."""
        now_s = time.monotonic()
        if self._desktop is None and now_s >= self._again_s and (self._last is None or self._last.done.is_set()):
            self._again_s = now_s + ASK_AGAIN_S
            self._start("the start", lambda: self._connected(CONNECT_S))

    def _start(self, name: str, work: Callable[[], Any]) -> _Job:
        job = self._last = _Job(name, work)
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="office", daemon=True)
            self._thread.start()
        return job

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.value = job.work()
            except Refused as refused:
                job.error = refused
            except Exception as error:  # noqa: BLE001 - whoever waits for the job gets it
                job.error = Refused("tool_failed", f"{job.name}: {_said(error)}")
            finally:
                job.done.set()

    def _connected(self, wait_s: float) -> tuple[Any, Any]:
        """The office's desktop object, on a connection that answers, and the component in front."""
        if self._desktop is not None:
            try:
                return self._desktop, self._desktop.getCurrentComponent()
            except Exception as error:  # of a class that the bridge makes
                if not _of_bridge(error):
                    raise
                self._desktop = None
        import uno  # late, for it costs 10 MB and changes how modules are imported

        here = uno.getComponentContext()
        resolver = here.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", here)
        until = time.monotonic() + wait_s
        while True:
            try:
                there = resolver.resolve(f"uno:pipe,name={pipe_name()};urp;StarOffice.ComponentContext")
                break
            except Exception as error:
                if not _of_bridge(error):
                    raise
                if not _running():
                    raise Refused("tool_failed", "LibreOffice is not running: open it first") from error
                if time.monotonic() >= until:
                    raise Refused("tool_failed", "LibreOffice can't be reached: it is still starting") from error
                if wait_s and time.monotonic() >= until - wait_s / 2:  # no office of ours, which would listen by now
                    self._ask()
                time.sleep(LOOK_S)
        self._desktop = there.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", there)
        return self._desktop, self._desktop.getCurrentComponent()

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


def document(desktop: Any, current: Any, service: str, kind: str, wait_s: float) -> Any:
    """The document in front, `current`, when it is of that service, or else the newest of it.

    Right after a start no document is current yet. Raises Refused `tool_failed`.
    """
    until = time.monotonic() + wait_s
    while True:
        if _is(current, service):
            return current
        found = None
        listed = desktop.Components.createEnumeration()
        while listed.hasMoreElements():
            each = listed.nextElement()
            found = each if _is(each, service) else found
        if found is not None:
            return found
        if time.monotonic() >= until:
            raise Refused("tool_failed", f"no {kind} is open")
        time.sleep(LOOK_S)
        current = desktop.getCurrentComponent()


def _is(component: Any, service: str) -> bool:
    try:
        return component is not None and component.supportsService(service)
    except AttributeError:  # not every component says what it is
        return False


def _of_bridge(error: Exception) -> bool:
    """Whether an exception comes from the office or the connection to it, and not from a defect here."""
    return hasattr(error, "typeName") and type(error).__name__.startswith("com.sun.star.")


def _said(error: Exception) -> str:
    """An UNO exception's own message, or else its type."""
    text = str(getattr(error, "Message", "") or error).split(" at ./")[0].strip()
    return f"{type(error).__name__.rpartition('.')[2]}{': ' + text[:200] if text else ''}"
