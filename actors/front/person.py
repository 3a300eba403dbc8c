"""A person at a terminal as a policy.

Invariant: a line that is no action costs no turn. What the desktop wrote is quoted, so that it can't pass for a line of
this program's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable

from actors.cluster import output
from actors.front.playing import Seen
from apis.actions.grammar import RefusedAnswer
from apis.actions.gui import Action, Exit, functions_for, line
from apis.actions.spaces import ActionSpace
from apis.prompts.compact import row
from apis.prompts.names import element_names

ANSWER_S = 3600.0  # then the person is taken to have left
ASK = "> "
FIRST = "type an action, such as  Agent.click(e3);  DONE once the task is done;  ?  for what else there is"
HELP = (
    "one line is one action, such as  Agent.click(e3)  or  Agent.type(e3, text='kiwi', enter=True)\n"
    "?  lists what can be called now, ? WORD what has that word; DONE claims that it is done, FAIL gives up (so does "
    "the end of input)"
)


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
