"""The stages of a build, from exemplars to a folder: read, require, implement, cases, trials and repairs.

Every answer and every trial goes through the ledger. So the stages are written as if nothing could end them, and a
build that was killed does them again without asking or trying twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from actors.cluster.build.ledger import BuildLedger, Exchange
from actors.desktop.endpoint import Endpoint
from apis.build import answers, prompts
from apis.build.answers import AnswerRefusedError, Cases, Interface
from apis.build.judge import ROUNDS_MOST, Built, Complaint, Trial, finding
from apis.build.profile import Profile

AT_ONCE = 10  # exemplars of one request
ANSWER_TOKENS = 4096
TRIES = 2  # of an answer that is not of the form asked for


T = TypeVar("T")


class Tries(Protocol):
    """What tries a function, see `trials.Trials`."""

    async def trial(self, interface: Interface, source: str, made: Cases) -> Trial:
        """One round."""
        ...


class SpentError(Exception):
    """The build may use no more tokens."""


class Pipeline:
    """One build."""

    def __init__(
        self,
        profile: Profile,
        ledger: BuildLedger,
        endpoint: Endpoint,
        tries: Tries,
        tell: Callable[[str], None],
        *,
        known: Sequence[str],
        most: int,
        rounds: int = ROUNDS_MOST,
        budget_tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        self._profile, self._ledger, self._endpoint, self._tries, self._tell = profile, ledger, endpoint, tries, tell
        self._known, self._most, self._rounds = known, most, rounds
        self._budget, self._seed = budget_tokens, seed
        self.sources: dict[str, str] = {}  # of accepted functions
        self.cases: dict[str, Cases] = {}
        self.interfaces: dict[str, Interface] = {}

    async def run(self, exemplars: Sequence[str]) -> list[Built]:
        """Carry all stages out. Raises EndpointDown, and what `tries` raises; what was done by then is kept."""
        wanted, built = await self._required(exemplars)
        for number, interface in enumerate(wanted, 1):
            self._tell(f"{interface.name} ({number} of {len(wanted)})")
            try:
                built.append(await self._one(interface))
            except SpentError as spent:
                built.append(Built(interface.name, False, str(spent), 0, serves=interface.serves))
        return built

    async def _required(self, exemplars: Sequence[str]) -> tuple[list[Interface], list[Built]]:
        wanted: list[Interface] = []
        dropped: list[Built] = []
        for first in range(0, len(exemplars), AT_ONCE):
            part = exemplars[first : first + AT_ONCE]
            known = [*self._known, *(each.name for each in wanted)]
            asked = prompts.require(self._profile, part, first + 1, known, self._most)
            self._tell(f"reading tasks {first + 1} to {first + len(part)}")
            try:
                answer = await self._ask(f"require {first + 1}", asked)
                kept, refused = answers.interfaces(answer, exemplars, known)
            except AnswerRefusedError as error:
                dropped.append(Built(f"(tasks {first + 1} to {first + len(part)})", False, str(error), 0))
                continue
            wanted += kept
            dropped += [Built(name or "(no name)", False, why, 0) for name, why in refused]
        dropped += [Built(each.name, False, f"beyond --most {self._most}", 0) for each in wanted[self._most :]]
        return wanted[: self._most], dropped

    async def _one(self, interface: Interface) -> Built:
        """Code and cases by separate requests, then rounds of trial and repair."""
        name, profile = interface.name, self._profile
        source, made = "", None
        problem: Complaint | None = None
        try:
            source = await self._read(f"implement {name}", prompts.implement(profile, interface), answers.code)
            made = await self._read(
                f"cases {name}", prompts.cases(profile, interface), lambda text: answers.cases(text, interface, profile)
            )
        except AnswerRefusedError as error:
            problem = Complaint("code" if not source else "cases", str(error))
        trial = Trial()
        for number in range(self._rounds + 1):
            if problem is None and made is not None:
                trial = await self._tried(interface, source, made, number)
                problem = finding(trial)
                if problem is None:
                    self.sources[name], self.cases[name], self.interfaces[name] = source, made, interface
                    return Built(name, True, "", number, trial, interface.serves)
            if number == self._rounds:
                break
            assert problem is not None
            self._tell(f"{name}: {problem.text.splitlines()[0][:100]}")
            about = problem.about if made is not None and source else "code" if not source else "cases"
            asked = prompts.repair(profile, interface, source, made, problem.text, about, number + 1)
            try:
                source, made = self._mended(
                    await self._ask(f"repair {name} {number + 1}", asked), about, interface, source, made
                )
                problem = None if made is not None else Complaint("cases", "there are no cases yet")
            except AnswerRefusedError as error:
                problem = Complaint(about, str(error))
        return Built(name, False, problem.text[:300] if problem else "", self._rounds, trial, interface.serves)

    def _mended(
        self, answer: str, about: str, interface: Interface, source: str, made: Cases | None
    ) -> tuple[str, Cases | None]:
        """Code and cases after a repair, of which an answer changes one. Raises AnswerRefusedError."""
        has_code, has_cases = "```python" in answer, "```json" in answer
        if has_code and has_cases:
            raise AnswerRefusedError("an answer changes the code or the cases, and not both")
        if has_code and about != "cases":
            return answers.code(answer), made
        if has_cases and about != "code":
            return source, answers.cases(answer, interface, self._profile)
        raise AnswerRefusedError(f"mend the {'cases' if about == 'cases' else 'code'}")

    async def _tried(self, interface: Interface, source: str, made: Cases, number: int) -> Trial:
        key = f"trial {interface.name} {number}"
        return await self._ledger.once(key, source, Trial, lambda: self._tries.trial(interface, source, made))

    async def _read(self, key: str, asked: prompts.Messages, take: Callable[[str], T]) -> T:
        return take(await self._ask(key, asked))

    async def _ask(self, key: str, asked: prompts.Messages) -> str:
        """The model's answer. Raises AnswerRefusedError for one that was cut, SpentError, EndpointDown."""
        spent = sum((each.read_tokens or 0) + (each.written_tokens or 0) for each in self._ledger.exchanges().values())

        async def ask() -> Exchange:
            if self._budget is not None and spent >= self._budget:
                raise SpentError(f"{spent} of --budget-tokens {self._budget} are spent")
            began = time.monotonic()
            done = await self._endpoint.complete(asked, self._seed, temperature=0.0, max_tokens=ANSWER_TOKENS)
            seconds = round(time.monotonic() - began, 2)
            return Exchange(done.text, done.cut, done.read_tokens, done.written_tokens, seconds)

        exchange = await self._ledger.once(f"ask {key}", str(asked[-1]["content"]), Exchange, ask)
        if exchange.cut:
            raise AnswerRefusedError(f"the answer is not whole: {exchange.cut}")
        return exchange.answer
