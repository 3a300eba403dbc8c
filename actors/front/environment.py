"""A desktop behind the OpenEnv protocol: a session plays one episode after the other.

Invariant: an episode is played and judged by `play`. A reward comes with the last observation, 1 for solved and 0 for
not. What the infrastructure broke is an error that the client sees, and never a reward. This module needs `openenv`.
"""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import Awaitable
from itertools import count
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from actors.desktop.player import Play
from actors.desktop.pool.pool import DesktopPool
from actors.front.library import EpisodeByTurns, Seen, play
from apis.actions.spaces import ActionSpace
from apis.prompts import Form
from runtime.errors import ConfigError, ProtocolError

ANSWER_CHARS = 65536


class DesktopAction(Action):
    """What a model answers, or a line such as `Agent.click(e3)`."""

    text: str = Field(max_length=ANSWER_CHARS, description="an answer with one action, such as Agent.click(e3)")


class DesktopObservation(Observation):
    """What a model reads at a turn, or at the end the verdict."""

    task: str = Field(description="FAMILY/SPLIT/NUMBER, or SET/DOMAIN/ID of a task set")
    instruction: str = Field(description="what the task asks for")
    system: str = Field(default="", description="the system message; empty in the compact form")
    prompt: str = Field(default="", description="the task and what shows; empty at the end")
    last: str | None = Field(default=None, description="what came of the action before, or why it was refused")
    screenshot: str = Field(default="", description="JPEG of the screen as base64, where the server sends it")
    verdict: str = Field(default="", description="at the end: the reason and what the verifier found")


class SessionState(State):
    """Which episode the session plays."""

    task: str = Field(default="", description="as in an observation; empty before the first reset")
    max_turns: int = Field(description="answers that an episode takes at most")


class TaskServer:
    """What all sessions share: the desktops, and the tasks in turn."""

    def __init__(
        self, pool: DesktopPool, tasks: list[str], *, max_turns: int, form: Form, actions: ActionSpace, pictures: bool
    ) -> None:
        self.tasks = tasks
        self.max_turns = max_turns
        self.pictures = pictures
        self.loop = asyncio.get_running_loop()
        self.play = functools.partial(play, max_turns=max_turns, form=form, actions=actions, desktops=pool)
        self._next = count()

    def chosen(self, task: str, seed: int | None) -> str:
        """The task named, else by the seed, else the next one. Raises ConfigError for one that is not served."""
        if task and task not in self.tasks:
            raise ConfigError(f"task {task} is not served here: {len(self.tasks)} are, such as {self.tasks[0]}")
        return task or self.tasks[(next(self._next) if seed is None else seed) % len(self.tasks)]


class DesktopEnvironment(Environment):  # type: ignore[misc,type-arg,unused-ignore]
    """One session. `reset` takes `task`, or `seed` that chooses, and boots a fresh desktop."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, server: TaskServer) -> None:
        super().__init__()
        self._server = server
        self._episode: EpisodeByTurns | None = None
        self._state = SessionState(max_turns=server.max_turns)
        self._instruction = ""

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, task: str = ""
    ) -> DesktopObservation:
        """Begin an episode: some seconds, more where all desktops are taken. Raises ConfigError, DesktopFault."""
        self.close()
        chosen = self._server.chosen(task, seed)
        self._state = SessionState(episode_id=episode_id, task=chosen, max_turns=self._server.max_turns)
        self._episode = EpisodeByTurns(functools.partial(self._server.play, chosen))
        return await self._found(self._episode.look())

    async def step_async(self, action: DesktopAction, timeout_s: float | None = None) -> DesktopObservation:
        """Answer the turn. Raises ProtocolError where no episode goes on, DesktopFault; `reset` begins again then."""
        if self._episode is None:
            raise ProtocolError("no episode goes on in this session: reset first; a session is a WebSocket at /ws")
        async with asyncio.timeout(timeout_s):
            found = await self._found(self._episode.answer(action.text))
        self._state.step_count += 1
        return found

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> DesktopObservation:
        raise ProtocolError("a desktop is played in the server's loop: reset_async")

    def step(self, action: DesktopAction, timeout_s: float | None = None, **_: Any) -> DesktopObservation:
        raise ProtocolError("a desktop is played in the server's loop: step_async")

    @property
    def state(self) -> SessionState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name="computerrl", description=f"Tasks on real Linux desktops, {len(self._server.tasks)} of them."
        )

    def close(self) -> None:
        """Give the episode up, from any thread."""
        episode, self._episode = self._episode, None
        if episode is not None:
            self._server.loop.call_soon_threadsafe(episode.end)

    async def _found(self, coming: Awaitable[Seen | Play]) -> DesktopObservation:
        try:
            found = await coming
            return await self._turn(found) if isinstance(found, Seen) else self._end(found)
        except BaseException:  # a client that goes on would answer a turn that it never saw
            self.close()
            raise

    def _end(self, found: Play) -> DesktopObservation:
        self._episode = None
        assert found.outcome is not None, "play raises where there is no outcome"
        return DesktopObservation(
            task=found.task, instruction=self._instruction, done=True, reward=float(found.success),
            verdict=f"{found.outcome.reason}: {found.detail}",
        )  # fmt: skip

    async def _turn(self, found: Seen) -> DesktopObservation:
        self._instruction = found.task.instruction
        picture = base64.b64encode(await found.screenshot()).decode() if self._server.pictures else ""
        return DesktopObservation(
            task=found.task.id, instruction=self._instruction, system=found.system, prompt=found.prompt,
            last=found.last, screenshot=picture,
        )  # fmt: skip
