"""What an instance of a family asks for.

Invariant: a goal is a value. Task, oracle and verifier of an instance are made from it and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """What an instance asks for. `kind` is the family's own word for the manner of task."""

    kind: str
    instruction: str
    target: str = ""  # file or folder name the task is about
    wanted: str = ""  # text or name that shall be there in the end
    files: tuple[tuple[str, str], ...] = ()  # what lies in Documents at the start: name, content
    end: tuple[tuple[str, str | None], ...] = ()  # all that lies there in the end, where a family says so; None: folder
    words: tuple[str, ...] = ()  # what else its oracle needs, in an order of the family's own
    front: str = ""  # the application whose window is in front at the start, where there are two
    family: str = ""  # its name, which the family fills in
