"""Reports to the ledger what one sampler serves.

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

_REPORT_TIMEOUT_S = 10.0


class ServingReport:
    """Holds what the engine serves until the ledger has heard it."""

    def __init__(self, ctx: Context, replay: str) -> None:
        self._ctx, self._replay = ctx, replay
        self._served: Version | None = None
        self._changed = asyncio.Event()

    def serves(self, version: Version | None) -> None:
        """The engine serves that now; None is not reported."""
        if version is not None and version != self._served:
            self._changed.set()
        self._served = version

    async def keep_reporting(self) -> None:
        """Report to the ledger, for ever."""
        reported: Version | None = None
        failures = 0
        while True:
            version = self._served
            if version is None or version == reported:
                try:
                    async with asyncio.timeout(SERVING_AGAIN_S):
                        await self._changed.wait()
                except TimeoutError:
                    reported = None
                self._changed.clear()
                continue
            try:
                serving = Serving(sampler=self._ctx.name, version=version)
                await self._ctx.ref(self._replay).ask(serving, timeout_s=_REPORT_TIMEOUT_S)
            except TRANSIENT as error:  # asked anew, for the version that is served then
                self._ctx.log.emit(events.SERVING_NOT_REPORTED, version=str(version), cause=str(error))
                failures += 1
                await self._ctx.clock.sleep(PAUSES.delay_s(failures))
            else:
                reported, failures = version, 0
