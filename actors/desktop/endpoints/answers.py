"""Answers an evaluation's episodes by a model at an endpoint.

Invariant: whatever the endpoint fails at leaves as a DesktopFault with its cause, never as an outcome of the policy.
What it answers is bounded text that the grammar reads like any policy's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import SeatConfig
from actors.desktop.endpoints.chat import Chat
from actors.desktop.endpoints.client import Endpoint, EndpointDown, PromptRefused
from actors.desktop.endpoints.completion import Completed
from actors.errors import DesktopFault
from actors.replay.messages import Reservation, VersionSpan
from apis.observation import Observation
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from runtime.settings import stable_seed


class EndpointAnswers:
    """One episode's answers."""

    def __init__(self, endpoint: Endpoint, work: Reservation, seat: SeatConfig) -> None:
        self._endpoint = endpoint
        self._work = work
        self._chat = Chat(tasks.task(work.task).instruction, seat.format, seat.action_space, seat.sight)

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The model's answer. Raises DesktopFault when none can be had.

        It has no token ids: they are the endpoint's own. Its empty span names the weights of the round.
        """
        start = time.monotonic()
        try:
            found = await self._asked(step, prompt.picture, observation, self._chat.remembered(history), last)
        except EndpointDown as error:
            raise DesktopFault(error.cause, str(error), "sampler") from error
        self._chat.answered(step, found.text)
        pin = self._work.pin
        return Answer(
            text=found.text,
            prompt_ids=[],
            response_ids=[],
            logprobs=[],
            spans=[] if pin is None else [VersionSpan(version=pin, start=0, end=0)],
            seconds=time.monotonic() - start,
            cut=found.cut,
        )

    async def _asked(
        self, step: int, picture: bytes, observation: Observation, turns: Sequence[Turn], last: str | None
    ) -> Completed:
        """The answer to as many of the last turns as the endpoint takes. Raises EndpointDown."""
        drawn = self._work.sampling
        while True:
            messages = self._chat.messages(observation, turns, last, picture)
            seed = stable_seed(self._work.seed, step)
            try:
                return await self._endpoint.complete(
                    messages, seed, temperature=drawn.temperature, max_tokens=drawn.max_new_tokens
                )
            except PromptRefused:
                if not turns:
                    raise
                turns = turns[(len(turns) + 1) // 2 :]
