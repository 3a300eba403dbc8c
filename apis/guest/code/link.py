"""Asking VS Code's window, over the socket of its helper extension or, to switch an extension off, over DevTools.

Invariant: nothing here lasts beyond `until`, a moment of `time.monotonic`, and nothing is read past `MOST_BYTES`. Every
failure is a Refused that a model can read.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from guest.chromium.devtools import DevTools
from guest.code import start as code_start
from guest.code.start import LOCK
from guest.errors import Refused
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
            found = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _WHOLE)
    except FileNotFoundError:
        return False
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


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
            found = ask("state", until)
        except Late:
            if answered and time.monotonic() - asked < HANGS_S:  # the deadline cut the last question short
                raise late from None
            raise
        if true(found):
            return found
        answered = True
        if time.monotonic() + LOOK_S >= until:
            raise late
        time.sleep(LOOK_S)


def _exchange(method: str, until: float, words: dict[str, Any]) -> dict[str, Any]:
    """One request and its answer. Raises OSError, TimeoutError among them, and ValueError for no answer at all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        _patience(link, until)
        link.connect(place())
        link.sendall(json.dumps({"method": method, **words}).encode() + b"\n")
        heard = b""
        while not heard.endswith(b"\n"):
            _patience(link, until)
            piece = link.recv(1 << 16)
            heard += piece
            if not piece or len(heard) > MOST_BYTES:
                raise ConnectionError("no whole answer")
    found: dict[str, Any] = json.loads(heard)
    return found


def _patience(link: socket.socket, until: float) -> None:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    link.settimeout(left)


def _value(found: dict[str, Any]) -> State:
    if "error" in found:
        raise Refused("tool_failed", f"VS Code says: {str(found['error'])[:300]}")
    value: State = found["value"]
    return value


PORT_FILE = "DevToolsActivePort"
_SWITCH = """(async (id) => {
  const name = 'vscode-web-state-db-global', store = 'ItemTable', key = 'extensionsIdentifiers/disabled';
  const done = (asked) => new Promise((good, bad) => {
    asked.onsuccess = () => good(asked.result);
    asked.onerror = () => bad(asked.error);
  });
  const database = await done(indexedDB.open(name));
  try {
    const table = database.transaction(store, 'readwrite').objectStore(store);
    const off = JSON.parse((await done(table.get(key))) ?? '[]');
    if (off.some((each) => each.id.toLowerCase() === id)) return false;
    const value = JSON.stringify([...off, {id}]);
    await done(table.put(value, key));
    const channel = new BroadcastChannel(name);
    channel.postMessage({changed: new Map([[key, value]])});
    channel.close();
    return true;
  } finally {
    database.close();
  }
})"""


def switch_off(extension_id: str, until: float) -> bool:
    """Put an extension on the list; False where it was there already. Raises Refused."""
    expression = f"{_SWITCH}({json.dumps(extension_id.lower())})"
    asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
    try:
        port, path = Path(os.environ["HOME"], code_start.WINDOW_PROFILE, PORT_FILE).read_text()[:200].split()
        link = DevTools(int(port), path, until)
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
