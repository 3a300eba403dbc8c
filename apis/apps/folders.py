"""The folders of applications: each folder here that has a module `app` is an application.

Invariant: lists of applications have the order below. An application that the order does not name comes last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from apis.discovery import folders

ORDER = ("text_editor", "file_manager", "terminal", "calc", "writer", "impress", "vlc", "code", "chromium")


def parts(part: str) -> Iterator[tuple[str, ModuleType]]:
    """The modules called `part`, each with the name of its application's folder."""
    return folders(sys.modules[__package__], part, ORDER)
