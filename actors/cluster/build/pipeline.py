"""The stages of a build, from exemplars to a folder: read, require, implement, cases, trials and repairs.

Every answer and every trial goes through the ledger. So the stages are written as if nothing could end them, and a
build that was killed does them again without asking or trying twice.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from actors.cluster.build.ledger import BuildLedger, Exchange
from actors.desktop.endpoint import Endpoint
from apis.build import answers, prompts
from apis.build.answers import AnswerRefusedError, Cases, Interface
from apis.build.judge import ROUNDS_MOST, Built, Complaint, Trial, finding
from apis.build.profile import Profile

AT_ONCE = 10  # exemplars of one request
ANSWER_TOKENS = 4096
TRIES = 2  # of an answer that is not of the form asked for


class SpentError(Exception):
    """The build may use no more tokens."""


@dataclass
class Pipeline:
    """One build; `tries` is `Trials.trial`, `tell` is called with what is being done."""

    _profile: Profile
    _ledger: BuildLedger
    _endpoint: Endpoint
    _tries: Callable[[Interface, str, Cases], Awaitable[Trial]]
    _tell: Callable[[str], None]
    known: Sequence[str]  # functions that are there already
    most: int
    rounds: int = ROUNDS_MOST
    budget_tokens: int | None = None
    sources: dict[str, str] = field(default_factory=dict)  # of accepted functions
    cases: dict[str, Cases] = field(default_factory=dict)
    interfaces: dict[str, Interface] = field(default_factory=dict)

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
            known = [*self.known, *(each.name for each in wanted)]
            asked = prompts.require(self._profile, part, first + 1, known, self.most)
            self._tell(f"reading tasks {first + 1} to {first + len(part)}")
            try:
                answer = await self._ask(f"require {first + 1}", asked)
                kept, refused = answers.interfaces(answer, exemplars, known)
            except (AnswerRefusedError, SpentError) as error:
                dropped.append(Built(f"(tasks {first + 1} to {first + len(part)})", False, str(error), 0))
                continue
            wanted += kept
            dropped += [Built(name or "(no name)", False, why, 0) for name, why in refused]
        dropped += [Built(each.name, False, f"beyond --most {self.most}", 0) for each in wanted[self.most :]]
        return wanted[: self.most], dropped

    async def _one(self, interface: Interface) -> Built:
        name, profile = interface.name, self._profile
        source, made = "", None
        problem: Complaint | None = None
        try:
            source = answers.code(await self._ask(f"implement {name}", prompts.implement(profile, interface)))
            asked = prompts.cases(profile, interface)
            made = answers.cases(await self._ask(f"cases {name}", asked), interface, profile)
        except AnswerRefusedError as error:
            problem = Complaint("code" if not source else "cases", str(error))
        trial = Trial()
        for number in range(self.rounds + 1):
            if problem is None and made is not None:
                trial = await self._tried(interface, source, made, number)
                problem = finding(trial)
                if problem is None:
                    self.sources[name], self.cases[name], self.interfaces[name] = source, made, interface
                    return Built(name, True, "", number, trial, interface.serves)
            if number == self.rounds:
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
        return Built(name, False, problem.text[:300] if problem else "", self.rounds, trial, interface.serves)

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
        return await self._ledger.once(key, source, Trial, lambda: self._tries(interface, source, made))

    async def _ask(self, key: str, asked: prompts.Messages) -> str:
        """The model's answer. Raises AnswerRefusedError for one that was cut, SpentError, EndpointDown."""
        spent = sum((each.read_tokens or 0) + (each.written_tokens or 0) for each in self._ledger.exchanges().values())

        async def ask() -> Exchange:
            if self.budget_tokens is not None and spent >= self.budget_tokens:
                raise SpentError(f"{spent} of --budget-tokens {self.budget_tokens} are spent")
            began = time.monotonic()
            done = await self._endpoint.complete(asked, 0, temperature=0.0, max_tokens=ANSWER_TOKENS)
            seconds = round(time.monotonic() - began, 2)
            return Exchange(done.text, done.cut, done.read_tokens, done.written_tokens, seconds)

        exchange = await self._ledger.once(f"ask {key}", str(asked[-1]["content"]), Exchange, ask)
        if exchange.cut:
            raise AnswerRefusedError(f"the answer is not whole: {exchange.cut}")
        return exchange.answer
