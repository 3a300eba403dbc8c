"""The demonstrators that answer episodes: one member for a whole attempt, or a member drawn for each step.

Every answer names the member that gave it, in the run's own format. A member that can't be reached breaks the attempt
as a fault of the infrastructure. An outside model's answer is parsed like any policy's and written again from the typed
action: only a short escaped thought and literal arguments get into a demonstration.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from actors.desktop.answers import NOTHING, Answer, Chat, Prompt, packed_prompt
from actors.desktop.config import EndpointMember, Member, OracleMember, hasty, key_of, refuse_bad_pool, who
from actors.desktop.endpoint import Endpoint
from actors.errors import DesktopFault
from actors.replay.messages import Reservation, Sampling
from apis.actions.grammar import MAX_READ, RefusedAnswer, parse
from apis.actions.gui import Action, Click, DragAndDrop, Exit, Place, Scroll, SwitchWindow, Type, line
from apis.actions.reasoning import spoken
from apis.actions.spaces import ActionSpace, routes_in
from apis.observation import Observation
from apis.prompts import USUAL, Sight
from apis.prompts.compact import element_names, window_names
from apis.prompts.text import Turn, escaped
from apis.tasks import registry as tasks
from apis.tasks.oracle import Oracle
from apis.tasks.view import on_screen
from policy.tokenizer import Tokenizer

MIXED = "mixed"  # the ledger's word for an attempt in which every member takes steps
DONE = "that is done"


Said = tuple[str, str]  # an answer in the run's form, and why it was no action in the member's own, where it was none


class _Voice(Protocol):
    async def say(self, step: int, observation: Observation, history: list[Turn], last: str | None) -> Said:
        """The member's answer."""


