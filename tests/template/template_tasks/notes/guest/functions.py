"""Its functions inside a desktop, under the system's Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from guest import Refused


def call(name: str, arguments: dict[str, Any]) -> str:
    """Carry a function out; what the model reads. Raises Refused."""
    if name != "add":
        raise Refused("bad_request", f"no function {name}")
    file = Path.home() / "notes"
    with file.open("a", encoding="utf-8") as notes:
        notes.write(f"{arguments['text']}\n")
    return f"{len(file.read_text('utf-8').splitlines())} notes"


def info() -> str:
    """What its window shows."""
    return ""
