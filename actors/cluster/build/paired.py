"""Plays held-out tasks with a function that is tried and without it, by the tasks' oracles or by the model.

By the oracle: the model's planned calls come first, then the way by mouse and keyboard does what is left. By the model:
it plays alone, and its prompt has the function's declaration or not. A fault is never an outcome: the build ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean, stdev
from typing import Any

import msgspec
from msgspec.structs import replace

from actors.cluster.config import models
from actors.desktop.answers import Answer, Answerer, EndpointAnswers, Prompt
from actors.desktop.config import SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.endpoint import Endpoint
from actors.desktop.player import MAX_STEPS, Player
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.errors import DesktopFault
from actors.replay.messages import Reservation, Sampling
from actors.replay.statistics import paired, quantile95
from apis import catalogue
from apis.actions.gui import line
from apis.apps.check.case import table_of
from apis.built import Api, BuiltFunction
from apis.observation import Observation
from apis.prompts.text import Turn
from policy.tokenizer import Tokenizer

DRAWN = Sampling(temperature=0.0, max_new_tokens=2048)
PAIRS_LEAST = 3  # of turns, for an interval


class Played(msgspec.Struct, frozen=True):
    """A held-out task, played to its end."""

    solved: bool
    turns: int
    tokens: int = 0  # of a model that played it


class Weighed(msgspec.Struct, frozen=True):
    """Held-out tasks without a function and with it; intervals are of 95 %."""

    tasks: int = 0
    solved: tuple[int, int] = (0, 0)  # without, with
    gain: tuple[float, float] = (-1.0, 1.0)  # interval of the difference in success
    turns: float = 0.0  # more turns with it, a mean over tasks that were solved both ways
    turns_within: tuple[float, float] | None = None  # None where fewer than `PAIRS_LEAST` were
    why: str = "not tried"  # where nothing was played

    @property
    def verdict(self) -> str:
        """Whether it earns its place, costs more than it brings, or nothing shows."""
        low, high = self.turns_within or (-1.0, 1.0)
        before, after = self.solved
        if not self.tasks:
            return self.why
        if self.gain[0] > 0 or (after >= before and high < 0):
            return "earns its place"
        return "costs more" if self.gain[1] < 0 or (after <= before and low > 0) else "no difference shown"


def weigh(pairs: Sequence[tuple[Played, Played]]) -> Weighed:
    """What tasks without and with a function say of it."""
    gain = paired([(int(one.solved), 1) for one, _ in pairs], [(int(two.solved), 1) for _, two in pairs])
    more = [having.turns - without.turns for without, having in pairs if without.solved and having.solved]
    mean, within = fmean(more) if more else 0.0, None
    if len(more) >= PAIRS_LEAST:
        half = quantile95(len(more) - 1) * stdev(more) / len(more) ** 0.5
        within = (round(mean - half, 2), round(mean + half, 2))
    counts = (gain.before.successes, gain.after.successes)
    return Weighed(len(pairs), counts, (round(gain.low, 3), round(gain.high, 3)), round(mean, 2), within)


class TriedDesktop(LeasedDesktop):
    """A desktop that is given functions before anything else."""

    def __init__(self, booted: BootedDesktop, offers: Sequence[dict[str, Any]]) -> None:
        super().__init__(booted)
        self._offers = list(offers)

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        """Call the agent, as a desktop does."""
        while self._offers:
            await super().call("offer", self._offers.pop(), timeout_s)
        return await super().call(method, args, timeout_s)


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
    """Plays tasks on the desktops of a pool; without `endpoint` oracles play."""

    def __init__(self, api: Api, pool: DesktopPool, endpoint: Endpoint | None) -> None:
        self._api, self._pool, self._endpoint = api, pool, endpoint
        self._seat = SeatConfig(format="published" if endpoint else "compact", screenshots="none")

    async def play(self, task: str, made: BuiltFunction | None, calls: Sequence[dict[str, Any]]) -> Played:
        """Play a held-out task, with a function and planned calls or without. Raises DesktopFault for no outcome."""
        api, functions = self._api, [] if made is None else [made]
        tried = partial(TriedDesktop, offers=table_of(api, functions).offers)
        spent = self._endpoint.tokens if self._endpoint else 0
        with catalogue.shown(api.app, [each.function(api.owner) for each in functions]):
            lines = [line(catalogue.call(api.owner, each.name, **given)) for each in functions for given in calls]
            player = Player(self._pool, self._seat, desktop=tried)
            play = await player.play(task, partial(self._answers, lines), max_turns=MAX_STEPS)
        if play.outcome is None:
            raise DesktopFault("not_played", f"{task}: {play.detail}", "host")
        return Played(play.success, len(play.steps), self._endpoint.tokens - spent if self._endpoint else 0)

    def _answers(self, lines: Sequence[str], work: Reservation) -> Answerer:
        if self._endpoint is not None:
            return EndpointAnswers(self._endpoint, replace(work, sampling=DRAWN), self._seat)
        return Planned(lines, of_oracle(work, Tokenizer.load(models.locate("")), self._seat.format, 0.0, "gui"))
