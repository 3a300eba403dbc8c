"""`demos show|export`: what a recording holds, and a recording as a file. Nothing of a run is changed."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.cluster import output, tables
from actors.cluster import paths as places
from actors.cluster.config.suggest import blamed
from actors.cluster.runs import recordings
from actors.cluster.tables import TextTable
from actors.replay.database import queries
from actors.replay.demos import demo_files
from actors.replay.demos.format import Demo, RecordingHeader
from actors.replay.rules.cold_start import family_of
from runtime.errors import ConfigError

STRATA = ("always", "sometimes", "never")


def show(args: argparse.Namespace) -> int:
    """A recording by family and route, or the steps of one task."""
    path = recordings.locate(args.recording, Path(args.runs))
    with blamed(""):
        header, demos = demo_files.read(path)
        if args.task:
            return _show_task(path, [demo for demo in demos if demo.task == args.task], args)
        figures = figures_of(demos)
    if args.json:
        output.document({"recording": str(path), "header": header, "strata": figures, "tasks": tasks_of(header)})
        return 0
    output.prose(
        f"{path}: {header.demos} demonstrations, form {header.form or '-'}, actions {header.actions or '-'},"
        f" observation {queries.versions_text(header.observations)}, tokenizer {header.tokenizer or '-'}\n"
    )
    head = ("Family", "By", "Demos", "Tasks", "Steps", "Prompt tokens", "Response tokens", "Wall s")
    rows: list[tuple[object, ...]] = [tuple(row.values()) for row in figures]
    tables.show(TextTable(head, rows))
    rows = [(family, *(counts[name] for name in STRATA)) for family, counts in tasks_of(header).items()]
    kinds = ("Family", *map(str.capitalize, STRATA))
    tables.show(TextTable(kinds, rows, "tasks by how often the pool's first attempts at them succeeded:\n"))
    return 0


def tasks_of(header: RecordingHeader) -> dict[str, dict[str, int]]:
    """Family -> stratum -> tasks, by their first attempts; empty for a recording without strata."""
    families: dict[str, dict[str, int]] = {}
    for task in header.tasks:
        stratum = "always" if task.wins == task.tries else "sometimes" if task.wins else "never"
        families.setdefault(family_of(task.task), dict.fromkeys(STRATA, 0))[stratum] += 1
    return families


def figures_of(demos: Iterable[Demo]) -> list[dict[str, str | int | float]]:
    """One row per family and route, or who of a pool made them, by name: most tokens, mean steps, median seconds."""
    strata: dict[tuple[str, str], list[tuple[str, int, int, int, float]]] = {}
    for demo in demos:
        prompt = max((len(step.payload.prompt_ids) for step in demo.steps), default=0)
        response = max((len(step.payload.response_ids) for step in demo.steps), default=0)
        row = (demo.task, len(demo.steps), prompt, response, demo.wall_s)
        strata.setdefault((family_of(demo.task), demo.member or demo.route or "-"), []).append(row)
    made = []
    for (family, route), rows in sorted(strata.items()):
        tasks, steps, prompts, responses, walls_s = zip(*rows, strict=True)
        made.append({
            "family": family, "route": route, "demos": len(rows), "tasks": len(set(tasks)),
            "steps": round(statistics.fmean(steps), 1), "prompt_tokens": max(prompts),
            "response_tokens": max(responses), "wall_s": round(statistics.median(walls_s), 1),
        })  # fmt: skip
    return made


def _show_task(path: Path, demos: Sequence[Demo], args: argparse.Namespace) -> int:
    if not demos:
        raise ConfigError(f"--task {args.task}: {path} holds no demonstration of it")
    if args.json:
        output.document(demos)
        return 0
    for demo in demos:
        by = demo.member or demo.route or "-"
        output.line(f"{demo.task}   by {by}, {len(demo.steps)} steps, {demo.wall_s:.1f} s")
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
    with blamed(""):
        demo_files.refuse_unwritable(file)
        if file.exists() and not args.force:
            raise ConfigError(f"{file} exists already: name another file, or replace it with --force")
        header, demos = demo_files.read(path)
        if not header.demos:
            raise ConfigError(f"{path}: no demonstrations to export")
        demo_files.write(file, header, demos)
    if args.json:
        output.document({"file": str(file), "header": header, "bytes": file.stat().st_size})
    else:
        output.line(f"{file}: {header.demos} demonstrations, {file.stat().st_size >> 10} KiB")
    return 0
