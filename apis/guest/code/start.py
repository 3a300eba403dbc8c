"""How VS Code is started on a desktop: its server, Chromium as its window, and the extensions that can be had there.

The server listens on the desktop's loopback, always at the same port: what the window keeps by address is known again.
Packing the same extension gives the same bytes, and none of them has a program.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
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


PUBLISHER = "computerrl"
CATEGORIES = (
    "AI", "Azure", "Chat", "Data Science", "Debuggers", "Education", "Extension Packs", "Formatters", "Keymaps",
    "Language Packs", "Linters", "Machine Learning", "Notebooks", "Programming Languages", "SCM Providers", "Snippets",
    "Testing", "Themes", "Visualization", "Other",
)  # fmt: skip
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_ENGINE = "^1.80.0"


class Offered(NamedTuple):
    """One version of an extension; `files` holds the text of each file it has besides its manifest."""

    name: str
    version: str
    category: str
    about: str
    contributes: dict[str, Any]
    files: dict[str, str]
    pre_release: bool = False

    @property
    def id(self) -> str:
        return f"{PUBLISHER}.{self.name}"


def _offered(row: dict[str, Any]) -> Offered:
    files = {name: json.dumps(content) for name, content in row.pop("files").items()}
    return Offered(**row, files=files)


OFFERED = tuple(map(_offered, json.loads(Path(__file__).with_name("extensions.json").read_text())))


def order(version: str) -> tuple[int, ...]:
    """A version as what it is compared by; anything but numbers counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def best(extension_id: str, pre_release: bool) -> Offered | None:
    """The newest version of an extension; one under test only when asked for."""
    wanted = [
        offered
        for offered in OFFERED
        if offered.id == extension_id.lower() and (pre_release or not offered.pre_release)
    ]
    return max(wanted, key=lambda offered: order(offered.version), default=None)


def ids() -> list[str]:
    """All that can be had."""
    return sorted({offered.id for offered in OFFERED})


def packed(offered: Offered) -> bytes:
    """The extension as a .vsix file."""
    manifest = {
        "name": offered.name,
        "publisher": PUBLISHER,
        "displayName": offered.name.replace("-", " ").capitalize(),
        "description": offered.about,
        "version": offered.version,
        "engines": {"vscode": _ENGINE},
        "categories": [offered.category],
        "contributes": offered.contributes,
        "preview": offered.pre_release,
    }
    into = BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in {"package.json": json.dumps(manifest), **offered.files}.items():
            file.writestr(zipfile.ZipInfo(f"extension/{name}", _LONG_AGO), text)
    return into.getvalue()
