"""A person at a terminal as a policy, and the page that shows the desktop to the person.

Invariant: a line that is no action costs no turn. What the desktop wrote is quoted in the terminal and text on the
page, which changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec
import orjson
from aiohttp import web

from actors.cluster import output
from actors.front.library import Seen
from apis.actions.grammar import RefusedAnswer
from apis.actions.gui import Action, Exit, functions_for, line
from apis.actions.spaces import ActionSpace
from apis.prompts.compact import element_names, row
from runtime.http import Guard, served

ANSWER_S = 3600.0  # then the person is taken to have left
ASK = "> "
FIRST = "type an action, such as  Agent.click(e3);  DONE once the task is done;  ?  for what else there is"
HELP = (
    "one line is one action, such as  Agent.click(e3)  or  Agent.type(e3, text='kiwi', enter=True)\n"
    "?  lists what can be called now, ? WORD what has that word; DONE claims that it is done, FAIL gives up (so does "
    "the end of input)"
)

END_S = 1.0  # for browsers that still ask
_KINDS = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}


def typed() -> str:
    """A line of standard input. Raises EOFError at its end.

    It comes from the descriptor, byte by byte: Python aborts when it ends while a thread holds the lock of `sys.stdin`.
    """
    text = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        text += byte
    if not byte and not text:
        raise EOFError
    return text.decode("utf-8", "replace")


async def read_line(read: Callable[[], str] = typed, ask: str = ASK) -> str | None:
    """The answer to `ask`, one line; None at the end of input, and after `ANSWER_S` seconds.

    A thread that does not keep the program waits for it, so that Ctrl-C ends the program at once.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def settle(text: str | None) -> None:
        if not answer.done():
            answer.set_result(text)

    def work() -> None:
        try:
            text: str | None = read()
        except (EOFError, OSError):  # a terminal that is gone ends, too
            text = None
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, text)

    output.write(ask, sys.stdout)
    threading.Thread(target=work, name="terminal", daemon=True).start()
    try:
        async with asyncio.timeout(ANSWER_S):
            return await answer
    except TimeoutError:
        return None


class Person:
    """Asks for each action; `read` reads a line."""

    def __init__(self, actions: ActionSpace = "both", read: Callable[[], str] = typed) -> None:
        self._actions: ActionSpace = actions
        self._read = read

    async def __call__(self, seen: Seen) -> str:
        """The action that the person gives, with a thought in the words of a demonstration."""
        if not seen.step:
            output.prose(FIRST)
        while True:
            said = await read_line(self._read)
            if said is None:
                return line(Exit(success=False))
            text = said.strip()
            if text.startswith("?"):
                self._help(seen, text.removeprefix("?").strip())
            elif text:
                action = seen.parse(text)
                if not isinstance(action, RefusedAnswer):
                    return f"{thought(action, seen)}\n{line(action)}"
                output.line(action.reason)

    def _help(self, seen: Seen, word: str) -> None:
        output.prose(HELP)
        for function in functions_for(seen.observation.app, self._actions).values():
            if word.lower() in f"{function.signature} {function.description}".lower():
                output.prose(f"  {function.signature}\n      {function.description}")
                for param in function.params if word else ():
                    output.prose(f"      {param.name}: {param.told}")


def thought(action: Action, seen: Seen) -> str:
    """What an action is about: the element that it names, and the function."""
    names = element_names(seen.observation)
    places = (getattr(action, field) for field in action.__struct_fields__)
    about = next((place for place in places if isinstance(place, str) and place in names), "")
    what = line(action).partition("(")[0].rpartition(".")[2]
    return f"{about} {row(names[about])} -> {what}" if about else what


class PlayPage:
    """What the page shows: the newest look."""

    def __init__(self, instruction: str, max_turns: int) -> None:
        self._picture = b""
        self._state: dict[str, Any] = {
            "instruction": instruction, "max_turns": max_turns, "turn": 0, "look": 0, "prompt": "", "last": None,
            "elements": [], "screen": [1, 1], "verdict": "",
        }  # fmt: skip

    def show(self, seen: Seen, picture: bytes) -> None:
        named = element_names(seen.observation).items()
        self._picture = picture
        self._state |= {
            "turn": seen.step, "look": self._state["look"] + 1, "prompt": seen.prompt, "last": seen.last,
            "elements": [[name, one.x, one.y, one.w, one.h] for name, one in named],
            "screen": list(seen.observation.screen),
        }  # fmt: skip

    def end(self, verdict: str) -> None:
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
