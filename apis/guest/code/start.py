"""How VS Code is started on a desktop: its server, and Chromium as its window.

Invariant: pure. The server listens on the desktop's own loopback, always at the same port. What the window keeps by
address is found again. Nothing is fetched from anywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlencode

EDITOR = "/opt/computerrl/vscode"  # where the desktop sees what set-up has installed
PORT = 8931
HOST = "127.0.0.1"
WM_CLASS = "code"
USER_DATA = ".config/Code"  # of HOME; the editor's own places
EXTENSIONS = ".vscode/extensions"
WINDOW_PROFILE = ".cache/code-window"
ENVIRONMENT = {"EXTENSIONS_GALLERY": "{}"}  # of the server: there is none to be reached
READY = "Extension host agent listening on"  # what the server prints once it can be connected to
REMOTE = "vscode-remote://remote"
LOCK = "code.lock"  # of the session's folder, held while there is a window
# The window is Chromium's: its flags are those of every Chromium on a desktop, from Debian's start script, and these.
WINDOW = ("--disable-extensions",)


def server(home: str, editor: str = EDITOR) -> list[str]:
    """The server's command."""
    return [
        f"{editor}/bin/node",
        "--max-old-space-size=512",
        f"{editor}/server/out/server-main.js",
        *("--host", HOST, "--port", str(PORT)),
        *("--user-data-dir", f"{home}/{USER_DATA}", "--extensions-dir", f"{home}/{EXTENSIONS}"),
        *("--telemetry-level", "off", "--log", "error"),
        "--without-connection-token",
        "--accept-server-license-terms",
        "--disable-telemetry",
        "--disable-update-check",
        "--disable-workspace-trust",
        "--disable-getting-started-override",
        "--force-disable-user-env",
    ]


def address(folder: str = "", file: str = "", line: int = 1, character: int = 1) -> str:
    """The window's address, with a folder or a file to open in it."""
    query: dict[str, str] = {"folder": folder} if folder else {"ew": "true"}
    if file:
        place = f"{REMOTE}{quote(file)}"
        words = [f'["openFile","{place}:{line}:{character}"]', '["gotoLineMode","true"]']
        query["payload"] = f"[{','.join(words)}]"
    return f"http://{HOST}:{PORT}/?{urlencode(query)}"


def window(home: str, shown: str) -> list[str]:
    """The window's command; `shown` is its address."""
    return ["chromium", *WINDOW, f"--user-data-dir={home}/{WINDOW_PROFILE}", f"--class={WM_CLASS}", f"--app={shown}"]


def paths(argv: Sequence[str]) -> list[str]:
    """The files and folders among the words of a command line."""
    return [word for word in argv if not word.startswith("-")]
