"""Where a step's answer comes from: a sampler, or a model at an endpoint.

Every answer is text, with token ids where the policy or a demonstrator gave it. Nothing acts on it before it was
parsed. Whatever an endpoint fails at leaves as a DesktopFault with its cause, never as an outcome of the policy.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from actors.desktop.config import SeatConfig
from actors.desktop.endpoint import Completed, Endpoint, Message, PromptRefused
from actors.errors import Deferred, DesktopFault, SamplerError
from actors.replay.messages import DEFERRED, Lane, Reservation, Sampling, VersionSpan
from actors.sampler.messages import Generate, Refused
from apis.actions.reasoning import spoken
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from apis.prompts import USUAL, Form, Sight
from apis.prompts.compact import render_compact
from apis.prompts.published import render_published
from apis.prompts.system import compact_system
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from policy.pictures import picture_size
from policy.tokenizer import PromptPicture, Tokenizer
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
    picture_first: bool = True  # before the text of `user`


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
    picture_at: int = 0  # index in `prompt_ids` of the picture's first pad


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
    seen = PromptPicture(size=picture_size(prompt.picture), first=prompt.picture_first) if prompt.picture else None
    if tokenizer.own and sum(map(len, contents)) < LONG_CHARS:
        return tokenizer.packed_prompt(prompt.user, prompt.system, prompt.earlier, seen)
    try:
        return await asyncio.to_thread(tokenizer.packed_prompt, prompt.user, prompt.system, prompt.earlier, seen)
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
        # A seat waits longer than it does anything else: four bytes an id, and no request.
        kept = await packed_prompt(self._tokenizer, prompt)
        start = time.monotonic()
        try:
            reply = await self._sampler.ask(
                self._request(step, kept.tolist(), prompt.picture), timeout_s=self._timeout_s, trace=self._trace
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
            picture_at=self._tokenizer.pad_in(kept),
            response_ids=reply.output_ids,
            logprobs=reply.logprobs,
            spans=reply.spans,
            seconds=time.monotonic() - start,
            by=POLICY if self._work.lane is Lane.DEMO else "",
            cut=f"it was cut at {len(reply.output_ids)} tokens" if reply.finish == "length" else "",
        )

    def _request(self, step: int, ids: list[int], picture: bytes) -> Generate:
        return Generate(
            rid=f"{self._work.token}.{step}",
            prompt_ids=ids,
            sampling=self._work.sampling,
            pin=self._work.pin,
            affinity=str(self._work.token),
            seed=stable_seed(self._work.seed, step) if self._work.lane is Lane.EVAL else None,
            pictures=[picture] if picture else [],
        )


NOTHING = "nothing was answered"


class Chat:
    """One episode's. An episode's steps bound what it keeps."""

    def __init__(
        self,
        endpoint: Endpoint,
        drawn: Sampling,
        instruction: str,
        form: Form,
        space: ActionSpace,
        *,
        sight: Sight = USUAL,
    ) -> None:
        self._endpoint = endpoint
        self._drawn = drawn
        self._instruction = instruction
        self._form = form
        self._space: ActionSpace = space
        self._sight = sight
        self._said: dict[int, str] = {}  # by step

    async def asked(
        self,
        step: int,
        observation: Observation,
        history: Sequence[Turn],
        last: str | None,
        seed: int,
        *,
        picture: bytes = b"",
    ) -> Completed:
        """The answer to one step, and to as many of the last turns as the endpoint takes. `picture` is a PNG, or none.

        Raises EndpointDown.
        """
        turns = self.remembered(history)
        while True:
            messages = self._messages(observation, turns, last, picture)
            try:
                answer = await self._endpoint.complete(
                    messages, seed, temperature=self._drawn.temperature, max_tokens=self._drawn.max_new_tokens
                )
            except PromptRefused:
                if not turns:
                    raise
                turns = turns[(len(turns) + 1) // 2 :]
            else:
                self._said[step] = spoken(answer.text).said.strip() or NOTHING
                return answer

    def _messages(
        self, observation: Observation, turns: Sequence[Turn], last: str | None, picture: bytes
    ) -> list[Message]:
        if self._form == "published":
            *before, now = render_published(
                self._instruction, observation.app, turns, observation, last, space=self._space, sight=self._sight
            )
            first = self._sight.template.picture == "first"
            return [*before, {**now, "content": pictured(now["content"], picture, first=first)} if picture else now]
        system = compact_system(observation.app, self._space)
        user = render_compact(self._instruction, turns, observation, last, self._space)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def remembered(self, history: Sequence[Turn]) -> list[Turn]:
        """The steps so far: its own answers without their reasoning, others' as bare actions in its form."""
        turns = []
        for step, turn in enumerate(history):
            line = turn.line or "refused"
            others = f"```python\n{line}\n```" if self._form == "published" else line
            turns.append(msgspec.structs.replace(turn, answer=self._said.get(step, others)))
        return turns


def pictured(text: str, picture: bytes, *, first: bool) -> list[dict[str, Any]]:
    """The content of a message with `picture`, a PNG, before its text or behind it."""
    url = f"data:image/png;base64,{b64encode(picture).decode()}"
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    return parts if first else parts[::-1]


class EndpointAnswers:
    """One episode's answers."""

    def __init__(self, endpoint: Endpoint, work: Reservation, seat: SeatConfig) -> None:
        self._work = work
        instruction = tasks.task(work.task).instruction
        self._chat = Chat(endpoint, work.sampling, instruction, seat.format, seat.action_space, sight=seat.sight)

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        start, work, pin = time.monotonic(), self._work, self._work.pin
        seed, picture = stable_seed(work.seed, step), prompt.picture
        completed = await self._chat.asked(step, observation, history, last, seed, picture=picture)
        return Answer(
            text=completed.text,
            prompt_ids=[],  # its token ids are the endpoint's own
            response_ids=[],
            logprobs=[],
            # An empty span names the weights of the round.
            spans=[] if pin is None else [VersionSpan(version=pin, start=0, end=0)],
            seconds=time.monotonic() - start,
            cut=completed.cut,
        )
