"""Waits until an observation shows what a case wants.

Invariant: a look ends by its deadline, and what was there instead stands in the finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from apis.apps.check.case import Desk, NotSo

REST = {"timeout_ms": 5000, "quiet_ms": 100}
SHOWN = 12  # elements that a finding names
Holds = Callable[[dict[str, Any]], bool]


async def look(desk: Desk, what: str, holds: Holds, *, wait_s: float) -> None:
    """Look until an observation holds. Raises NotSo after `wait_s` seconds."""
    until = time.monotonic() + wait_s
    while True:
        await desk.call("settle", **REST)
        observed = await desk.call("observe")
        if holds(observed):
            return
        if time.monotonic() > until:
            elements = [(element[0], element[1]) for element in observed["elements"]][:SHOWN]
            titles = [window["title"] for window in observed["windows"]]
            raise NotSo(f"no {what}; there are {elements} in {titles}, and {observed['info']!r}")


def has(tag: str, name: str) -> Holds:
    """Whether an element of this tag and name shows."""
    return lambda observed: any(element[0] == tag and element[1] == name for element in observed["elements"])
