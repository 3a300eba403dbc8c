"""Plays a task by any policy: `computerrl.play`.

Invariant: an episode is played and judged as a run's are, by the same code. What a policy raises reaches its caller,
and the desktop is gone then.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from actors.cluster.config import models
from actors.desktop.answers import Answer, Prompt, packed_prompt
from actors.desktop.config import SeatConfig
from actors.desktop.hands import Hands
from actors.desktop.player import MAX_STEPS, Play, Player
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.errors import DesktopFault
from actors.front.pool import DesktopSettings, opened
from actors.front.task import TaskHandle, task_of
from apis.actions.grammar import RefusedAnswer
from apis.actions.gui import Action, line
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from apis.prompts import Form
from apis.prompts.text import Turn
from policy.tokenizer import Tokenizer

BY = "library"  # who gave an answer, in a demonstration


class Seen(msgspec.Struct, frozen=True):
    """What a policy is given at each turn."""

    task: TaskHandle
    step: int  # from 0
    prompt: str  # the task and what shows, as a model reads it
    observation: Observation
    last: str | None  # what came of the action before; None at first
    history: Sequence[Turn]  # the turns before
    form: Form  # of prompt and answer
    screenshot: Callable[[], Awaitable[bytes]]  # a JPEG of the screen
    parse: Callable[[str], Action | RefusedAnswer]  # what an answer would mean now
    prompt_ids: Callable[[Tokenizer], list[int]]  # the whole prompt in a model's tokens
    system: str = ""  # the system message; the compact form has none


# The answer is a model's text or a line, such as `Agent.click(e3)`, or a typed action. It may be awaited.
Policy = Callable[[Seen], str | Action | Awaitable[str | Action]]


async def play(
    task: str | TaskHandle,
    policy: Policy,
    *,
    max_turns: int = MAX_STEPS,
    form: Form = "compact",
    actions: ActionSpace = "both",
    desktops: DesktopPool | None = None,
    **settings: Any,
) -> Play:
    """Play `task` on a fresh desktop: the verdict, and every step with what was seen, answered and done.

    The policy has `max_turns` answers and ends the episode by `Agent.exit`. Success needs that claim and the verifier.
    `form` is of prompts and answers, "compact" or "published". `settings` are fields of DesktopSettings; `desktops`,
    an open pool, is taken in their place.

    Raises DesktopFault when the infrastructure broke the episode, ConfigError for no such task or a machine without
    desktops, and what the policy raises.
    """
    if desktops is None:
        found = task_of(task)
        async with opened(DesktopSettings(**settings), [found.id]) as pool:
            return await play(found, policy, max_turns=max_turns, form=form, actions=actions, desktops=pool)
    seat = SeatConfig(format=form, action_space=actions, screenshots="none")
    answers = _PolicyAnswers(task_of(task), policy, seat)
    player = Player(desktops, answers.seat, retries=0, desktop=answers.leased)
    played = await player.play(answers.task.id, lambda _: answers, max_turns=max_turns)
    if played.outcome is None:
        fault = played.faults[-1]
        raise DesktopFault(fault.cause, fault.detail, fault.culprit)
    return played


class _PolicyAnswers:
    """The policy as the answerer of one episode; its token ids are the bundled model's."""

    def __init__(self, task: TaskHandle, policy: Policy, seat: SeatConfig) -> None:
        self.task = task
        self.seat = seat
        self._policy = policy
        self._tokenizer = Tokenizer.load(models.bundled())
        self._hands: Hands | None = None

    def leased(self, booted: BootedDesktop) -> LeasedDesktop:
        """The episode's desktop; the policy may ask it for screenshots."""
        desktop = LeasedDesktop(booted)
        self._hands = Hands(desktop, self.seat)
        return desktop

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """What the policy says."""
        start = time.monotonic()
        hands = self._hands
        assert hands is not None, "an episode has a desktop before its first turn"
        seen = Seen(
            self.task, step, prompt.user, observation, last, tuple(history), self.seat.format, hands.screenshot,
            lambda text: hands.parse(text, observation),
            lambda tokenizer: tokenizer.prompt_ids(prompt.user, prompt.system, prompt.earlier),
            prompt.system or "",
        )  # fmt: skip
        said = self._policy(seen)
        answer = await said if inspect.isawaitable(said) else said
        text = answer if isinstance(answer, str) else _written(answer, self.seat.format)
        return Answer(
            text=text,
            prompt_ids=(await packed_prompt(self._tokenizer, prompt)).tolist(),
            response_ids=self._tokenizer.response_ids(text),
            logprobs=[],
            spans=[],
            seconds=time.monotonic() - start,
            by=BY,
        )


def _written(action: Action, form: Form) -> str:
    """A typed action as an answer of that form."""
    return line(action) if form == "compact" else f"```python\n{line(action)}\n```"
