"""`demos list|show|export|import`: recordings as files and as runs.

Invariant: looking and exporting change nothing; an import is whole or has not happened, and a run that is going on is
left alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import demosource, deployfile, models, runcommand, runfolder, say, typed
from actors.cluster.config import DemonstrationsConfig, Deploy, RunConfig, SeatsConfig
from actors.replay import demofiles, demorun, demos
from actors.replay.actor import DATABASE, SEGMENTS
from actors.replay.config import DemosConfig, LedgerSettings, ReplayConfig
from actors.replay.demofiles import Demo, Header
from actors.replay.store import Ledger
from actors.replay.strata import family_of, name_of
from runtime.errors import ComputerRLError, ConfigError, StoreError
from runtime.origin import check_origin
from runtime.segments import SegmentStore

ALL = 10**9  # demonstrations: an import by hand takes in what the file holds


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One stratum of a recording."""

    family: str
    route: str
    demos: int
    tasks: int  # different ones
    steps: float  # mean
    prompt_tokens: int  # of the longest prompt
    response_tokens: int  # of the longest response
    wall_s: float  # median, of one episode


def list_runs(args: argparse.Namespace) -> int:
    """Every run that holds demonstrations."""
    rows: list[dict[str, Any]] = []
    for path, record in runfolder.all_runs(Path(args.runs)):
        try:
            counts = demorun.counts(path)
            header = demofiles.read(path)[0]
        except StoreError:
            continue  # a run of another build, or one without a ledger: `runs` lists it
        if header.demos:
            state = runfolder.state(path, record)
            rows.append({"run": record.name, "state": state, "started": record.started, "seed": record.seed,
                         "header": header, "strata": counts})  # fmt: skip
    if args.json:
        say.document(rows)
    elif not rows:
        say.line(f"no demonstrations in {args.runs}: record some with  computerrl demos record desktop --count 64")
    else:
        say.table(
            ("RUN", "STATE", "STARTED", "SEED", "DEMOS", "FORM", "TOKENIZER", "FAMILIES"),
            [
                (
                    row["run"],
                    row["state"],
                    row["started"],
                    row["seed"],
                    row["header"].demos,
                    row["header"].form or "-",
                    row["header"].tokenizer or "-",
                    len({name.partition("/")[0] for name in row["strata"]}),
                )
                for row in rows
            ],
        )
    return 0


def show(args: argparse.Namespace) -> int:
    """A recording by family and route, or the steps of one task."""
    path = demosource.locate(args.recording, Path(args.runs))
    header, found = _read(path)
    if args.task:
        return _show_task(path, _stated(found), args)
    figures = figures_of(_stated(found))
    if args.json:
        say.document({"recording": str(path), "header": header, "strata": figures})
        return 0
    say.line(f"{path}: {header.demos} demonstrations, form {header.form or '-'}, tokenizer {header.tokenizer or '-'}\n")
    say.table(
        ("FAMILY", "ROUTE", "DEMOS", "TASKS", "STEPS", "PROMPT TOKENS", "RESPONSE TOKENS", "WALL S"),
        [
            (f.family, f.route or "-", f.demos, f.tasks, f"{f.steps:.1f}", f.prompt_tokens, f.response_tokens,
             f"{f.wall_s:.1f}")
            for f in figures
        ],
    )  # fmt: skip
    return 0


def figures_of(found: Iterable[Demo]) -> list[Figures]:
    """One per family and route, in order of appearance."""
    strata: dict[str, list[tuple[str, int, int, int, float]]] = {}
    routes: dict[str, tuple[str, str]] = {}
    for demo in found:
        family = family_of(demo.task)
        name = name_of(family, demo.route)
        routes[name] = family, demo.route
        prompt = max((len(step.payload.prompt_ids) for step in demo.steps), default=0)
        response = max((len(step.payload.response_ids) for step in demo.steps), default=0)
        strata.setdefault(name, []).append((demo.task, len(demo.steps), prompt, response, demo.wall_s))
    return [
        Figures(
            family=routes[name][0],
            route=routes[name][1],
            demos=len(rows),
            tasks=len({task for task, *_ in rows}),
            steps=statistics.fmean(steps for _, steps, *_ in rows),
            prompt_tokens=max(prompt for _, _, prompt, _, _ in rows),
            response_tokens=max(response for *_, response, _ in rows),
            wall_s=statistics.median(wall_s for *_, wall_s in rows),
        )
        for name, rows in strata.items()
    ]


