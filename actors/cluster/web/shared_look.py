"""One look at a run a second, shared by all that watch it.

Invariant: the number of viewers changes no look. A viewer that reads slowly gets the newest state later, and nothing
piles up for it. The last viewer's leaving ends the looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import orjson

from actors.cluster.output import clean
from actors.cluster.web.run_reader import RunNow, RunReader
from actors.cluster.words import plainly
from runtime.errors import ComputerRLError

LOOK_S = 1.0
MOST_VIEWERS = 400  # of one run
_APART = {"seats", "curve"}
_CODED = {"endings", "faults"}  # counts by a code, told in plain words


class CrowdedError(ComputerRLError):
    """More viewers than one run is shown to."""


class SharedLook:
    """Looks at one run for as long as it has viewers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._whole: dict[str, bytes] = {}  # part -> JSON
        self._numbers: dict[str, int] = {}  # part -> the look that changed it
        self._seats: dict[str, tuple[int, bytes]] = {}  # seat -> the look that changed it, JSON
        self._look = 0
        self._viewers = 0

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Events as a browser's EventSource reads them: all at first, then what changed. Raises CrowdedError."""
        if self._viewers >= MOST_VIEWERS:
            raise CrowdedError(f"{MOST_VIEWERS} viewers watch this run already")
        self._viewers += 1
        try:
            if self._looking is None:
                self._looking = asyncio.create_task(self._go_on())
            seen = 0
            while True:
                async with self._changed:
                    while self._look <= seen:
                        await self._changed.wait()
                    seen, events = self._look, self._since(seen)
                yield events
        finally:
            self._viewers -= 1
            if not self._viewers:
                await self.close()

    async def close(self) -> None:
        """Look no longer."""
        looking, self._looking = self._looking, None  # at once: another viewer may come meanwhile
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _since(self, seen: int) -> bytes:
        """What changed after look `seen`, as events; a comment where nothing did, so that a dead line is noticed."""
        parts = [b"event: " + name.encode() + b"\ndata: " + self._whole[name] + b"\n\n"
                 for name, number in self._numbers.items() if number > seen]  # fmt: skip
        seats = [raw for number, raw in self._seats.values() if number > seen]
        if seats:
            parts.append(b"event: seats\ndata: [" + b",".join(seats) + b"]\n\n")
        return b"".join(parts) or b": nothing new\n\n"

    async def _go_on(self) -> None:
        reader = RunReader(self._path)
        try:
            while True:
                try:
                    found: RunNow | str = await asyncio.to_thread(reader.look)
                except (ComputerRLError, OSError) as error:
                    found = str(error)  # told on the page; the next look may see again
                async with self._changed:
                    self._note(found)
                    self._changed.notify_all()
                await asyncio.sleep(LOOK_S)
        finally:
            reader.close()

    def _note(self, found: RunNow | str) -> None:
        self._look += 1
        if isinstance(found, str):
            self._put("trouble", orjson.dumps(clean(found)))
            return
        for seat in found.seats:
            raw = orjson.dumps([_shown(getattr(seat, name)) for name in seat.__struct_fields__])
            if self._seats.get(seat.name, (0, b""))[1] != raw:
                self._seats[seat.name] = self._look, raw
        head = {name: getattr(found, name) for name in found.__struct_fields__ if name not in _APART}
        head |= {name: plainly(head[name]) for name in _CODED}
        self._put("run", orjson.dumps({name: _shown(value) for name, value in head.items()}))
        self._put("curve", orjson.dumps([_shown(step) for step in found.curve]))
        self._put("trouble", orjson.dumps(clean(found.trouble)))

    def _put(self, name: str, raw: bytes) -> None:
        if self._whole.get(name) != raw:
            self._whole[name], self._numbers[name] = raw, self._look


def _shown(value: object) -> object:
    """`value` for JSON, with control characters and bidirectional overrides of its texts escaped."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _shown(getattr(value, name)) for name in value.__struct_fields__}
    return value
