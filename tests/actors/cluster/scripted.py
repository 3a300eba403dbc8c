"""Evaluates a script's answers, to try task files without a model: `python -m tests.actors.cluster.scripted ARGS`.

`--says CALL` (repeatable) is the call of a turn, and the last one stays; what else is given goes to `eval`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from actors.cluster import cli
from tests.actors.desktop.endpoint_stand_in import StandIn, completion

SAYS = ("Agent.wait()",)  # never ends, so every end state is judged as it was set up


def main(argv: Sequence[str]) -> int:
    """`eval URL` with the words of `argv`, the URL being this script's; the exit status of `eval`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--says", action="append", metavar="CALL")
    args, words = parser.parse_known_args(argv)
    calls = args.says or SAYS

    async def answer(body: dict[str, Any], _: int) -> web.StreamResponse:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return completion(f"<answer>{calls[min(turn, len(calls) - 1)]}</answer>")

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    server = asyncio.run_coroutine_threadsafe(StandIn(answer).__aenter__(), loop).result(10.0)
    return cli.main(["eval", server.url, "--model", "scripted", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
