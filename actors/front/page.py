"""The played desktop as a page on this machine.

Invariant: the page shows and changes nothing. Every word of the desktop is sent as JSON and written as text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec
import orjson
from aiohttp import web

from actors.front.playing import Seen
from apis.prompts.names import element_names
from runtime.http import Guard, served

END_S = 1.0  # for browsers that still ask
_KINDS = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}


class PlayPage:
    """What the page shows: the newest look."""

    def __init__(self, instruction: str, max_turns: int) -> None:
        self._picture = b""
        self._state: dict[str, Any] = {
            "instruction": instruction, "max_turns": max_turns, "turn": 0, "look": 0, "prompt": "", "last": None,
            "elements": [], "screen": [1, 1], "verdict": "",
        }  # fmt: skip

    def show(self, seen: Seen, picture: bytes) -> None:
        """Show a turn; `picture` is a JPEG of the screen."""
        named = element_names(seen.observation).items()
        self._picture = picture
        self._state |= {
            "turn": seen.step, "look": self._state["look"] + 1, "prompt": seen.prompt, "last": seen.last,
            "elements": [[name, one.x, one.y, one.w, one.h] for name, one in named],
            "screen": list(seen.observation.screen),
        }  # fmt: skip

    def end(self, verdict: str) -> None:
        """Show how it ended."""
        self._state["verdict"] = verdict

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[str]:
        """Serve it; its address. Raises ConfigError where the port can't be had."""
        app, guard = web.Application(), Guard(pages=True)
        app.add_routes([
            web.get("/", self._asset), web.get("/{name:page\\.(?:css|js)}", self._asset),
            web.get("/state", self._told), web.get("/screen.jpg", self._screen),
        ])  # fmt: skip
        async with served(app, guard, port, flag=f"--port {port}", end_s=END_S) as bound:
            yield guard.address(bound)

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "page.html")
        body = resources.files("actors.front").joinpath(name).read_bytes()
        return web.Response(body=body, content_type=_KINDS[name], charset="utf-8")

    async def _told(self, _: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(msgspec.to_builtins(self._state)), content_type="application/json")

    async def _screen(self, _: web.Request) -> web.Response:
        return web.Response(body=self._picture, content_type="image/jpeg")
