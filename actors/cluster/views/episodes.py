"""What `episodes` prints.

Invariant: an episode is shown whole, or the command says that its steps are gone. What a desktop or a model wrote is
quoted, so that no line of it can pass for one of this program's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files, models
from actors.cluster.config.suggest import hint
from actors.cluster.report import page as pages
from actors.cluster.report.episodes import EpisodeView, ShownStep, read
from actors.cluster.runs import ledgers, run_folder
from actors.cluster.words import plain
from actors.replay.database import queries
from actors.replay.messages import Lane, trace_of
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.logs.reader import read_logs
from runtime.program import program

FAULT = "fault"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes: of a family, of a phase or evaluation round, with an ending. None is any."""

    family: str | None = None
    phase: str | None = None
    ending: str | None = None  # "success", "failure" or "fault"

    def takes(self, one: EpisodeLine) -> bool:
        """Whether `one` is among them."""
        return (
            self.family in (None, one.task.partition("/")[0])
            and self.phase in (None, one.phase, one.where)
            and self.ending in (None, one.ending)
        )


class EpisodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at an episode. Each attempt at it has the same trace and a token of its own."""

    trace: str
    token: int
    task: str
    where: str  # the evaluation round, or the phase
    phase: str
    ending: str  # "success", "failure" or "fault"
    reason: str  # "" for a fault
    steps: int | None  # None for a fault
    wall_s: float | None
    stored: bool  # whether its steps are still kept


def listed(run: Path, wanted: Wanted, most: int, below: int | None = None) -> list[EpisodeLine]:
    """The newest `most` episodes of `run` that are wanted, older than token `below`. Raises ConfigError."""
    top = math.inf if below is None else below
    with ledgers.opened(run) as db:
        return [*itertools.islice(filter(lambda one: one.token < top and wanted.takes(one), _lines(db)), most)]


def neighbours(run: Path, token: int, wanted: Wanted) -> tuple[int | None, int | None]:
    """The tokens of the next newer and the next older stored episode that are wanted. Raises ConfigError."""
    with ledgers.opened(run) as db:
        tokens = [one.token for one in _lines(db) if one.token == token or (one.stored and wanted.takes(one))]
    at = tokens.index(token)
    return tokens[at - 1] if at else None, tokens[at + 1] if tokens[at + 1 :] else None


def known(run: Path) -> tuple[list[str], list[str]]:
    """The families, and the phases and evaluation rounds, that `run` has played. Raises ConfigError."""
    with ledgers.opened(run) as db:
        places = [row["phase"] for row in queries.phases(db)] + [row["name"] for row in queries.rounds(db)]
        return queries.families_played(db), [*dict.fromkeys(places)]


def found(run: Path, named: str) -> tuple[EpisodeLine, EpisodeView, str]:
    """The episode of `run` that `named` (a trace or a token) means, whole, and what its verifier saw.

    A trace means the newest attempt whose steps are stored. Raises ConfigError where there is no such episode, or its
    steps are gone.
    """
    with ledgers.opened(run) as db:
        rows = {row["token"]: row for row in queries.episodes(db)}
        every = [*map(line_of, rows.values())]
        meant = [one for one in every if named in (one.trace, str(one.token))]
        if not meant:
            there = (one.trace for one in every if one.stored)
            raise ConfigError(f"{named}: no such episode in {run.name}; {hint(named, there)}")
        one = next((one for one in meant if one.stored), meant[0])
        episode = read(run, db, rows[one.token]) if one.stored else None
    said = {line["event"]: line for line in read_logs(run, trace=one.trace) if line.get("token") == one.token}
    if episode is None:
        raise ConfigError(_gone(run, one, said.get("episode_released", {})))
    return one, episode, str(said.get("episode_ended", {}).get("detail", ""))


def show_all(run: Path, wanted: Wanted, *, most: int, as_json: bool) -> int:
    """Print the newest `most` episodes of `run` that are wanted; 0. Raises ConfigError for a name that none has."""
    with ledgers.opened(run) as db:
        every = [*_lines(db)]
    _known("--family", wanted.family, (one.task.partition("/")[0] for one in every))
    _known("--phase", wanted.phase, itertools.chain.from_iterable((one.phase, one.where) for one in every))
    shown = [one for one in every if wanted.takes(one)]
    if as_json:
        output.document(shown[:most])
        return 0
    rows = [
        (one.trace, one.task, one.where, f"{one.ending} ({plain(one.reason)})" if one.reason else one.ending,
         "" if one.steps is None else one.steps, "" if one.wall_s is None else f"{one.wall_s:.1f}",
         "yes" if one.stored else "no")
        for one in shown[:most]
    ]  # fmt: skip
    output.table(("TRACE", "TASK", "PLAYED IN", "VERDICT", "STEPS", "SECONDS", "STORED"), rows)
    more = f", the newest {most} shown: --most {len(shown)} shows all" if shown[most:] else ""
    output.line(f"{len(shown)} episodes{more}")
    if (first := next((one for one in shown if one.stored), None)) is not None:
        output.line(f"one step by step: {program()} episodes show {run_folder.words_for(run)} {first.trace}")
    return 0


def show_one(run: Path, named: str, *, tokens: bool, page: Path | None, as_json: bool) -> int:
    """Print the episode that `found` finds, or write `page`; 0."""
    one, episode, detail = found(run, named)
    if page is not None:
        title = f"{run.name} {one.trace}"
        page.write_text(pages.styled(title, pages.episode_of(episode, detail)), encoding="utf-8")
        output.line(f"page: {page}")
    elif as_json:
        output.document({"episode": one, "detail": detail, "steps": [_plain(step) for step in episode.steps]})
    else:
        _print(run, one, episode, detail, tokens=tokens)
    return 0


def _gone(run: Path, one: EpisodeLine, released: dict[str, Any]) -> str:
    if one.ending == FAULT:
        cause = f": {released['cause']}: {released['detail']}" if released else ""
        more = f"{program()} logs {run_folder.words_for(run)} --trace {one.trace}"
        return f"{one.trace} was broken by a fault{cause}; {more} tells more"
    return f"{one.trace} was a {one.ending} ({plain(one.reason)}); its steps have been deleted since, to bound the disk"


def _lines(db: queries.Database) -> Iterator[EpisodeLine]:
    return map(line_of, queries.episodes(db))


def line_of(row: queries.Row) -> EpisodeLine:
    """A row of `queries.episodes`."""
    group = "" if row["group_id"] is None else str(row["group_id"])
    ending = FAULT if row["success"] is None else "success" if row["success"] else "failure"
    return EpisodeLine(
        trace=trace_of(Lane(row["lane"]), group, row["round"] or "", row["slot"]),
        token=row["token"],
        task=row["task"],
        where=row["whereto"] or "",
        phase=row["phase"] or "",
        ending=ending,
        reason=row["reason"] or "",
        steps=row["steps"],
        wall_s=row["wall_s"],
        stored=bool(row["stored"]) and bool(row["steps"]),
    )


def _known(flag: str, word: str | None, words: Iterator[str]) -> None:
    if word is not None and word not in (there := sorted({*words} - {""})):
        raise ConfigError(f"{flag} {word}: no episode is of it; {hint(word, there)}")


def _plain(step: ShownStep) -> dict[str, Any]:
    return {name: getattr(step, name) for name in step.__struct_fields__ if name != "screenshot"}


def _print(run: Path, one: EpisodeLine, episode: EpisodeView, detail: str, *, tokens: bool) -> None:
    output.line(output.clean(f"{one.trace}  {one.task}  played in {one.where}  token {one.token}"))
    text = _decoder(run) if tokens else None
    for number, step in enumerate(episode.steps, 1):
        output.line(f"\nstep {number} of {len(episode.steps)}")
        output.quoted(text(step.prompt_ids) if text is not None else step.observation)
        output.line("answer")
        output.quoted(step.response)
        if step.refusal is not None:
            output.line(output.clean(f"refused: {step.refusal}"))
        else:
            output.line(output.clean(f"action: {step.action}"))
            output.line("result")
            output.quoted(step.result or "")
        if text is not None:
            _tokens(step, text)
    said = f"{one.ending} ({plain(one.reason)})" + (f": {detail}" if detail else "")
    output.line(output.clean(f"\nverdict: {said}", lines=True))
    if episode.pictures:
        whole = f"{program()} episodes show {run_folder.words_for(run)} {one.trace} --html FILE.html"
        output.line(f"{len(episode.pictures)} screenshots: {whole}")


def _decoder(run: Path) -> Callable[[list[int]], str]:
    """What turns ids into text, by the tokenizer of the run's model."""
    return Tokenizer.load(models.locate(deploy_files.stored(run).model.path)).decode


def _tokens(step: ShownStep, text: Callable[[list[int]], str]) -> None:
    """A row for each token of the answer; demonstrations have neither log-probability nor version."""
    versions = {n: str(span.version) for span in step.spans for n in range(span.start, span.end)}
    rows = [
        (n, token, repr(text([token])), f"{step.logprobs[n]:.4f}" if step.logprobs else "", versions.get(n, ""))
        for n, token in enumerate(step.response_ids)
    ]
    output.table(("N", "ID", "TOKEN", "LOGPROB", "WEIGHTS"), rows)
