"""A headless Chromium for tests, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a DevTools command; events meanwhile are passed by."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(60):  # axe on a long page, with other tests beside
            while (said := await self._socket.receive_json()).get("id") != number:
                pass
        assert "error" not in said, said
        return said["result"]

    async def eval(self, script: str) -> Any:
        """What a script's last expression is."""
        found = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str, within_s: float = 60.0) -> Any:
        """What a script is once it is true."""
        async with asyncio.timeout(within_s):
            while not (found := await self.eval(script)):  # noqa: ASYNC110 - a page's
                await asyncio.sleep(0.05)
        return found


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    """A browser with a profile of its own in `folder`."""
    chromium = shutil.which("chromium")
    assert chromium is not None
    process = await asyncio.create_subprocess_exec(
        chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0",
        "--disable-background-networking", f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        told = folder / "DevToolsActivePort"
        async with asyncio.timeout(40):
            while not told.is_file() or len(told.read_text().splitlines()) < 2:  # noqa: ASYNC110 - a program's
                await asyncio.sleep(0.05)
        port = told.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as reply:
                target = next(one for one in await reply.json() if one["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=64 << 20) as socket:
                yield Browser(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
