"""A stand-in for a remote model: a real HTTP server that speaks the OpenAI chat completions protocol, without a model.

What it answers is scripted, or recorded by the stage of a build.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from actors.cluster.evaluate.settings import ASKED

PAPER = "<think>wait a little</think>\n```python\nAgent.wait()\n```"
Script = Callable[[dict[str, Any], int], Awaitable[web.StreamResponse]]


def completion(text: Any, finish: str | None = "stop", **more: Any) -> web.Response:
    """As a server answers, with fields that nobody reads."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, "refusal": None}}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 3}, **more}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def always(answer: Callable[[], web.StreamResponse]) -> Script:
    """A script that answers alike each time."""

    async def script(_body: dict[str, Any], _number: int) -> web.StreamResponse:
        return answer()

    return script


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


class Recorded:
    """What a model answered to a build, by stage: `StandIn(recorded.answer)` gives it again.

    The stage is the first line of what is asked, `stage: implement save`. An answer is a text, or a list of texts that
    are given in turn. In place of a text, a number is a status of HTTP, and `cut` ends the answer in its middle.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = {key: list(value) if isinstance(value, list) else [value] for key, value in answers.items()}
        self.asked: list[str] = []

    async def answer(self, body: dict[str, Any], _number: int) -> web.StreamResponse:
        content = body["messages"][-1]["content"]
        stage = content.splitlines()[0].removeprefix("stage: ")
        if stage == ASKED:
            return completion("ready")
        self.asked.append(stage)
        left = self.answers.get(stage)
        if not left:
            return web.json_response({"error": f"nothing is recorded for {stage}"}, status=400)
        given = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(given, int):
            return web.json_response({"error": "busy"}, status=given, headers={"Retry-After": "0.1"})
        reason = "stop"
        if isinstance(given, dict):
            given, reason = given["cut"], "length"
        usage = {"prompt_tokens": len(content) // 4, "completion_tokens": len(given) // 4}
        return completion(given, reason, usage=usage)
