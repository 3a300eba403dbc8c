"""A leased desktop as an episode sees it: calls, and files once it is frozen.

Invariant: what ends a desktop is judged here, from what the host saw, into the policy's doing (AgentBrokeDesktop) or
a fault of the infrastructure (DesktopFault); nothing else comes out of a call but the agent's own refusals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors.desktop.faults import judge
from actors.desktop.link import LinkDown, seen_of
from actors.desktop.pool import BootedDesktop
from actors.desktop.providers.outside import FileSeen, ReadLimits, Refusal
from apis.tasks.verify import FileView
from runtime.errors import DesktopFault


class Body:
    """One desktop, from lease to retirement. `acted` tells that the policy has acted on it."""

    def __init__(self, booted: BootedDesktop) -> None:
        self._provider = booted.provider
        self._desktop = booted.desktop
        self._link = booted.link
        self.home = booted.desktop.home
        self.acted = False

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        """Call the in-guest agent. Raises GuestRefused, AgentBrokeDesktop, DesktopFault."""
        try:
            return await self._link.call(method, timeout_s=timeout_s, **args)
        except LinkDown as down:
            health = await self._provider.probe(self._desktop)
            raise judge(seen_of(health, down, acted=self.acted)) from down

    async def frozen_files(self, paths: list[str], timeout_s: float) -> Callable[[str], FileView]:
        """Freeze the desktop for good and read `paths` of its HOME from outside. Raises DesktopFault."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._provider.freeze(self._desktop)
                files = await self._provider.read_home(self._desktop, paths, ReadLimits())
        except TimeoutError:
            raise DesktopFault("verify_timeout", f"not read within {timeout_s:g} s", "verifier") from None
        seen = {file.path: _view(file) for file in files}
        return lambda path: seen.get(path, FileView(kind="refused", reason="it was not asked for beforehand"))


def _view(file: FileSeen) -> FileView:
    if file.data is not None:
        return FileView(kind="file", data=file.data)
    if file.names is not None:
        return FileView(kind="folder")
    if file.refusal is Refusal.MISSING:
        return FileView(kind="missing")
    return FileView(kind="refused", reason=str(file.refusal))
