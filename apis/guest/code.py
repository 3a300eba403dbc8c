"""VS Code, which no desktop has yet: every function is refused with what is missing.

Invariant: nothing is started, and no answer pretends that something happened.
"""

from __future__ import annotations

from typing import Any

from guest.errors import Refused

MISSING = "VS Code is not installed on this desktop: use another application for the file"


def call(name: str, arguments: dict[str, Any]) -> str:
    """Raises Refused, always."""
    raise Refused("tool_failed", f"{name}({', '.join(arguments)}): {MISSING}")


def info() -> str:
    """Nothing is known of a window that is not ours."""
    return ""


def reachable(argv: list[str]) -> list[str]:
    """`argv` as it is."""
    return argv
