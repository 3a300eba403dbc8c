"""The played desktop as a page on this machine.

Invariant: the page shows and changes nothing. Only a loopback address is served, and only under a loopback name: no
other site's page reads it. Every word of the desktop is sent as JSON and written as text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec
import orjson
from aiohttp import web

from actors.cluster.web.server import is_loopback
from actors.front.playing import Seen
from apis.prompts.names import element_names
from runtime.errors import ConfigError

HOST = "127.0.0.1"
END_S = 1.0  # for browsers that still ask
_KINDS = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_SENT = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


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
        app = web.Application(middlewares=[_guard])
        app.add_routes([
            web.get("/", self._asset), web.get("/{name:page\\.(?:css|js)}", self._asset),
            web.get("/state", self._told), web.get("/screen.jpg", self._screen),
        ])  # fmt: skip
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=END_S)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, HOST, port).start()
            except OSError as error:
                raise ConfigError(f"--port {port}: can't be served: {error.strerror}; 0 takes a free one") from None
            yield f"http://{HOST}:{runner.addresses[0][1]}/"
        finally:
            await runner.cleanup()

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "page.html")
        body = resources.files("actors.front").joinpath(name).read_bytes()
        return web.Response(body=body, content_type=_KINDS[name], charset="utf-8")

    async def _told(self, _: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(msgspec.to_builtins(self._state)), content_type="application/json")

    async def _screen(self, _: web.Request) -> web.Response:
        return web.Response(body=self._picture, content_type="image/jpeg")


@web.middleware
async def _guard(request: web.Request, handler: Any) -> web.StreamResponse:
    if not is_loopback(request.host.rpartition(":")[0] or request.host):
        raise web.HTTPForbidden(text="this page is served to this machine alone\n")
    answer: web.StreamResponse = await handler(request)
    answer.headers.update(_SENT)
    return answer
