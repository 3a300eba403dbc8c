"""The stages of a build, from exemplars to functions: read, require, implement, cases, trials, repairs, paired trial.

Every answer and every trial goes through the ledger, one file of JSON lines in the build's folder. So the stages are
written as if nothing could end them, and a build that was killed does them again without asking or trying twice.

Invariant: an answer or a trial is kept once, whole, before anything follows from it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from actors.cluster.build.paired import Played, Weighed, weigh
from actors.cluster.build.trials import Trial
from actors.desktop.endpoint import Completed, Endpoint
from apis.build import answers, prompts
from apis.build.answers import AnswerRefusedError
from apis.built import Api, BuiltFunction
from runtime.errors import ConfigError

FILE = "build.jsonl"
T = TypeVar("T")
AT_ONCE = 10  # exemplars of one request
ANSWER_TOKENS = 4096
ROUNDS_MOST = 3


class Kept(msgspec.Struct, frozen=True):
    """One line of the ledger: `asked` is the question of an answer, or the source of a trial."""

    key: str
    asked: str
    value: msgspec.Raw


class Spent(msgspec.Struct, frozen=True):
    """What any value of the ledger has cost; None where a server gives no counts."""

    read_tokens: int | None = 0
    written_tokens: int | None = 0
    tokens: int = 0


class BuildLedger:
    """The file, opened; `begun` describes the build, and another one can't go on here."""

    def __init__(self, folder: Path, begun: str) -> None:
        file, self._kept = folder / FILE, dict[str, Kept]()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = file.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(f"{file} can't be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.seek(0)
            content = self._file.read()
            self._file.truncate(whole := content.rfind(b"\n") + 1)  # a kill may have cut the last line
            lines = msgspec.json.Decoder(Kept).decode_lines(content[:whole])
            self._kept = {line.key: line for line in lines}
        except (OSError, ValueError) as error:
            self._file.close()
            raise ConfigError(f"{file} can't be used: {error}; does another build go on there?") from error
        try:
            if "begun" not in self._kept:
                self._keep("begun", begun, {})
        except ConfigError:
            file.unlink()
            self._file.close()
            raise
        if self._kept["begun"].asked != begun:
            self._file.close()
            raise ConfigError(f"{folder} holds another build: give the arguments that it began with, or another --out")

    async def once(self, key: str, asked: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """What is kept for `key`, or what `work` gives, which is then kept with what was asked."""
        if key not in self._kept:
            self._keep(key, asked, await work())
        return msgspec.json.decode(self._kept[key].value, type=kind)

    def _keep(self, key: str, asked: str, value: object) -> None:
        self._kept[key] = Kept(key, asked, msgspec.Raw(msgspec.json.encode(value)))
        left = msgspec.json.encode(self._kept[key]) + b"\n"
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file)
        except OSError as error:
            raise ConfigError(f"{self._file.name} can't be written: {error.strerror}") from error

    def spent(self, name: str = "") -> int:
        """Tokens of all answers so far and of tasks that a model played, or of those for the function `name`."""
        kept = [line for key, line in self._kept.items() if not name or name in key.split()]
        costs = [msgspec.json.decode(line.value, type=Spent) for line in kept]
        return sum((each.read_tokens or 0) + (each.written_tokens or 0) + each.tokens for each in costs)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SpentError(Exception):
    """The build may use no more tokens."""


class Built(msgspec.Struct, frozen=True):
    """What became of one interface."""

    name: str
    accepted: bool = False
    why: str = ""  # of a dropped one
    rounds: int = 0
    trial: Trial = Trial()
    weighed: Weighed | None = None  # None without held-out tasks
    made: BuiltFunction | None = None


Plays = Callable[[str, BuiltFunction | None, Sequence[dict[str, Any]]], Awaitable[Played]]


@dataclass
class Pipeline:
    """One build; `tries` is `Trials.trial`, `tell` is called with what is being done."""

    _api: Api
    _ledger: BuildLedger
    _endpoint: Endpoint
    _tries: Callable[[BuiltFunction], Awaitable[Trial]]
    _tell: Callable[[str], None]
    known: Sequence[str]  # functions that are there already
    most: int
    rounds: int = ROUNDS_MOST
    budget_tokens: int | None = None
    plays: Plays | None = None  # a held-out task, with a function and its calls, or without
    held_out: Mapping[str, str] = field(default_factory=dict)  # id -> instruction

    async def run(self, exemplars: Sequence[str]) -> list[Built]:
        """Carry all stages out. Raises EndpointDown, and what `tries` raises; what was done by then is kept."""
        wanted, built = await self._required(exemplars)
        for number, made in enumerate(wanted, 1):
            self._tell(f"{made.name} ({number} of {len(wanted)})")
            try:
                built.append(await self._one(made))
            except SpentError as spent:
                built.append(Built(made.name, why=str(spent), made=made))
        return [await self._placed(each) if each.accepted and self.held_out else each for each in built]

    async def _required(self, exemplars: Sequence[str]) -> tuple[list[BuiltFunction], list[Built]]:
        wanted: list[BuiltFunction] = []
        dropped: list[Built] = []
        for first in range(0, len(exemplars), AT_ONCE):
            part = exemplars[first : first + AT_ONCE]
            known = [*self.known, *(each.name for each in wanted)]
            asked = prompts.require(self._api, part, first + 1, known, self.most)
            self._tell(f"reading tasks {first + 1} to {first + len(part)}")
            try:
                kept, refused = answers.interfaces(await self._ask(f"require {first + 1}", asked), exemplars, known)
            except (AnswerRefusedError, SpentError) as error:
                kept, refused = [], [(f"(tasks {first + 1} to {first + len(part)})", str(error))]
            wanted += kept
            dropped += [Built(name or "(no name)", why=why) for name, why in refused]
        dropped += [Built(each.name, why=f"beyond --most {self.most}") for each in wanted[self.most :]]
        return wanted[: self.most], dropped

    async def _one(self, made: BuiltFunction) -> Built:
        name, trial = made.name, Trial()
        for stage, about in (("implement", "code"), ("cases", "cases")):
            try:
                asked = getattr(prompts, stage)(self._api, made)
                made = answers.mended(await self._ask(f"{stage} {name}", asked), about, made, self._api)
            except AnswerRefusedError as error:
                trial = trial if trial.problem else Trial(str(error), about)
        for number in range(self.rounds + 1):
            if not trial.problem:
                trial = await self._ledger.once(f"trial {name} {number}", made.code, Trial, partial(self._tries, made))
            if not trial.problem or number == self.rounds:
                break
            about, problem = trial.about, trial.problem
            self._tell(f"{name}: {problem.splitlines()[0][:100]}")
            asked = prompts.repair(self._api, made, problem, about, number + 1)
            try:
                made = answers.mended(await self._ask(f"repair {name} {number + 1}", asked), about, made, self._api)
                lacks = "" if made.code and made.cases else "cases" if made.code else "code"
                trial = Trial(f"there is no answer with {lacks} yet", lacks) if lacks else Trial()
            except AnswerRefusedError as error:
                trial = Trial(str(error), about)
        return Built(name, not trial.problem, trial.problem[:300], number, trial, made=made)

    async def _placed(self, done: Built) -> Built:
        """The same with its paired trial; dropped where it costs more than it brings."""
        assert done.made is not None
        self._tell(f"{done.name}: with it and without")
        try:
            weighed = await self._weighed(done.made)
        except (AnswerRefusedError, SpentError) as error:
            weighed = Weighed(why=str(error))
        if weighed.verdict != "costs more":
            return replace(done, weighed=weighed)
        return replace(done, accepted=False, why="with it, held-out tasks cost more than without", weighed=weighed)

    async def _weighed(self, made: BuiltFunction) -> Weighed:
        assert self.plays is not None
        ids, pairs = list(self.held_out), []
        asked = prompts.trial(self._api, made, list(self.held_out.values()))
        planned = answers.plans(await self._ask(f"trial {made.name}", asked), made, self._api, len(ids))
        for number, calls in sorted(planned.items()):
            task = ids[number - 1]
            before = await self._ledger.once(f"play {task}", "", Played, partial(self.plays, task, None, []))
            having = partial(self.plays, task, made, calls)
            pairs.append((before, await self._ledger.once(f"play {task} {made.name}", made.code, Played, having)))
        return weigh(pairs) if pairs else Weighed(why="no held-out task has a use for it")

    async def _ask(self, key: str, asked: prompts.Messages) -> str:
        """The model's answer. Raises AnswerRefusedError for one that was cut, SpentError, EndpointDown."""

        async def ask() -> Completed:
            if self.budget_tokens is not None and (spent := self._ledger.spent()) >= self.budget_tokens:
                raise SpentError(f"{spent} of --budget-tokens {self.budget_tokens} are spent")
            return await self._endpoint.complete(asked, 0, temperature=0.0, max_tokens=ANSWER_TOKENS)

        done = await self._ledger.once(f"ask {key}", str(asked[-1]["content"]), Completed, ask)
        if done.cut:
            raise AnswerRefusedError(f"the answer is not whole: {done.cut}")
        return done.text
