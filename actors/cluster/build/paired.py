"""Plays held-out tasks with a function that is tried and without it, by the tasks' oracles or by the model.

By the oracle: the model's planned calls come first, then the way by mouse and keyboard does what is left. By the model:
it plays alone, and its prompt has the function's declaration or not. A fault is never an outcome: the build ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster.build.pipeline import Played
from actors.cluster.checks.live import Troubles
from actors.cluster.config import models
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.answers import Answer, Answerer, EndpointAnswers, Prompt
from actors.desktop.config import PromptConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.endpoint import Completed, Endpoint, Message
from actors.desktop.player import MAX_STEPS, Player
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from actors.errors import DesktopFault
from actors.replay.messages import Reservation, Sampling
from apis import catalogue
from apis.actions.gui import line
from apis.build.answers import Interface
from apis.build.profile import Profile
from apis.observation import Observation
from apis.prompts.text import Turn
from policy.tokenizer import Tokenizer

ANSWER_TOKENS = 2048
GUI = "gui"


class TriedDesktop(LeasedDesktop):
    """A desktop on which one function is a source that is tried."""

    def __init__(self, booted: BootedDesktop, owner: str, job: dict[str, Any]) -> None:
        super().__init__(booted)
        self._owner, self._job = owner, job

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        """Call the agent, as a desktop does."""
        if method == "tool" and (args["owner"], args["name"]) == (self._owner, self._job["name"]):
            method, args = "try_source", self._job | {"arguments": args["arguments"]}
        return await super().call(method, args, timeout_s)


class Counting(Endpoint):
    """Counts tokens, which an episode's answers do not."""

    tokens = 0

    async def complete(
        self, messages: Sequence[Message], seed: int, *, temperature: float, max_tokens: int
    ) -> Completed:
        """As of any endpoint."""
        done = await super().complete(messages, seed, temperature=temperature, max_tokens=max_tokens)
        self.tokens += (done.read_tokens or 0) + (done.written_tokens or 0)
        return done


class Planned:
    """Answers one episode: lines that are there, then another's answers."""

    def __init__(self, lines: Sequence[str], then: Answerer) -> None:
        self._lines, self._then = lines, then

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The answer. Raises what the other does."""
        if step < len(self._lines):
            return Answer(f"by its function\n{self._lines[step]}", [], [], [], [], 0.0)
        return await self._then.answer(step, prompt, observation, history, last)


class PairedTrial:
    """Plays tasks on desktops of its own, which boot when the first is played; without `endpoint` oracles play."""

    def __init__(self, profile: Profile, seats: SeatsConfig, endpoint: Counting | None) -> None:
        self._profile, self._seats, self._endpoint = profile, seats, endpoint
        self._seat = seats.seat(PromptConfig(format="published" if endpoint else "compact"))
        self._pool: DesktopPool | None = None
        self._held = AsyncExitStack()

    async def close(self) -> None:
        """Give the desktops back."""
        await self._held.aclose()

    async def play(
        self, task: str, interface: Interface | None, source: str, calls: Sequence[dict[str, Any]]
    ) -> Played:
        """Play a held-out task. Raises DesktopFault where no try came to an end."""
        if self._pool is None:
            config = self._seats.within(shares.free(), "--set desktops").of_one_host()
            self._pool = await DesktopPool.open(config, Path(f"paired-{os.getpid()}"), Troubles())
            self._held.push_async_callback(self._pool.close)
        profile, functions = self._profile, [] if interface is None else [interface.function(self._profile.owner)]
        job = {"worker": "built", "source": source, "helpers": profile.helpers, "imports": profile.imports}
        job["name"] = interface.name if interface else ""
        player = Player(self._pool, self._seat, desktop=partial(TriedDesktop, owner=profile.owner, job=job))
        spent = self._endpoint.tokens if self._endpoint else 0
        with catalogue.shown(profile.app, functions):
            lines = [line(catalogue.call(each.owner, each.name, **given)) for each in functions for given in calls]
            play = await player.play(task, partial(self._answers, lines), max_turns=MAX_STEPS)
        if play.outcome is None:
            raise DesktopFault("not_played", f"{task}: {play.detail}", "host")
        return Played(play.success, len(play.steps), self._endpoint.tokens - spent if self._endpoint else 0)

    def _answers(self, lines: Sequence[str], work: Reservation) -> Answerer:
        if self._endpoint is None:
            tokenizer = Tokenizer.load(models.locate(""))
            return Planned(lines, of_oracle(work, tokenizer, self._seat.format, 0.0, GUI))
        drawn = msgspec.structs.replace(work, sampling=Sampling(temperature=0.0, max_new_tokens=ANSWER_TOKENS))
        return EndpointAnswers(self._endpoint, drawn, self._seat)
