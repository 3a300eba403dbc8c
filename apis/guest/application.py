"""What the guest knows of an application that has functions, and the one thread on which its functions run.

Invariant: nothing waits longer than its caller's deadline, and at most one piece of work of an application is under
way. While a call is stuck, later ones are refused at once.
"""

from __future__ import annotations

import importlib
import os
import queue
import threading
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from guest import Refused


class Application(NamedTuple):
    """An application with functions. The packages of setup are in deploy/setup/*-packages.txt."""

    owner: str  # class of its functions
    title: str  # by which a model knows it
    classes: tuple[str, ...]  # of its windows, in lower case
    programs: tuple[str, ...] = ()  # what starts it
    office: bool = False  # the office runs its functions inside itself, with the document in front
    prepares: str = ""  # module whose `prepare` is called once, before anything is started
    late: bool = False  # it writes its files a while after a change, and has `keep`, which waits for that
    slow: bool = False  # its window shows before it can be used, and it has `ready`, which tells
    module: str = ""  # of its functions; found by its folder


# The folder here that has its functions -> the application.
OWN = {
    "calc": Application("CalcTools", "Calc", ("libreoffice-calc",), office=True),
    "chromium": Application("BrowserTools", "Chromium", ("chromium-browser", "chromium"), ("chromium",), late=True),
    "code": Application("CodeTools", "VS Code", ("code", "codium"), ("code",), slow=True),
    "impress": Application("ImpressTools", "Impress", ("libreoffice-impress",), office=True),
    "vlc": Application("VLCTools", "VLC", ("vlc",), ("vlc",), prepares="guest.vlc.start"),
    "writer": Application("WriterTools", "Writer", ("libreoffice-writer",), office=True),
}


def declared() -> tuple[Application, ...]:
    """These applications, and those of other packages, whose folders here have a module `application`."""
    names = sorted(place.parent.name for place in Path(__file__).parent.glob("*/application.py"))
    brought = {name: importlib.import_module(f"guest.{name}.application").APPLICATION for name in names}
    return tuple(app._replace(module=f"guest.{name}.functions") for name, app in (OWN | brought).items())


def command_lines(names: Container[str]) -> Iterator[bytes]:
    """The words of every process called so that has not ended, however it was started."""
    for entry in os.listdir("/proc"):
        process = Path("/proc", entry)
        try:
            called = entry.isdigit() and (process / "comm").read_bytes().decode("utf-8", "replace").strip() in names
            words = (process / "cmdline").read_bytes() if called else b""  # none of one that has ended
        except OSError:  # it ended meanwhile
            continue
        if words:
            yield words.replace(b"\0", b" ")


STUCK_S = 10.0  # a call that has lasted this long is not waited for any more


class _Job:
    """One piece of work for the thread, and what came of it once it has ended."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name, self.work, self.started_s = name, work, time.monotonic()
        self.ended = threading.Event()
        self.value: Any = None
        self.refused: Refused | None = None

    def ends(self, until: float) -> bool:
        return self.ended.wait(max(0.0, until - time.monotonic()))


class Lane:
    """The thread, made when first needed; `title` is what a model knows the application by."""

    def __init__(self, title: str, described: Callable[[Exception], str] | None = None) -> None:
        self._title = title
        self._said = described or _said
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: _Job | None = None

    @property
    def free(self) -> bool:
        return self._last is None or self._last.ended.is_set()

    def call(self, name: str, work: Callable[[], Any], timeout_s: float) -> Any:
        """What `work` returns. Raises Refused `tool_failed`, also at the deadline."""
        until, last = time.monotonic() + timeout_s, self._last
        if last is not None and not last.ends(min(until, last.started_s + STUCK_S)):
            since_s = time.monotonic() - last.started_s
            raise Refused("tool_failed", f"{self._title} has been busy with {last.name} for {since_s:.1f} s")
        job = self.start(name, work)
        if not job.ends(until):
            text = f"{name}: {self._title} did not answer within {timeout_s:g} s; what was asked may still happen"
            raise Refused("tool_failed", text)
        if job.refused is not None:
            raise job.refused
        return job.value

    def start(self, name: str, work: Callable[[], Any]) -> _Job:
        """Have `work` done after what is under way, without waiting for it."""
        job = self._last = _Job(name, work)
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._title, daemon=True)
            self._thread.start()
        return job

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.value = job.work()
            except Refused as refused:
                job.refused = refused
            except Exception as error:  # noqa: BLE001 - the job's caller gets it
                job.refused = Refused("tool_failed", f"{job.name}: {self._said(error)}")
            job.ended.set()


def _said(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}{': ' + text[:200] if text else ''}"
