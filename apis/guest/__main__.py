"""Entry of the guest's programs: `python3 -I FOLDER session|attach|agent|sweep|code|canvas ...`.

Modules come from this folder and the system alone, whatever lies in the current folder or the environment.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

PARTS = {
    "session": ("guest.session.session", "main"),
    "attach": ("guest.session.session", "attach"),
    "sweep": ("guest.session.session", "sweep_left"),
    "agent": ("guest.agent", "main"),
    "code": ("guest.code.link", "main"),
    "canvas": ("guest.canvas", "main"),
}


def main() -> int:
    """Run the part named by the first argument; the rest are its own."""
    here = Path(__file__).resolve().parent
    sys.path[0] = str(here.parent)  # the folder's parent, so that `guest` is a package
    part, *rest = sys.argv[1:]
    module, name = PARTS[part]
    status: int = getattr(importlib.import_module(module), name)(rest)
    return status


if __name__ == "__main__":
    sys.exit(main())
