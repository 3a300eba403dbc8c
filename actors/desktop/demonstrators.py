"""The demonstrators that answer episodes: one member for a whole attempt, or a member drawn for each step.

Every answer names the member that gave it, in the run's own format.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from actors.desktop.answers import Answer, Answerer, Prompt, packed_prompt
from actors.desktop.config import OracleMember, hasty, refuse_bad_pool, who
from actors.errors import DesktopFault
from actors.replay.messages import Reservation
from apis.actions.gui import Exit, line
from apis.actions.spaces import ActionSpace, routes_in
from apis.observation import Observation
from apis.prompts import USUAL, Sight
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.oracle import Oracle
from policy.tokenizer import Tokenizer

MIXED = "mixed"  # the ledger's word for an attempt in which every member takes steps
DONE = "that is done"


class DemonstratorPool:
    """The members of a process."""

    def __init__(
        self,
        members: Sequence[OracleMember],
        form: str,
        *,
        space: ActionSpace = "both",
        sight: Sight = USUAL,
    ) -> None:
        refuse_bad_pool(members)
        self._sight = sight
        self._space: ActionSpace = space
        self._members = {member.name: member for member in members}
        self._form = form

    def answers(self, work: Reservation, tokenizer: Tokenizer) -> PoolAnswers:
        """An answerer for one attempt: `work.member`, or every member where it says so."""
        names = fitting(list(self._members.values()), work.task, self._space) if work.member == MIXED else [work.member]
        missing = [name for name in names if name not in self._members]
        if missing or not names:
            raise DesktopFault("no_demonstrator", f"{work.task}: the pool has no member {work.member}", "task")
        voices = {name: self._voice(self._members[name], work) for name in names}
        return PoolAnswers(voices, work.seed, tokenizer)

    def _voice(self, member: OracleMember, work: Reservation) -> _OracleVoice:
        oracle = tasks.oracle(work.task, seed=work.seed, noise=member.noise, route=member.route, space=self._space)
        return _OracleVoice(oracle, member.haste, work.seed, self._form, self._sight)


def fitting(members: Sequence[OracleMember], task: str, space: ActionSpace = "both") -> list[str]:
    """Names of the `members` that can show `task` within `space`: by its own route, or any.

    Raises ConfigError for no such task.
    """
    routes = routes_in(space, tasks.family(task).routes)
    return [member.name for member in members if (member.route in routes if member.route else bool(routes))]


class PoolAnswers:
    """Answers one attempt."""

    def __init__(self, voices: Mapping[str, _OracleVoice], seed: int, tokenizer: Tokenizer) -> None:
        self._voices = voices
        self._seed = seed
        self._tokenizer = tokenizer

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """What the member whose turn it is says."""
        name = who(list(self._voices), self._seed, step)
        start = time.monotonic()
        text = self._voices[name].say(step, observation, history)
        ids = await packed_prompt(self._tokenizer, prompt)
        return Answer(
            text=text,
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


class Labelled:
    """Another's answers, each with what the task's oracle would have answered in that state.

    Source: DAgger (Ross et al. 2011, arXiv 1011.0686).
    """

    def __init__(self, answerer: Answerer, oracle: PoolAnswers) -> None:
        self._answerer, self._oracle = answerer, oracle

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The answer of the one that plays, with the label. Raises what that one raises."""
        given = await self._answerer.answer(step, prompt, observation, history, last)
        label = await self._oracle.answer(step, prompt, observation, history, last)
        return msgspec.structs.replace(given, label_ids=label.response_ids)


class _OracleVoice:
    def __init__(self, oracle: Oracle, haste: float, seed: int, form: str, sight: Sight) -> None:
        self._oracle, self._haste, self._seed, self._form, self._sight = oracle, haste, seed, form, sight

    def say(self, step: int, observation: Observation, history: list[Turn]) -> str:
        if hasty(self._haste, self._seed, step):
            done = line(Exit(success=True))
            published = f"<think>{DONE}</think>\n```python\n{done}\n```"
            return f"{DONE}\n{done}" if self._form == "compact" else published
        return self._oracle.answer(observation, history, self._form, self._sight)
