"""The name by which this program can be started again from the current folder.

Invariant: a hint that begins with `program()` does what it says when it is pasted into the shell that showed it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "computerrl"


def program() -> str:
    """`computerrl` where PATH finds this installation's, else the shorter of its relative and its absolute path.

    The word is quoted for a shell. An installation without such a file, as of Python modules alone, is `computerrl`.
    """
    started = Path(sys.argv[0])
    own = started if started.name == NAME else Path(sys.executable).with_name(NAME)  # -m and other programs
    found = shutil.which(NAME)
    if not own.exists() or (found is not None and os.path.samefile(found, own)):
        return NAME
    try:
        near = os.path.relpath(own)
    except FileNotFoundError:  # the current folder was removed
        return shlex.quote(str(own))
    return shlex.quote(min(near if "/" in near else f"./{near}", os.path.abspath(own), key=len))
