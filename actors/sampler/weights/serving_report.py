"""Tells the ledger what one sampler serves.

Invariant: the sampler reports the served version until the ledger has acknowledged it, and repeats it from time to
time. A report may name an older version than the served one, and never a newer one.
"""

from __future__ import annotations

import asyncio

from actors.replay.messages import SERVING_AGAIN_S, Serving
from actors.sampler import events
from runtime.actor import Context
from runtime.messaging.message import Version
from runtime.messaging.refs import PAUSES, TRANSIENT

_TELL_TIMEOUT_S = 10.0


class Telling:
    """Set `served` whenever it changes; None is not told."""

    def __init__(self, ctx: Context, replay: str) -> None:
        self._ctx, self._replay = ctx, replay
        self._served: Version | None = None
        self._changed = asyncio.Event()

    @property
    def served(self) -> Version | None:
        """What the engine serves."""
        return self._served

    @served.setter
    def served(self, version: Version | None) -> None:
        if version is not None and version != self._served:
            self._changed.set()
        self._served = version

    async def keep_told(self) -> None:
        """Tell the ledger, for ever."""
        told: Version | None = None
        failures = 0
        while True:
            version = self._served
            if version is None or version == told:
                try:
                    async with asyncio.timeout(SERVING_AGAIN_S):
                        await self._changed.wait()
                except TimeoutError:
                    told = None
                self._changed.clear()
                continue
            try:
                serving = Serving(sampler=self._ctx.name, version=version)
                await self._ctx.ref(self._replay).ask(serving, timeout_s=_TELL_TIMEOUT_S)
            except TRANSIENT as error:  # asked anew, for the version that is served then
                self._ctx.log.emit(events.SERVING_NOT_TOLD, version=str(version), cause=str(error))
                failures += 1
                await self._ctx.clock.sleep(PAUSES.delay_s(failures))
            else:
                told, failures = version, 0
