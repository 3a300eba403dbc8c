"""The stages of a build, from exemplars to a folder: read, require, implement, cases, trials, repairs, paired trial.

Every answer and every trial goes through the ledger, one database file below the build's folder. So the stages are
written as if nothing could end them, and a build that was killed does them again without asking or trying twice.

Invariant: an answer or a trial is kept once, whole, before anything follows from it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from actors.desktop.endpoint import Endpoint
from actors.replay.statistics import paired, quantile95
from apis.build import answers, prompts
from apis.build.answers import AnswerRefusedError, Cases, Interface
from apis.build.judge import PAIRS_LEAST, ROUNDS_MOST, Built, Complaint, Trial, Weighed, finding
from apis.build.profile import Profile
from runtime.errors import ConfigError

FILE = "build.sqlite"
T = TypeVar("T", bound=msgspec.Struct)
AT_ONCE = 10  # exemplars of one request
ANSWER_TOKENS = 4096
TRIES = 2  # of an answer that is not of the form asked for


class Exchange(msgspec.Struct, frozen=True):
    """One answer of the model; tokens are the server's own counts, or None where it gives none."""

    answer: str
    cut: str = ""
    read_tokens: int | None = None
    written_tokens: int | None = None
    seconds: float = 0.0


class BuildLedger:
    """The file, opened; `begun` describes the build, and another one can't go on here."""

    def __init__(self, folder: Path, begun: str) -> None:
        self._base = sqlite3.connect(folder / FILE, isolation_level=None, timeout=0.5)
        try:
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, asked TEXT, value TEXT NOT NULL)"
            )
            self._base.executescript("BEGIN EXCLUSIVE; COMMIT")
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise ConfigError(f"{folder / FILE} can't be used: {error}; does another build go on there?") from error
        before = self._value("begun")
        if before is None:
            self._keep("begun", "", begun)
        elif before != begun:
            raise ConfigError(f"{folder} holds another build: give the arguments that it began with, or another --out")

    async def once(self, key: str, asked: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """What is kept for `key`, or what `work` gives, which is then kept with what was asked."""
        if (kept := self._value(key)) is not None:
            return msgspec.json.decode(kept, type=kind)
        made = await work()
        self._keep(key, asked, msgspec.json.encode(made).decode())
        return made

    def exchanges(self) -> dict[str, Exchange]:
        """All answers so far by their keys, in order."""
        rows = self._base.execute("SELECT key, value FROM kept WHERE key LIKE 'ask %' ORDER BY rowid").fetchall()
        return {key.removeprefix("ask "): msgspec.json.decode(value, type=Exchange) for key, value in rows}

    def spent(self) -> int:
        """Tokens of all answers so far, and of tasks that a model played."""
        asked = sum((each.read_tokens or 0) + (each.written_tokens or 0) for each in self.exchanges().values())
        rows = self._base.execute("SELECT value FROM kept WHERE key LIKE 'play %'").fetchall()
        return asked + sum(msgspec.json.decode(value, type=Played).tokens for (value,) in rows)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def _value(self, key: str) -> str | None:
        row = self._base.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _keep(self, key: str, asked: str, value: str) -> None:
        self._base.execute("INSERT INTO kept VALUES (?, ?, ?)", (key, asked, value))


class Played(msgspec.Struct, frozen=True):
    """A held-out task, played to its end."""

    solved: bool
    turns: int
    tokens: int = 0  # of a model that played it


Plays = Callable[[str, Interface | None, str, Sequence[dict[str, Any]]], Awaitable[Played]]


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
    plays: Plays | None = None  # a held-out task, with a function of a source and its calls, or without
    held_out: Mapping[str, str] = field(default_factory=dict)  # id -> instruction
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
        return [await self._placed(each) if each.accepted and self.held_out else each for each in built]

    async def _placed(self, done: Built) -> Built:
        """The same with its paired trial; dropped where it costs more than it brings."""
        self._tell(f"{done.name}: with it and without")
        try:
            weighed = await self._weighed(self.interfaces[done.name], self.sources[done.name])
        except (AnswerRefusedError, SpentError) as error:
            return replace(done, weighed=Weighed(why=str(error)))
        if weighed.verdict != "costs more":
            return replace(done, weighed=weighed)
        for kept in (self.sources, self.cases, self.interfaces):
            del kept[done.name]
        return replace(done, accepted=False, why="with it, held-out tasks cost more than without", weighed=weighed)

    async def _weighed(self, interface: Interface, source: str) -> Weighed:
        assert self.plays is not None
        ids, function = list(self.held_out), interface.function(self._profile.owner)
        asked = prompts.trial(self._profile, interface, list(self.held_out.values()))
        planned = answers.plans(await self._ask(f"trial {interface.name}", asked), function, len(ids))
        pairs = []
        for number, calls in planned.items():
            task = ids[number - 1]
            without = partial(self.plays, task, None, "", [])
            having = partial(self.plays, task, interface, source, calls)
            before = await self._ledger.once(f"play {task}", "", Played, without)
            pairs.append((before, await self._ledger.once(f"play {task} {interface.name}", source, Played, having)))
        return weigh(pairs) if pairs else Weighed(why="no held-out task has a use for it")

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
        spent = self._ledger.spent()

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


def weigh(pairs: Sequence[tuple[Played, Played]]) -> Weighed:
    """What tasks without and with a function say of it."""
    gain = paired([(int(one.solved), 1) for one, _ in pairs], [(int(two.solved), 1) for _, two in pairs])
    more = [having.turns - without.turns for without, having in pairs if without.solved and having.solved]
    mean, within = fmean(more) if more else 0.0, None
    if len(more) >= PAIRS_LEAST:
        half = quantile95(len(more) - 1) * stdev(more) / len(more) ** 0.5
        within = (round(mean - half, 2), round(mean + half, 2))
    counts = (gain.before.successes, gain.after.successes)
    return Weighed(len(pairs), counts, (round(gain.low, 3), round(gain.high, 3)), round(mean, 2), within)
