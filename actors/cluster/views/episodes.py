"""What `episodes` prints.

Invariant: an episode is shown whole, or the command says that its steps are gone. What a desktop or a model wrote is
quoted, so that no line of it can pass for one of this program's.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output, paths, tables
from actors.cluster.config import deploy_files, models
from actors.cluster.config.suggest import hint
from actors.cluster.output import plain
from actors.cluster.report.episodes import EpisodeView, ShownStep, read
from actors.cluster.runs import ledgers, run_folder
from actors.cluster.tables import TableCell, TextTable
from actors.replay.database import queries
from actors.replay.messages import Lane, trace_of
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.logs.reader import read_logs
from runtime.program import program

FAULT = "fault"
MOST = 40  # of a list, unless --most says otherwise


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes: of a family, of a phase or evaluation round, with an ending. None is any."""

    family: str | None = None
    phase: str | None = None
    ending: str | None = None  # "success", "failure" or "fault"

    def takes(self, one: EpisodeLine) -> bool:
        return (
            self.family in (None, one.family)
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

    @property
    def family(self) -> str:
        return self.task.partition("/")[0]

    @property
    def verdict(self) -> str:
        return f"{self.ending} ({plain(self.reason)})" if self.reason else self.ending


def command(args: argparse.Namespace) -> int:
    """`episodes`: a list, or one of them; 0."""
    run, episode = _meant(args)
    folder = run_folder.find(Path(args.runs), run)
    if episode is None:
        wanted = Wanted(family=args.family, phase=args.phase, ending=args.ending)
        return show_all(folder, wanted, most=args.most or MOST, as_json=args.json)
    page = Path(args.html) if args.html is not None else None
    if page is not None:
        paths.refuse_no_file(page, "--html")
    return show_one(folder, episode, tokens=args.tokens, page=page, as_json=args.json)


def _meant(args: argparse.Namespace) -> tuple[str, str | None]:
    """The run, and the episode where one is to be shown."""
    words = args.words
    if len(words) > 1 and (words[0] != "show" or len(words) != 3):
        forms = f"a list is  {program()} episodes RUN,  one of them  {program()} episodes show RUN EPISODE"
        args.parser.error(f"{' '.join(words)}: {forms}")
    *_, run, episode = words if len(words) > 1 else (words[0], None)
    strange = ("family", "phase", "ending", "most") if episode else ("tokens", "html")
    if given := [name for name in strange if getattr(args, name) not in (None, False)]:
        name = args.ending if given[0] == "ending" else given[0]
        form = "a list" if episode else f"one episode: {program()} episodes show RUN EPISODE"
        args.parser.error(f"--{name} is of {form}")
    return run, episode


def listed(run: Path, wanted: Wanted, most: int, below: int | None = None) -> list[EpisodeLine]:
    """The newest `most` episodes of `run` that are wanted, older than token `below`. Raises ConfigError."""
    top = math.inf if below is None else below
    with ledgers.opened(run) as db:
        # No name keeps the rows beyond the ledger's closing.
        return [*itertools.islice((line for line in _lines(db) if line.token < top and wanted.takes(line)), most)]


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


def whole(run: Path, named: str) -> tuple[EpisodeLine, EpisodeView]:
    """The episode of `run` that `named` (a trace or a token) means, whole.

    A trace means the newest attempt whose steps are stored. Raises ConfigError where there is no such episode, or its
    steps are gone.
    """
    with ledgers.opened(run) as db:
        rows = {row["token"]: row for row in queries.episodes(db)}
        every = [*map(line_of, rows.values())]
        meant = [line for line in every if named in (line.trace, str(line.token))]
        if not meant:
            there = (line.trace for line in every if line.stored)
            raise ConfigError(f"{named}: no such episode in {run.name}; {hint(named, there)}")
        line = next((line for line in meant if line.stored), meant[0])
        episode = read(run, db, rows[line.token]) if line.stored else None
    logged = {one["event"]: one for one in read_logs(run, trace=line.trace) if one.get("token") == line.token}
    if episode is None:
        raise ConfigError(_gone(run, line, logged.get("episode_released", {})))
    detail = str(logged.get("episode_ended", {}).get("detail", ""))
    return line, msgspec.structs.replace(episode, detail=detail)


def table_of(lines: Sequence[EpisodeLine], link: Callable[[EpisodeLine], str] | None = None) -> TextTable:
    """`lines` as a table; on a page `link` is the address of one whose steps are stored."""
    head = ("Episode", "Task", "Played in", "Verdict", "Steps", "Seconds", "Stored")
    rows = [
        (TableCell(one.trace, link(one) if link and one.stored else ""), one.task, one.where, one.verdict,
         "" if one.steps is None else one.steps, "" if one.wall_s is None else f"{one.wall_s:.1f}",
         "yes" if one.stored else "no")
        for one in lines
    ]  # fmt: skip
    return TextTable(head, rows, sentences={"Task", "Verdict"})


def show_all(run: Path, wanted: Wanted, *, most: int, as_json: bool) -> int:
    """Print the newest `most` episodes of `run` that are wanted; 0. Raises ConfigError for a name that none has."""
    with ledgers.opened(run) as db:
        every = [*_lines(db)]
    _refuse_unknown("--family", wanted.family, (line.family for line in every))
    _refuse_unknown("--phase", wanted.phase, (name for line in every for name in (line.phase, line.where)))
    shown = [line for line in every if wanted.takes(line)]
    if as_json:
        output.document(shown[:most])
        return 0
    tables.show(table_of(shown[:most]))
    more = f", the newest {most} shown: --most {len(shown)} shows all" if shown[most:] else ""
    output.line(f"{len(shown)} episodes{more}")
    if (first := next((line for line in shown if line.stored), None)) is not None:
        output.line(f"one step by step: {program()} episodes show {run_folder.words_for(run)} {first.trace}")
    return 0


def show_one(run: Path, named: str, *, tokens: bool, page: Path | None, as_json: bool) -> int:
    """Print the episode that `whole` finds, or write `page`; 0."""
    line, episode = whole(run, named)
    if page is not None:
        page.write_text(tables.render("alone.html", title=f"{run.name} {line.trace}", episode=episode), "utf-8")
        output.line(f"page: {page}")
    elif as_json:
        steps = [msgspec.structs.asdict(step) for step in episode.steps]
        plain_steps = [{name: value for name, value in step.items() if name != "screenshot"} for step in steps]
        for step in plain_steps:
            step["pictures"] = [picture.digest for picture in step["pictures"]]
        output.document({"episode": line, "detail": episode.detail, "steps": plain_steps})
    else:
        _print(run, line, episode, tokens=tokens)
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


def _refuse_unknown(flag: str, word: str | None, words: Iterator[str]) -> None:
    if word is not None and word not in (there := sorted({*words} - {""})):
        raise ConfigError(f"{flag} {word}: no episode is of it; {hint(word, there)}")


def _print(run: Path, line: EpisodeLine, episode: EpisodeView, *, tokens: bool) -> None:
    output.line(output.clean(f"{line.trace}  {line.task}  played in {line.where}  token {line.token}"))
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
    detail = f": {episode.detail}" if episode.detail else ""
    output.line(output.clean(f"\nverdict: {line.verdict}{detail}", lines=True))
    if episode.pictures:
        page = f"{program()} episodes show {run_folder.words_for(run)} {line.trace} --html FILE.html"
        output.line(f"{len(episode.pictures)} screenshots: {page}")


def _decoder(run: Path) -> Callable[[list[int]], str]:
    return Tokenizer.load(models.locate(deploy_files.stored(run).model.path)).decode


def _tokens(step: ShownStep, text: Callable[[list[int]], str]) -> None:
    """A row for each token of the answer; demonstrations have neither log-probability nor version."""
    versions = {n: str(span.version) for span in step.spans for n in range(span.start, span.end)}
    rows = [
        (n, token, repr(text([token])), f"{step.logprobs[n]:.4f}" if step.logprobs else "", versions.get(n, ""))
        for n, token in enumerate(step.response_ids)
    ]
    output.table(("N", "ID", "TOKEN", "LOGPROB", "WEIGHTS"), rows)
