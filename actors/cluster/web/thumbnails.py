"""Small pictures of what seats showed last.

Invariant: a picture is made when a browser asks for it, two at a time, and the newest are kept up to a bound.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

import msgspec

from actors.cluster.report.small import small
from actors.cluster.runs import ledgers
from actors.replay.database import queries
from runtime.errors import ComputerRLError
from runtime.segments import read_blob

MOST_BYTES = 32 << 20  # of all that are kept
AT_ONCE = 2


class Thumbnails:
    """The last screenshot of an episode, small."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, int], bytes] = OrderedDict()
        self._bytes = 0
        self._room = asyncio.Semaphore(AT_ONCE)

    async def of(self, run: Path, token: int) -> bytes | None:
        """A JPEG of the episode `token` of `run`; None where no screenshot of it is kept."""
        if (kept := self._kept.get((run, token))) is not None:
            self._kept.move_to_end((run, token))
            return kept
        async with self._room:
            made = await asyncio.to_thread(_made, run, token)
        if made is not None and (run, token) not in self._kept:
            self._kept[run, token] = made
            self._bytes += len(made)
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return made


def _made(run: Path, token: int) -> bytes | None:
    try:
        with ledgers.opened(run) as db:
            shots = [ref.screenshot for ref in queries.steps_of(db, token) if ref.screenshot is not None]
        if not shots:
            return None
        return small(read_blob(run / "segments", shots[-1]))
    except (ComputerRLError, OSError, msgspec.DecodeError):
        return None  # its payload went meanwhile
