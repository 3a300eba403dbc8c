"""Tells a person that the disk of a run refuses, and when it is over.

Invariant: looking leaves nothing behind. A refusal is reported once, with the folder and what to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from runtime.disk import refusal

LOOK_S = 10.0  # no event tells of a disk that has filled up


async def watch(folder: Path, note: Callable[[str], None], look_s: float = LOOK_S) -> None:
    """Look every `look_s` seconds until cancelled."""
    since: float | None = None
    while True:
        if why := await asyncio.to_thread(refusal, folder):
            if since is None:
                since = time.monotonic()
                note(f"the disk of {folder} takes no more: {why}")
        elif since is not None:
            note(f"the disk of {folder} takes bytes again after {time.monotonic() - since:.0f} s: the run goes on")
            since = None
        await asyncio.sleep(look_s)
