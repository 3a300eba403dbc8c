"""Where VS Code lies on this machine, if `make vscode` has put it here.

Invariant: an editor that the desktops' users can't read counts as missing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

PLACE = "COMPUTERRL_VSCODE"  # the variable that names another folder
STAMP = ".computerrl"  # written last by set-up
ELSEWHERE = "/opt/computerrl-vscode"
_PROJECT = Path(__file__).resolve().parents[3]


def place() -> Path | None:
    """The editor's folder, beside the sources or where the variable says; None where it can't be used."""
    return None if lacking() else _folder()


def lacking() -> str:
    """Why there is no editor, in one line; "" where there is one."""
    found = _folder()
    if not os.path.isfile(found / STAMP):  # also False where this user may not look
        return "VS Code is not set up"
    closed = _closed(found)
    return f"VS Code lies where the desktops' users can't go: {closed} is closed to them" if closed else ""


def mend() -> str:
    """The command that makes up for what is lacking."""
    found = _folder()
    return "make vscode" if _closed(found) is None else f"export {PLACE}={ELSEWHERE}; make vscode"


def _folder() -> Path:
    own = os.environ.get(PLACE)
    return Path(own).absolute() if own else _PROJECT / ".cache" / "vscode"


def _closed(found: Path) -> Path | None:
    """The first folder on the way that others may not pass, where this user is not the desktops' own."""
    if os.geteuid() != 0:
        return None
    way = [folder for folder in (*reversed(found.parents), found) if os.path.exists(folder)]
    return next((folder for folder in way if not folder.stat().st_mode & stat.S_IXOTH), None)
