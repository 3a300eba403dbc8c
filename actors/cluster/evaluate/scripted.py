"""A stand-in for a model at a URL: `eval` against answers from a script, to try task files without a model.

Invariant: an answer depends on the turn alone, so two evaluations of the same tasks are asked and told the same. The
server listens on this machine alone and ends with its program.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Sequence

import msgspec
from aiohttp import web

from actors.cluster import cli
from runtime.http import Guard
from runtime.program import TOKEN_ENV

SAYS = ("Agent.wait()",)  # never ends, so every end state is judged as it was set up
START_S = 10.0
MAX_BODY_BYTES = 64 << 20  # a picture of the screen goes along


class _Message(msgspec.Struct):
    role: str


class _Body(msgspec.Struct):
    messages: list[_Message]


def answer(roles: Sequence[str], says: Sequence[str]) -> str:
    """What is said after messages of `roles`: the turn's line of `says`, after its end the last one again."""
    turn = sum(role == "assistant" for role in roles)
    return f"<answer>{says[min(turn, len(says) - 1)]}</answer>"


async def serve(says: Sequence[str], guard: Guard) -> str:
    """Listen on a free port behind `guard`, for as long as the event loop runs; the URL."""

    async def answered(request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await request.read(), type=_Body)
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        said = {"role": "assistant", "content": answer([message.role for message in body.messages], says)}
        choices = [{"index": 0, "finish_reason": "stop", "message": said}]
        return web.Response(body=msgspec.json.encode({"choices": choices}), content_type="application/json")

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", answered)
    guard.protect(app)
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, guard.host, 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


def main(argv: Sequence[str]) -> int:
    """`eval URL` with the other words of `argv`, the URL being this script's; the exit status of `eval`."""
    parser = argparse.ArgumentParser(description="Evaluate a script's answers: what is no flag here goes to `eval`.")
    parser.add_argument(
        "--says", action="append", metavar="CALL", help="the call of a turn (repeatable); the last stays"
    )
    args, words = parser.parse_known_args(argv)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="scripted", daemon=True).start()
    guard = Guard()
    os.environ[TOKEN_ENV] = guard.token
    url = asyncio.run_coroutine_threadsafe(serve(args.says or SAYS, guard), loop).result(START_S)
    return cli.main(["eval", url, "--model", "scripted", "--api-key-env", TOKEN_ENV, *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
