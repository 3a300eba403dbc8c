"""A real desktop with an application open, as the cases of `apis/apps/check` want it. Calls go an episode's way."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec

from actors.cluster.config.deploy_files import PROVIDER, provider_set
from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink, LinkDown
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import Desktop
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault, GuestRefused
from apis.actions.grammar import RefusedAnswer, parse
from apis.applications import app_named, app_of_class
from apis.apps.check.case import NotSo, Table
from apis.apps.check.steps import REFUSED
from apis.catalogue import declared
from apis.observation import Frame
from runtime.errors import ConfigError

CALL_S = 30.0
BOOTS = 3  # tries of a desktop whose application does not open
OPEN_MS = 75_000  # an application that starts for the first time, on a busy machine
REST = {"timeout_ms": 5000, "quiet_ms": 100}


def sandbox_set(overrides: Sequence[str]) -> SandboxConfig:
    """The sandbox that `--set` asks for, for what runs in sandboxes alone. Raises ConfigError."""
    found = provider_set(overrides)
    if not isinstance(found, SandboxConfig):
        raise ConfigError(f"--set {PROVIDER}.type: desktops of type sandbox or container alone are used here")
    return found


@asynccontextmanager
async def provider(config: SandboxConfig) -> AsyncIterator[SandboxProvider]:
    """A sandbox provider that leaves nothing behind. Raises ConfigError."""
    made = await open_provider(config, f"check-{os.getpid()}")
    assert isinstance(made, SandboxProvider)  # a container's is one, too
    try:
        yield made
    finally:
        await made.close()


class RealDesk:
    """See `apis.apps.check.case.Desk`; made by `opened`."""

    desktop: Desktop
    home: str
    windows: int  # as the application was opened
    _link: GuestLink

    def __init__(self, table: Table, provider: SandboxProvider) -> None:
        self.table = table
        self._provider = provider
        self._held = AsyncExitStack()

    async def again(self) -> None:
        """Be a fresh desktop, with the application open on its files. Raises as `opened`, in the last of some tries."""
        for _ in range(BOOTS - 1):  # a busy machine may be late
            with suppress(NotSo, DesktopFault, LinkDown):
                return await self._boot()
        return await self._boot()

    async def _boot(self) -> None:
        await self.close()
        self.desktop = await self._provider.boot(self._provider.usual)
        self._held.push_async_callback(self._provider.destroy, self.desktop)
        self._link = await GuestLink.open(self.desktop, timeout_s=CALL_S)
        self._held.push_async_callback(self._link.close)
        self.home = self.desktop.home
        table = self.table
        for path, data in table.made().items():
            await self.call("write_file", path=path, data=data)
        for offer in table.offers:
            await self.call("offer", **offer)
        argv = [*app_named(table.app).argv, *(word.replace("{home}", self.home) for word in table.opens)]
        opened = {"argv": argv, "title": table.title, "timeout_ms": OPEN_MS}
        try:
            await self._link.call("open_window", timeout_s=OPEN_MS / 1000 + CALL_S, **opened)
        except GuestRefused as refused:
            raise NotSo(f"open_window: {refused}") from refused
        await self.call("settle", **REST)
        self.windows = len(await self.call("windows"))

    async def ended(self) -> bool:
        """Whether the application has no window any more, or its desktop has broken."""
        try:
            return all(app_of_class(row.class_) != self.table.app for row in await self.call("windows"))
        except NotSo:
            return True

    async def close(self) -> None:
        """Give the desktop back."""
        await self._held.aclose()

    async def tool(self, name: str, /, **arguments: Any) -> str:
        """What the function says, or "refused: " and why. Raises NotSo where it, or the agent, has broken."""
        owner = self.table.owner
        declared(owner, name)
        written = f"{owner}.{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        action = parse(written, self.table.app)
        if isinstance(action, RefusedAnswer):
            return REFUSED + action.reason
        args = {key: getattr(action, key) for key in ("owner", "name", "arguments")}
        try:
            return str(await self._link.call("tool", timeout_s=CALL_S, **args))
        except GuestRefused as refused:
            if refused.kind != "tool_failed":
                raise NotSo(f"{name}: {refused}") from refused
            return REFUSED + refused.text
        except LinkDown as down:
            raise NotSo(f"{name}: the desktop broke: {down}") from down

    async def call(self, method: str, **arguments: Any) -> Any:
        """What the agent's method returns. Raises NotSo where it refuses or is gone."""
        try:
            found = await self._link.call(method, timeout_s=CALL_S, **arguments)
            return msgspec.to_builtins(found) if isinstance(found, Frame) else found
        except (GuestRefused, LinkDown) as refused:
            raise NotSo(f"{method}: {refused}") from refused

    async def contents(self, path: str) -> bytes:
        """A file of HOME. Raises NotSo where there is none."""
        return bytes(await self.call("read_file", path=path))


@asynccontextmanager
async def opened(provider: SandboxProvider, table: Table) -> AsyncIterator[RealDesk]:
    """A desktop with the table's files, its application open on them; gone when the block ends.

    Raises DesktopFault, LinkDown, and NotSo where the application does not open.
    """
    desk = RealDesk(table, provider)
    try:
        await desk.again()
        yield desk
    finally:
        await desk.close()
