"""VS Code's window: asking it, and the program `code` of a desktop, which starts it or has it open files and folders.

The window is asked over the socket of its helper extension or, to switch an extension off, over DevTools. The first
`code` lasts as long as the window and takes the server along. A later one only says to that window what to open.
Nothing lasts beyond `until`, a moment of `time.monotonic`; every failure is a Refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from guest import Refused
from guest.chromium.devtools import DevTools, left
from guest.code import start as code_start
from guest.code.start import EXTENSIONS, LOCK
from guest.files import wrong

MOST_BYTES = 1 << 20
LOOK_S = 0.02
HANGS_S = 1.0  # a window that answered before and now says nothing for so long is held by something
State = dict[str, Any]
_FLOCK = "hhqqi4x"  # struct flock of Linux on 64 bits: type, whence, start, length, process
_WHOLE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class Late(Refused):
    """The window has not come to what was asked for; it may still."""


def place() -> str:
    """The socket of the window that was loaded last."""
    return os.path.join(os.environ["XDG_RUNTIME_DIR"], "code.sock")


def hold(lock: IO[str]) -> bool:
    """Take the window's lock for as long as the file is open; False where another has it."""
    try:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _WHOLE)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as the file system likes
        return False
    return True


def running() -> bool:
    """Whether there is a window, even a loading one. The question disturbs no start."""
    try:
        with Path(os.environ["XDG_RUNTIME_DIR"], LOCK).open() as lock:
            taken = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _WHOLE)
    except FileNotFoundError:
        return False
    return bool(struct.unpack(_FLOCK, taken)[0] != fcntl.F_UNLCK)


def ready(wait_s: float) -> bool:
    """Whether there is a window that answers."""
    try:
        _exchange("state", time.monotonic() + wait_s, {})
    except (OSError, ValueError):
        return False
    return True


def ask(method: str, until: float, **words: Any) -> State:
    """What the helper answers, of a window that is loading once it has been. Raises Refused, Late among them."""
    why = "VS Code does not answer: a dialog or a busy window may hold it"
    while True:
        try:
            return _value(_exchange(method, until, words))
        except TimeoutError as error:
            raise Late("tool_failed", why) from error
        except (OSError, ValueError) as error:
            if not running():
                raise wrong("VS Code is not open: open it first") from error
            why = "VS Code is still loading its window: wait and try again"
            if time.monotonic() + LOOK_S >= until:
                raise Late("tool_failed", why) from error
            time.sleep(LOOK_S)


def wait(true: Callable[[State], bool], until: float) -> State:
    """The first state that is as wanted. Raises Refused, Late at `until`."""
    late, answered = Late("tool_failed", "VS Code has not shown it yet: look again later"), False
    while True:
        asked = time.monotonic()
        try:
            now = ask("state", until)
        except Late:
            if answered and time.monotonic() - asked < HANGS_S:  # the deadline cut the last question short
                raise late from None
            raise
        if true(now):
            return now
        answered = True
        if time.monotonic() + LOOK_S >= until:
            raise late
        time.sleep(LOOK_S)


def _exchange(method: str, until: float, words: dict[str, Any]) -> dict[str, Any]:
    """One request and its answer. Raises OSError, TimeoutError among them, and ValueError for no answer at all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(left(until))
        link.connect(place())
        link.sendall(json.dumps({"method": method, **words}).encode() + b"\n")
        heard = b""
        while not heard.endswith(b"\n"):
            link.settimeout(left(until))
            piece = link.recv(1 << 16)
            heard += piece
            if not piece or len(heard) > MOST_BYTES:
                raise ConnectionError("no whole answer")
    answer: dict[str, Any] = json.loads(heard)
    return answer


def _value(answer: dict[str, Any]) -> State:
    if "error" in answer:
        raise Refused("tool_failed", f"VS Code says: {str(answer['error'])[:300]}")
    value: State = answer["value"]
    return value


_SWITCH = Path(__file__).with_name("switch.js").read_text()


def switch_off(extension_id: str, until: float) -> bool:
    """Put an extension on the list; False where it was there already. Raises Refused."""
    expression = f"({_SWITCH})({json.dumps(extension_id.lower())})"
    asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
    try:
        link = DevTools.of_profile(code_start.WINDOW_PROFILE, until)
        try:
            session = link.ask("Target.attachToTarget", {"targetId": _page(link, until), "flatten": True}, until)
            result = link.ask("Runtime.evaluate", asked, until, str(session["sessionId"]))
        finally:
            link.close()
    except (OSError, ValueError) as error:
        raise wrong("VS Code's window can't be reached: close it and open it again") from error
    if "exceptionDetails" in result:
        raise wrong("VS Code's window did not take the change: close it and open it again")
    return bool(result["result"].get("value"))


def _page(link: DevTools, until: float) -> str:
    """The target that shows the editor. Raises OSError."""
    for each in link.ask("Target.getTargets", {}, until)["targetInfos"]:
        if each["type"] == "page" and each["url"].startswith(f"http://{code_start.HOST}:{code_start.PORT}/"):
            return str(each["targetId"])
    raise ConnectionError("no window of the editor")


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
    extensions = []
    for row in rows if isinstance(rows, list) else []:
        try:
            about = _json(folder() / str(row["relativeLocation"]).rpartition("/")[2] / "package.json")
            extensions.append(
                Installed(
                    str(row["identifier"]["id"]).lower(), str(row["version"]),
                    tuple(map(str, about.get("categories", []))), about.get("preview") is True,
                )
            )  # fmt: skip
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # one that is just going, or was never whole
    return sorted(extensions)


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
        if not hold(lock):
            return _tell(names)
        return _keep(names)


def _list() -> int:
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


def show(name: str, until: float, line: int = 1, character: int = 1) -> State:
    """Open a file or a folder in the window; what it shows then. Raises Refused, Late among them."""
    if not os.path.isdir(name):
        return ask("openFile", until, path=name, line=line, character=character)
    before = ask("state", until)
    if before["folders"] == [name] and before["folderCount"] == 1:
        return before
    ask("openFolder", until, path=name)
    return wait(lambda now: now["born"] != before["born"] and now["folders"] == [name], until)


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
    output = server.stdout
    assert output is not None
    timer = threading.Timer(SERVER_S, server.kill)  # its end closes the pipe; closing it here would wait for the reader
    timer.start()
    try:
        listens = any(line.startswith(code_start.READY) for line in iter(output.readline, ""))
    finally:
        timer.cancel()
    if listens:
        threading.Thread(target=deque, args=(output, 0), daemon=True).start()
    return listens


def _stop(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)
