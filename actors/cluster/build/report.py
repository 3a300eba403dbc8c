"""What a build came to: the folder of accepted functions, and a report for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from actors.cluster.build.ledger import Exchange
from actors.cluster.build.pipeline import Pipeline
from apis import built
from apis.build.judge import Built
from apis.build.profile import Profile

REPORT = "report.md"
HEAD = ("function", "verdict", "repairs", "tokens", "p50 ms", "p95 ms", "mutants noticed", "serves tasks")


def write(  # noqa: PLR0917 - what a report is made of
    folder: Path,
    profile: Profile,
    done: Pipeline,
    outcomes: Sequence[Built],
    exchanges: Mapping[str, Exchange],
    exemplars: Sequence[str],
) -> None:
    """Write what `apis show`, `accept` and `check` read, the declaration last."""
    write_json(folder / built.CODE, {name: done.sources[name] for name in sorted(done.sources)})
    cases = {name: done.cases[name] for name in sorted(done.cases)}
    write_json(folder / built.CASES, cases)
    lines = [
        f"# Functions for {profile.title}",
        "",
        f"{len(done.sources)} of {len(outcomes)} were accepted, for {len(exemplars)} tasks. "
        f"{len(exchanges)} answers of the model{_tokens(list(exchanges.values()))}.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
        *(
            "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
            for row in rows(outcomes, exchanges)
        ),
        "",
        "Tasks:",
        "",
        *(f"{number}. {_plain(text)}" for number, text in enumerate(exemplars, 1)),
    ]
    (folder / REPORT).write_text("\n".join(lines) + "\n")
    api = built.Api(
        profile.app,
        profile.owner,
        profile.title,
        profile.helpers,
        profile.imports,
        {name: built.BuiltFunction(each.does, each.params) for name, each in sorted(done.interfaces.items())},
    )
    write_json(folder / built.API, api)


def write_json(path: Path, value: object) -> None:
    """Write a file of a built folder."""
    path.write_text(json.dumps(msgspec.to_builtins(value), indent=1, ensure_ascii=False) + "\n")


def rows(outcomes: Sequence[Built], exchanges: Mapping[str, Exchange]) -> list[tuple[object, ...]]:
    """A row of `HEAD` for each interface."""
    made: list[tuple[object, ...]] = []
    for each in outcomes:
        own = [answer for key, answer in exchanges.items() if each.name in key.split()]
        trial, verdict = each.trial, "accepted" if each.accepted else f"dropped: {_plain(each.why)[:160]}"
        counts = [(a.read_tokens or 0) + (a.written_tokens or 0) for a in own if a.read_tokens is not None]
        noticed = f"{trial.noticed} of {trial.mutants}" if trial.mutants else "-"
        times = (f"{trial.p50_ms:.1f}", f"{trial.p95_ms:.1f}") if each.accepted else ("-", "-")
        serves = ", ".join(map(str, each.serves)) or "-"
        made.append((each.name, verdict, each.rounds, sum(counts) if counts else "-", *times, noticed, serves))
    return made


def _tokens(all_answers: Sequence[Exchange]) -> str:
    known = [each for each in all_answers if each.read_tokens is not None]
    if not known:
        return "; the server counts no tokens"
    read, written = (sum(getattr(each, name) or 0 for each in known) for name in ("read_tokens", "written_tokens"))
    return f", {read} tokens read and {written} written"


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
