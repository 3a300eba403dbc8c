"""`demos list|show|export`: what recordings there are, and as files.

Invariant: looking and exporting change nothing.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.runs import recordings, run_folder
from actors.replay import observed
from actors.replay.demos import demo_files, demo_run
from actors.replay.demos.format import Demo, RecordingHeader
from actors.replay.rules.strata import family_of, name_of
from runtime.errors import ConfigError, StoreError
from runtime.program import program


class StratumFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One stratum of a recording."""

    family: str
    route: str  # or who of a pool made them
    demos: int
    tasks: int  # different ones
    steps: float  # mean
    prompt_tokens: int  # of the longest prompt
    response_tokens: int  # of the longest response
    wall_s: float  # median, of one episode


def list_runs(args: argparse.Namespace) -> int:
    """Every run that holds demonstrations."""
    rows: list[dict[str, Any]] = []
    for path, record in run_folder.all_runs(run_folder.of_runs(args.runs)):
        try:
            counts = demo_run.counts(path)
            header = demo_files.read(path)[0]
        except StoreError:
            continue  # a run of another build, or one without a ledger: `runs` lists it
        if header.demos:
            state = run_folder.state(path, record)
            rows.append({"run": record.name, "state": state, "started": record.started, "seed": record.seed,
                         "header": header, "strata": counts})  # fmt: skip
    if args.json:
        output.document(rows)
    elif not rows:
        more = f"{program()} demos record desktop --count 64{run_folder.runs_flag(Path(args.runs))}"
        output.line(f"no demonstrations in {args.runs}: record some with  {more}")
    else:
        output.table(
            ("RUN", "STATE", "STARTED", "SEED", "DEMOS", "FORM", "OBSERVATION", "TOKENIZER", "FAMILIES"),
            [
                (
                    row["run"],
                    row["state"],
                    row["started"],
                    row["seed"],
                    row["header"].demos,
                    row["header"].form or "-",
                    observed.as_text(row["header"].observations),
                    row["header"].tokenizer or "-",
                    len({name.partition("/")[0] for name in row["strata"]}),
                )
                for row in rows
            ],
        )
    return 0


def show(args: argparse.Namespace) -> int:
    """A recording by family and route, or the steps of one task."""
    path = recordings.locate(args.recording, Path(args.runs))
    header, found = _read(path)
    if args.task:
        return _show_task(path, _stated(found), args)
    figures = figures_of(_stated(found))
    if args.json:
        output.document({"recording": str(path), "header": header, "strata": figures, "tasks": tasks_of(header)})
        return 0
    output.prose(
        f"{path}: {header.demos} demonstrations, form {header.form or '-'},"
        f" actions {header.actions or '-'}, observation {observed.as_text(header.observations)},"
        f" tokenizer {header.tokenizer or '-'}\n"
    )
    output.table(
        ("FAMILY", "BY", "DEMOS", "TASKS", "STEPS", "PROMPT TOKENS", "RESPONSE TOKENS", "WALL S"),
        [
            (f.family, f.route or "-", f.demos, f.tasks, f"{f.steps:.1f}", f.prompt_tokens, f.response_tokens,
             f"{f.wall_s:.1f}")
            for f in figures
        ],
    )  # fmt: skip
    if strata := tasks_of(header):
        output.line("\ntasks by how often the pool's first attempts at them succeeded:\n")
        rows = [(family, found["always"], found["sometimes"], found["never"]) for family, found in strata.items()]
        output.table(("FAMILY", "ALWAYS", "SOMETIMES", "NEVER"), rows)
    return 0


def tasks_of(header: RecordingHeader) -> dict[str, dict[str, int]]:
    """Family -> stratum -> tasks, by their first attempts; empty for a recording without strata."""
    found: dict[str, dict[str, int]] = {}
    for one in header.tasks:
        stratum = "always" if one.wins == one.tries else "sometimes" if one.wins else "never"
        counts = found.setdefault(family_of(one.task), {"always": 0, "sometimes": 0, "never": 0})
        counts[stratum] += 1
    return found


def figures_of(found: Iterable[Demo]) -> list[StratumFigures]:
    """One per family and route, by name."""
    strata: dict[str, list[tuple[str, int, int, int, float]]] = {}
    routes: dict[str, tuple[str, str]] = {}
    for demo in found:
        family = family_of(demo.task)
        route = demo.member or demo.route
        name = name_of(family, route)
        routes[name] = family, route
        prompt = max((len(step.payload.prompt_ids) for step in demo.steps), default=0)
        response = max((len(step.payload.response_ids) for step in demo.steps), default=0)
        strata.setdefault(name, []).append((demo.task, len(demo.steps), prompt, response, demo.wall_s))
    return [
        StratumFigures(
            family=routes[name][0],
            route=routes[name][1],
            demos=len(rows),
            tasks=len({task for task, *_ in rows}),
            steps=statistics.fmean(steps for _, steps, *_ in rows),
            prompt_tokens=max(prompt for _, _, prompt, _, _ in rows),
            response_tokens=max(response for *_, response, _ in rows),
            wall_s=statistics.median(wall_s for *_, wall_s in rows),
        )
        for name, rows in sorted(strata.items())
    ]


def _show_task(path: Path, found: Iterable[Demo], args: argparse.Namespace) -> int:
    mine = [demo for demo in found if demo.task == args.task]
    if not mine:
        raise ConfigError(f"--task {args.task}: {path} holds no demonstration of it")
    if args.json:
        output.document(mine)
        return 0
    for demo in mine:
        output.line(
            f"{demo.task}   by {demo.member or demo.route or '-'}, {len(demo.steps)} steps, {demo.wall_s:.1f} s"
        )
        for number, step in enumerate(demo.steps):
            output.line(f"\n--- step {number}, {len(step.payload.prompt_ids)} prompt tokens")
            output.quoted(step.payload.observation)
            output.line(f"--- answer{' of ' + step.payload.by if step.payload.by else ''}")
            output.quoted(step.payload.response)
            output.line(output.clean(f"--- result: {step.payload.result or ''}"))
    return 0


def export(args: argparse.Namespace) -> int:
    """Write a recording to a file."""
    path, file = recordings.locate(args.recording, Path(args.runs)), Path(args.file)
    places.refuse_no_file(file, "FILE")
    try:
        demo_files.kind_of(file)
        if file.exists() and not args.force:
            raise ConfigError(f"{file} exists already: name another file, or replace it with --force")
        header, found = demo_files.read(path)
        if not header.demos:
            raise ConfigError(f"{path}: no demonstrations to export")
        demo_files.write(file, header, found)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    if args.json:
        output.document({"file": str(file), "header": header, "bytes": file.stat().st_size})
    else:
        output.line(f"{file}: {header.demos} demonstrations, {file.stat().st_size >> 10} KiB")
    return 0


def _read(path: Path) -> tuple[RecordingHeader, Iterable[Demo]]:
    try:
        return demo_files.read(path)
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _stated(found: Iterable[Demo]) -> Iterable[Demo]:
    """The demonstrations, with a file's troubles as one line for the user."""
    try:
        yield from found
    except StoreError as error:
        raise ConfigError(str(error)) from None
