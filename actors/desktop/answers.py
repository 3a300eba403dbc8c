"""Where a step's answer comes from: a sampler, or a demonstrator.

Invariant: every answer is text with token ids. Nothing acts on an answer before it was parsed.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from typing import Protocol

import msgspec

from actors.errors import Deferred, DesktopFault, SamplerError
from actors.replay.messages import DEFERRED, Lane, Reservation, VersionSpan
from actors.sampler.messages import Generate, Refused
from apis.observation import Observation
from apis.prompts.text import Turn
from policy.tokenizer import Tokenizer
from runtime.errors import ActorFailed, ActorGone, ConfigError, DeadlineExceeded, MailboxFull
from runtime.messaging.refs import Ref
from runtime.settings import stable_seed

LONG_CHARS = 4000  # some milliseconds of encoding
POLICY = "policy"  # the ledger's word for an attempt by the model that is trained


class Prompt(msgspec.Struct, frozen=True):
    """One step's question, in the words of the form in use."""

    user: str
    system: str | None = None
    earlier: tuple[tuple[str, str], ...] = ()  # turns before it: what the model was shown, and what it answered
    picture: bytes = b""  # of the screen as PNG, where the model sees it


class Answer(msgspec.Struct, frozen=True):
    """One step's answer. `logprobs` and `spans` are empty for a demonstrator's."""

    text: str
    prompt_ids: Sequence[int]
    response_ids: list[int]
    logprobs: list[float]
    spans: list[VersionSpan]
    seconds: float
    by: str = ""  # of a demonstration: who gave it
    cut: str = ""  # why it is not whole, where it is not
    refusal: str = ""  # why it was no action in the words that it was first given in


class PromptTooLong(Exception):  # noqa: N818 - ends an episode as the policy's failure, no error of the program
    """The model can't take the prompt; after the first one, because of what the policy did or said."""


class Answerer(Protocol):
    """Answers the steps of one episode."""

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The answer to `prompt`. Raises DesktopFault when none can be had, PromptTooLong when none ever will."""


async def packed_prompt(tokenizer: Tokenizer, prompt: Prompt) -> array[int]:
    """The ids of a prompt, four bytes each; other seats of this process go on while a long one is encoded.

    Raises DesktopFault where the model's chat template makes none of it.
    """
    contents = (prompt.user, prompt.system or "", *(text for exchange in prompt.earlier for text in exchange))
    if tokenizer.own and sum(map(len, contents)) < LONG_CHARS:
        return tokenizer.packed_prompt(prompt.user, prompt.system, prompt.earlier)
    try:
        return await asyncio.to_thread(tokenizer.packed_prompt, prompt.user, prompt.system, prompt.earlier)
    except ConfigError as error:  # a chat template is a stranger's program, and sees what the policy said
        raise DesktopFault("no_prompt", str(error), "task") from error


class SampledAnswers:
    """Asks the sampler that the episode's prefix cache lives with."""

    def __init__(
        self, samplers: list[Ref], tokenizer: Tokenizer, work: Reservation, trace: str, timeout_s: float
    ) -> None:
        self._sampler = samplers[work.token % len(samplers)]
        self._tokenizer = tokenizer
        self._work = work
        self._trace = trace
        self._timeout_s = timeout_s

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """Draw from the policy at the reservation's temperature."""
        # A seat waits longer than it does anything else: four bytes an id, and no request.
        kept = await packed_prompt(self._tokenizer, prompt)
        start = time.monotonic()
        try:
            reply = await self._sampler.ask(
                self._request(step, kept.tolist()), timeout_s=self._timeout_s, trace=self._trace
            )
        except Deferred as error:
            raise DesktopFault(DEFERRED, str(error), "sampler") from error
        except (DeadlineExceeded, ActorGone, ActorFailed, MailboxFull, SamplerError) as error:
            raise DesktopFault("sampler_unavailable", str(error), "sampler") from error
        if isinstance(reply, Refused):
            raise PromptTooLong(reply.reason)
        return Answer(
            text=self._tokenizer.decode([i for i in reply.output_ids if i not in self._tokenizer.stop_ids]),
            prompt_ids=kept,
            response_ids=reply.output_ids,
            logprobs=reply.logprobs,
            spans=reply.spans,
            seconds=time.monotonic() - start,
            by=POLICY if self._work.lane is Lane.DEMO else "",
            cut=f"it was cut at {len(reply.output_ids)} tokens" if reply.finish == "length" else "",
        )

    def _request(self, step: int, ids: list[int]) -> Generate:
        return Generate(
            rid=f"{self._work.token}.{step}",
            prompt_ids=ids,
            sampling=self._work.sampling,
            pin=self._work.pin,
            affinity=str(self._work.token),
            seed=stable_seed(self._work.seed, step) if self._work.lane is Lane.EVAL else None,
        )
