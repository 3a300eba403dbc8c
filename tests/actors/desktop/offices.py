"""One warm application of the office for a whole module of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import GuestRefused
from apis.catalogue import call
from tests.folders import desk_folder


class Office:
    """An application of the office, in a test's words."""

    owner: ClassVar[str]  # of its functions

    def __init__(self, link: GuestLink, home: str) -> None:
        self.link, self.home = link, home

    async def __call__(self, method: str, **args: Any) -> Any:
        return await self.link.call(method, timeout_s=25, **args)

    async def run(self, script: str) -> None:
        """Have a shell carry out a script in HOME, and wait until it has."""
        await self("write_file", path="script.sh", data=f"{script}\n".encode())
        number = await self("launch", argv=["sh", "script.sh"])
        for _ in range(100):
            if number not in await self("running"):
                return
            await self("settle", timeout_ms=100)
        raise AssertionError(script)

    async def tool(self, name: str, **arguments: Any) -> str:
        """What the function says, a refusal's text included."""
        made = call(self.owner, name, **arguments)
        try:
            return str(await self("tool", owner=made.owner, name=made.name, arguments=made.arguments))
        except GuestRefused as refused:
            return f"refused: {refused.text}" if refused.kind == "tool_failed" else f"{refused.kind}: {refused.text}"


@asynccontextmanager
async def booted() -> AsyncIterator[tuple[GuestLink, str]]:
    """The link to a desktop and its home folder; it is gone afterwards."""
    with desk_folder() as folder:
        provider = await SandboxProvider.start(SandboxConfig(state_dir=folder), "test")
        try:
            desktop = await provider.boot(DesktopSpec())
            link = await GuestLink.open(desktop, timeout_s=30)
            yield link, desktop.home
            await link.close()
        finally:
            await provider.close()