class DemonstratorPool:
    """The members of a process. `close` when no episode is played any more."""

    def __init__(
        self,
        members: Sequence[Member],
        form: str,
        environment: Mapping[str, str] = os.environ,
        *,
        space: ActionSpace = "both",
        sight: Sight = USUAL,
    ) -> None:
        refuse_bad_pool(members)
        self._sight = sight
        self._space: ActionSpace = space
        self._members = {member.name: member for member in members}
        self._form = form
        self._environment = environment
        self._endpoints: dict[str, Endpoint] = {}  # made when first asked: a run that records none needs no key

    async def close(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.close()

    def answers(self, work: Reservation, tokenizer: Tokenizer) -> PoolAnswers:
        """An answerer for one attempt: `work.member`, or every member where it says so."""
        names = fitting(list(self._members.values()), work.task, self._space) if work.member == MIXED else [work.member]
        missing = [name for name in names if name not in self._members]
        if missing or not names:
            raise DesktopFault("no_demonstrator", f"{work.task}: the pool has no member {work.member}", "task")
        voices = {name: self._voice(self._members[name], work) for name in names}
        return PoolAnswers(voices, work.seed, tokenizer)

    def _voice(self, member: Member, work: Reservation) -> _Voice:
        if isinstance(member, OracleMember):
            oracle = tasks.oracle(work.task, seed=work.seed, noise=member.noise, route=member.route, space=self._space)
            return _OracleVoice(oracle, member.haste, work.seed, self._form, self._sight)
        if member.name not in self._endpoints:
            self._endpoints[member.name] = Endpoint(member, key_of(member, self._environment), member.name)
        return _EndpointVoice(member, self._endpoints[member.name], work, self._form, self._space)


def fitting(members: Sequence[Member], task: str, space: ActionSpace = "both") -> list[str]:
    """Names of the `members` that can show `task` within `space`: an oracle needs its route, or any.

    Raises ConfigError for no such task.
    """
    routes = routes_in(space, tasks.family(task).routes)
    return [
        member.name
        for member in members
        if isinstance(member, EndpointMember) or (member.route in routes if member.route else bool(routes))
    ]


class PoolAnswers:
    """Answers one attempt."""

    def __init__(self, voices: Mapping[str, _Voice], seed: int, tokenizer: Tokenizer) -> None:
        self._voices = voices
        self._seed = seed
        self._tokenizer = tokenizer

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """What the member whose turn it is says. Raises DesktopFault when it can't be reached."""
        name = who(list(self._voices), self._seed, step)
        start = time.monotonic()
        text, refusal = await self._voices[name].say(step, observation, history, last)
        ids = await packed_prompt(self._tokenizer, prompt)
        return Answer(
            text=text,
            refusal=refusal,
            prompt_ids=ids,
            picture_at=self._tokenizer.pad_in(ids),
            response_ids=self._tokenizer.response_ids(text),
            logprobs=[],
            spans=[],
            seconds=time.monotonic() - start,
            by=name,
        )


def of_oracle(
    work: Reservation,
    tokenizer: Tokenizer,
    form: str,
    noise: float,
    route: str = "",
    *,
    space: ActionSpace = "both",
    sight: Sight = USUAL,
) -> PoolAnswers:
    """A pool of the task's own oracle alone, within an action space; it writes places as `sight` has them.

    `route` is the way it goes ("gui", "api", "mixed"); without one the reservation says, or its seed chooses.
    """
    oracle = tasks.oracle(work.task, seed=work.seed, noise=noise, route=route or work.route, space=space)
    return PoolAnswers({"oracle": _OracleVoice(oracle, 0.0, work.seed, form, sight)}, work.seed, tokenizer)


class _OracleVoice:
    def __init__(self, oracle: Oracle, haste: float, seed: int, form: str, sight: Sight) -> None:
        self._oracle, self._haste, self._seed, self._form, self._sight = oracle, haste, seed, form, sight

    async def say(self, step: int, observation: Observation, history: list[Turn], last: str | None) -> Said:
        if hasty(self._haste, self._seed, step):
            done = line(Exit(success=True))
            published = f"<think>{DONE}</think>\n```python\n{done}\n```"
            return f"{DONE}\n{done}" if self._form == "compact" else published, ""
        return self._oracle.answer(observation, history, self._form, self._sight), ""


class _EndpointVoice:
    def __init__(
        self, member: EndpointMember, endpoint: Endpoint, work: Reservation, form: str, space: ActionSpace
    ) -> None:
        self._member = member
        drawn = Sampling(temperature=member.temperature, max_new_tokens=member.max_tokens)
        self._chat = Chat(endpoint, drawn, tasks.task(work.task).instruction, member.format, space)
        self._seed = work.seed
        self._form = form

    async def say(self, step: int, observation: Observation, history: list[Turn], last: str | None) -> Said:
        member = self._member
        answer = await self._chat.asked(step, observation, history, last, self._seed + step)
        action = understood(answer.text, observation, asked=member.format, cut=answer.cut)
        text = rewritten(answer.text, observation, asked=member.format, wanted=self._form, cut=answer.cut)
        return text, action.reason if isinstance(action, RefusedAnswer) else ""


MAX_THOUGHT = 120  # characters kept of what it thought
MAX_REFUSED = 400  # and of an answer that is no action


def understood(text: str, observation: Observation, *, asked: str, cut: str = "") -> Action | RefusedAnswer:
    """What `text`, an answer to a prompt of form `asked`, asks for; `cut` says why it is not whole, where it is not."""
    names = element_names(observation), window_names(observation)
    return parse(text, observation.app, *names, asked, cut=cut, screen=observation.screen)


def rewritten(text: str, observation: Observation, *, asked: str, wanted: str, cut: str = "") -> str:
    """`text`, an answer to a prompt of form `asked`, as an answer of form `wanted` ("compact" or "published")."""
    action = understood(text, observation, asked=asked, cut=cut)
    if isinstance(action, RefusedAnswer):
        return _refused(text, observation, wanted)
    thought = escaped(_thought(text), MAX_THOUGHT).replace("`", "'").strip() or "go on"
    if wanted == "published":
        return f"<think>{thought}</think>\n```python\n{line(on_screen(action, observation))}\n```"
    return f"{thought}\n{line(by_name(action, observation))}"


def _refused(text: str, observation: Observation, wanted: str) -> str:
    """The answer that was no action, so that it is none in the other form either."""
    answer = "" if len(text) > MAX_READ else spoken(text).said
    shown = escaped(answer.strip()[: 2 * MAX_REFUSED], MAX_REFUSED).replace("`", "'")
    names = element_names(observation), window_names(observation)
    for answer in (shown, f"no action: {shown}"):
        if shown and isinstance(parse(answer, observation.app, *names, wanted), RefusedAnswer):
            return answer
    return NOTHING


def _thought(text: str) -> str:
    """The first line of its reasoning, or of what comes before the action."""
    answer, thought, _ = spoken(text)
    before = thought or (answer.partition("```")[0] if "```" in answer else answer.strip().rpartition("\n")[0])
    return next((line for line in before.splitlines() if line.strip()), "").replace("<", "(").replace(">", ")")


def by_name(action: Action, observation: Observation) -> Action:
    """The same action with names in place of pixels and window numbers, where the compact form has names for them."""
    match action:
        case Click(coordinates=where) | Scroll(coordinates=where):
            return msgspec.structs.replace(action, coordinates=_name_at(where, observation))
        case Type(coordinates=where) if where is not None:
            return msgspec.structs.replace(action, coordinates=_name_at(where, observation))
        case DragAndDrop(drag_from_coordinates=start, drop_on_coordinates=end):
            return DragAndDrop(
                drag_from_coordinates=_name_at(start, observation), drop_on_coordinates=_name_at(end, observation)
            )
        case SwitchWindow(window_id=name) if not name.startswith("w"):
            numbers = window_names(observation)
            same = [other for other, number in numbers.items() if number == numbers.get(name) and other[0] == "w"]
            return SwitchWindow(window_id=same[0]) if same else action
    return action


def _name_at(where: Place, observation: Observation) -> Place:
    """The smallest listed element that covers the pixels; the pixels themselves where there is none."""
    if isinstance(where, str):
        return where
    x, y = where
    covering = [
        (element.w * element.h, name)
        for name, element in element_names(observation).items()
        if element.x <= x < element.x + max(1, element.w) and element.y <= y < element.y + max(1, element.h)
    ]
    return min(covering)[1] if covering else where
