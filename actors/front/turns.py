"""An episode whose policy answers from outside, one turn at a time.

Invariant: a turn is given out once and takes one answer. What broke the episode is raised at the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from actors.desktop.player import Play
from actors.front.playing import Policy, Seen

ANSWER_S = 3600.0  # between a turn and its answer; then the episode is given up


class EpisodeByTurns:
    """Begins `episode`, a call of `play` that lacks its policy, in a running loop."""

    def __init__(self, episode: Callable[[Policy], Coroutine[Any, Any, Play]], answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._turns: asyncio.Queue[Seen] = asyncio.Queue(1)
        self._answers: asyncio.Queue[str] = asyncio.Queue(1)
        self._played = asyncio.ensure_future(episode(self._ask))

    async def look(self) -> Seen | Play:
        """The next turn, or how the episode ended. Raises what `play` does, and TimeoutError after `ANSWER_S`."""
        turn = asyncio.ensure_future(self._turns.get())
        try:
            await asyncio.wait((turn, self._played), return_when=asyncio.FIRST_COMPLETED)
            return turn.result() if turn.done() else self._played.result()
        finally:
            turn.cancel()

    async def answer(self, text: str) -> Seen | Play:
        """Answer the turn that was given out; then as `look`."""
        self._answers.put_nowait(text)
        return await self.look()

    def end(self) -> None:
        """Give it up; its desktop is destroyed."""
        self._played.cancel()

    async def _ask(self, seen: Seen) -> str:
        self._turns.put_nowait(seen)
        async with asyncio.timeout(self._answer_s):
            return await self._answers.get()
