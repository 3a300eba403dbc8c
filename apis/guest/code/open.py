"""The program `code` of a desktop: opens files and folders in the editor's window, which it starts where there is none.

Invariant: there is one server and one window per desktop. The first `code` lasts as long as the window and takes the
server along when it ends. A later one only tells that window what to open.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from guest.code import link as code_link
from guest.code import start as code_start
from guest.code.start import EXTENSIONS
from guest.errors import Refused
from guest.files import wrong

MOST_BYTES = 1 << 20


class Installed(NamedTuple):
    """One extension."""

    id: str
    version: str
    categories: tuple[str, ...]
    pre_release: bool


def folder() -> Path:
    """Where they lie."""
    return Path(os.environ["HOME"], EXTENSIONS)


def installed() -> list[Installed]:
    """All of them by id. Raises Refused where the list can't be read."""
    try:
        rows = _json(folder() / "extensions.json")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise wrong(f"the editor's list of extensions can't be read: {type(error).__name__}") from error
    found = []
    for row in rows if isinstance(rows, list) else []:
        try:
            about = _json(folder() / str(row["relativeLocation"]).rpartition("/")[2] / "package.json")
            found.append(
                Installed(
                    str(row["identifier"]["id"]).lower(), str(row["version"]),
                    tuple(map(str, about.get("categories", []))), about.get("preview") is True,
                )
            )  # fmt: skip
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # one that is just going, or was never whole
    return sorted(found)


def _json(place: Path) -> Any:
    with place.open("rb") as file:
        return json.loads(file.read(MOST_BYTES))


READY_S = 40.0  # until a window answers that has just been started
SERVER_S = 30.0
STOP_S = 3.0
LIST = "--list-extensions"


def main(argv: list[str]) -> int:
    """Open the files and folders named, or list the extensions; the exit status."""
    if LIST in argv:
        return _list()
    names = [os.path.abspath(name) for name in code_start.paths(argv)]
    lost = next((name for name in names if not os.path.exists(name)), None)
    if lost is not None:
        sys.stderr.write(f"code: there is no {lost}\n")
        return 1
    with Path(os.environ["XDG_RUNTIME_DIR"], code_start.LOCK).open("w") as lock:
        if not code_link.hold(lock):
            return _tell(names)
        return _keep(names)


def _list() -> int:
    """Print the extensions, each in a line."""
    try:
        sys.stdout.writelines(f"{each.id}\n" for each in installed())
    except Refused as refused:
        sys.stderr.write(f"code: {refused}\n")
        return 1
    return 0


def _tell(names: list[str]) -> int:
    """Have the window that there is open them."""
    until = time.monotonic() + READY_S
    try:
        for name in names:
            show(name, until)
    except Refused as refused:
        sys.stderr.write(f"code: {refused}\n")
        return 1
    return 0


def show(name: str, until: float, line: int = 1, character: int = 1) -> code_link.State:
    """Open a file or a folder in the window; what it shows then. Raises Refused, Late among them."""
    if not os.path.isdir(name):
        return code_link.ask("openFile", until, path=name, line=line, character=character)
    found = code_link.ask("state", until)
    if found["folders"] == [name] and found["folderCount"] == 1:
        return found
    code_link.ask("openFolder", until, path=name)
    return code_link.wait(lambda now: now["born"] != found["born"] and now["folders"] == [name], until)


def _keep(names: list[str]) -> int:
    """Start server and window; ends when the window does."""
    home = os.environ["HOME"]
    Path(home, code_start.EXTENSIONS).mkdir(parents=True, exist_ok=True)
    server = subprocess.Popen(
        code_start.server(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **code_start.ENVIRONMENT},
    )
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, _end)
    try:
        if not _listening(server):
            sys.stderr.write("code: the editor's server did not start\n")
            return 1
        folder = next((name for name in names if os.path.isdir(name)), "")
        first = next((name for name in names if not os.path.isdir(name)), "")
        window = subprocess.Popen(code_start.window(home, code_start.address(folder, first)), stdin=subprocess.DEVNULL)
        try:
            for name in names:
                if name not in (folder, first):
                    _tell([name])
            return window.wait()
        finally:
            _stop(window)
    finally:
        _stop(server)


def _listening(server: subprocess.Popen[str]) -> bool:
    """Whether the server says in time that it can be connected to; what it says later is thrown away."""
    said = server.stdout
    assert said is not None
    timer = threading.Timer(SERVER_S, server.kill)  # its end closes the pipe; closing it here would wait for the reader
    timer.start()
    try:
        found = any(line.startswith(code_start.READY) for line in iter(said.readline, ""))
    finally:
        timer.cancel()
    if found:
        threading.Thread(target=_drain, args=(said,), daemon=True).start()
    return found


def _drain(said: IO[str]) -> None:
    while said.read(1 << 12):
        pass


def _stop(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)
