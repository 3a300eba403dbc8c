"""Plays of single tasks on real desktops: by oracles, which must solve them, and by one who is told his answers."""

from __future__ import annotations

import math

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import SeatConfig
from actors.desktop.player import Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from apis.prompts import Form
from apis.prompts.text import Turn
from policy.base import MODEL
from policy.tokenizer import Tokenizer


class Said:
    """Answers what it was told to, one after the other, and keeps the prompts."""

    def __init__(self, *answers: str) -> None:
        self.answers = iter(answers)
        self.prompts: list[str] = []

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        self.prompts.append(prompt.user)
        return Answer(next(self.answers), [1], [2], [], [], 0.0)


async def told(
    pool: DesktopPool, task: str, *answers: str, actions: ActionSpace = "both", published: bool = False
) -> Play:
    """The play of `task` by someone who answers just that; after a fault he is asked anew."""
    player = Player(pool, SeatConfig(screenshots="none", action_space=actions, published_metrics=published))
    return await player.play(task, lambda _: Said(*answers))


async def oracle_solves(
    pool: DesktopPool,
    task: str,
    *,
    form: Form = "compact",
    route: str = "",
    seed: int = 2,
    most_steps: int = 6,
    most_chars: float = math.inf,
) -> None:
    """The task's oracle solves it by `route` in 2 to `most_steps` steps, of compact prompts below `most_chars`."""
    player = Player(pool, SeatConfig(screenshots="none", format=form))
    answers = demonstrated(Tokenizer.load(MODEL), form=form, route=route)
    played = await player.play(task, answers, route=route, seed=seed)
    assert played.success, (played.detail, [step.response for step in played.steps])
    assert 2 <= len(played.steps) <= most_steps, len(played.steps)
    longest = max(len(str(step.observation)) for step in played.steps)
    assert form != "compact" or longest < most_chars, longest


async def oracle_finds_back(pool: DesktopPool, task: str, *, route: str = "") -> None:
    """The task's oracle solves it though every third step or so goes astray."""
    stray = demonstrated(Tokenizer.load(MODEL), route=route, noise=0.3)
    played = await Player(pool).play(task, stray, seed=6)
    assert played.success, (played.detail, [step.response for step in played.steps])