def _show_task(path: Path, found: Iterable[Demo], args: argparse.Namespace) -> int:
    mine = [demo for demo in found if demo.task == args.task]
    if not mine:
        raise ConfigError(f"--task {args.task}: {path} holds no demonstration of it")
    if args.json:
        say.document(mine)
        return 0
    for demo in mine:
        say.line(f"{demo.task}   route {demo.route or '-'}, {len(demo.steps)} steps, {demo.wall_s:.1f} s")
        for number, step in enumerate(demo.steps):
            say.line(f"\n--- step {number}, {len(step.payload.prompt_ids)} prompt tokens")
            say.line(step.payload.observation)
            say.line("--- answer")
            say.line(step.payload.response)
            say.line(f"--- result: {step.payload.result or ''}")
    return 0


def export(args: argparse.Namespace) -> int:
    """Write a recording to a file."""
    path, file = demosource.locate(args.recording, Path(args.runs)), Path(args.file)
    try:
        if demofiles.kind_of(file) == "run":
            raise ConfigError(f"{file}: a folder; name a .jsonl or .parquet file")
        header, found = demofiles.read(path)
        if not header.demos:
            raise ConfigError(f"{path}: no demonstrations to export")
        demofiles.write(file, header, found)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    if args.json:
        say.document({"file": str(file), "header": header, "bytes": file.stat().st_size})
    else:
        say.line(f"{file}: {header.demos} demonstrations, {file.stat().st_size >> 10} KiB")
    return 0


def import_(args: argparse.Namespace) -> int:
    """Take a file's demonstrations into a run, or into a new one of that name."""
    begun, runs = time.time(), Path(args.runs)
    source = demosource.locate(args.file, runs)
    header = demosource.header_of(source)
    folder = (runs / args.run).resolve()
    fresh = not (folder / "run.json").exists()
    if fresh:
        runcommand.refuse_bad_name(args.run, "RUN")
        deploy, model = Deploy(), str(models.locate(""))
        deploy = Deploy(
            run=RunConfig(),
            demos=DemonstrationsConfig(count=header.demos),
            desktops=SeatsConfig(form="paper" if header.form == "paper" else "compact"),
        )
    else:
        deploy = typed.read(folder / "deploy.yaml", Deploy)
        model = str(models.locate(deploy.run.base))
    settings = LedgerSettings(
        seed=deploy.run.seed,
        train_tasks=[],
        demo_tasks=[],
        max_steps=deploy.tasks.max_steps,
        demos=DemosConfig(count=ALL),
        rules=ReplayConfig() if fresh else deploy.replay,
        # A new run has no model of its own yet: it takes the tokenizer that the file names.
        tokenizer=header.tokenizer if fresh else models.fingerprint(model),
        form=header.form if fresh else deploy.desktops.form,
    )
    _refuse_foreign(source, header, settings)
    record = runfolder.RunRecord(
        name=folder.name,
        file=f"demos import {args.file}",
        seed=deploy.run.seed,
        build=check_origin().build,
        versions={},
        started=runfolder.iso(begun),
        started_s=begun,
    )
    before = None if fresh else runfolder.read_record(folder)
    run = runfolder.claim(folder, record, resume=not fresh)
    if fresh:
        (folder / "deploy.yaml").write_text(deployfile.dump(deploy), encoding="utf-8")
    verdict: tuple[str, str | None] = ("failed", "the import was broken off")
    try:
        moved = _take_in(folder, source, settings)
        verdict = ("ok", f"{moved} demonstrations from {source.name}")
    except ComputerRLError as error:
        verdict = ("failed", str(error))
        raise ConfigError(str(error)) from None
    finally:
        if before is not None:  # what an old run was and how it ended stays as it is
            run.record, verdict = before, (before.verdict or "stopped", before.reason)
        run.end(*verdict)
    if args.json:
        say.document({"run": folder.name, "imported": moved, "offered": header.demos})
    else:
        held = header.demos - moved
        say.line(f"{folder.name}: {moved} demonstrations taken in{f', {held} were there already' if held else ''}")
    return 0


def _refuse_foreign(source: Path, header: Header, settings: LedgerSettings) -> None:
    try:
        demos.refuse_foreign(source, header, tokenizer=settings.tokenizer, form=settings.form)
    except ComputerRLError as error:
        raise ConfigError(str(error)) from None


def _take_in(folder: Path, source: Path, settings: LedgerSettings) -> int:
    ledger = Ledger(folder / DATABASE, settings)
    try:
        segments = SegmentStore(folder / SEGMENTS, "import")
        try:
            ledger.run([demos.label])
            (moved,) = ledger.run([lambda book: demos.import_demos(book, source, segments, folder)])
        finally:
            segments.close()
    finally:
        ledger.close()
    if isinstance(moved, ComputerRLError):
        raise moved
    return int(moved.demos)


def _read(path: Path) -> tuple[Header, Iterable[Demo]]:
    try:
        return demofiles.read(path)
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _stated(found: Iterable[Demo]) -> Iterable[Demo]:
    """The demonstrations, with a file's troubles as one line for the user."""
    try:
        yield from found
    except StoreError as error:
        raise ConfigError(str(error)) from None
