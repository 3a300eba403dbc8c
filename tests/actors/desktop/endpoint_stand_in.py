"""A stand-in for a remote model: a real HTTP server that speaks the OpenAI chat completions protocol, without a model.

What it answers is scripted. Run as a program (`python endpoint_stand_in.py PORT`, 0 for any) it says where it
listens and answers like a poor model: it mostly waits, and now and then claims that the task is done.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

PAPER = "<think>wait a little</think>\n```python\nAgent.wait()\n```"
CLAIM = "<think>it looks done</think>\n```python\nAgent.exit(success=True)\n```"
Script = Callable[[dict[str, Any], int], Awaitable[web.StreamResponse]]


def completion(text: Any, finish: str | None = "stop", **more: Any) -> web.Response:
    """As a server answers, with fields that nobody reads."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, "refusal": None}}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 3}, **more}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


class StandIn:
    """The server; `async with StandIn(script) as server` listens on a port of its own."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.requests: list[web.Request] = []
        self.busy = self.most_busy = 0
        self.url = ""

    async def __aenter__(self) -> StandIn:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "org/m", "object": "model"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.keys.append(request.headers.get("Authorization", ""))
        body = msgspec.json.decode(await request.read())
        self.bodies.append(body)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            return await self._script(body, len(self.bodies))
        finally:
            self.busy -= 1


async def _serve(port: int) -> None:
    drawn = random.Random(port)

    async def poor(_request: web.Request) -> web.Response:
        return completion(CLAIM if drawn.random() < 0.3 else PAPER)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", poor)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)  # noqa: T201 - a program's answer
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
