"""A model at a URL that answers a build from a recording: a YAML file of answers by stage.

The stage is the first line of what is asked, `stage: implement save`. An answer is a text, or a list of texts that are
given in turn. In place of a text, a number is a status of HTTP, and `cut` ends the answer in its middle.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from actors.cluster.evaluate.settings import ASKED


class Recorded:
    """The answers, and what was asked."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = {key: list(value) if isinstance(value, list) else [value] for key, value in answers.items()}
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """One chat completion."""
        content = (await request.json())["messages"][-1]["content"]
        stage = content.splitlines()[0].removeprefix("stage: ")
        if stage == ASKED:
            return self.said("ready")
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
        return self.said(given, reason, len(content) // 4)

    @staticmethod
    def said(text: str, reason: str = "stop", read: int = 7) -> web.Response:
        """An answer, which cost so many tokens to read."""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        usage = {"prompt_tokens": read, "completion_tokens": len(text) // 4}
        return web.json_response({"choices": [choice], "usage": usage})


@asynccontextmanager
async def served(recorded: Recorded, port: int = 0) -> AsyncIterator[str]:
    """The model's URL while the block lasts."""
    app = web.Application(client_max_size=1 << 20)
    app.router.add_post("/v1/chat/completions", recorded.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _main(answers: dict[str, Any], port: int) -> None:
    async with served(Recorded(answers), port) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(yaml.safe_load(Path(sys.argv[1]).read_text()), int(sys.argv[2])))
