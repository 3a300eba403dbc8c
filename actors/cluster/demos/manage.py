"""`demos list|show|export|import`: what recordings there are, as files, and into a run.

Invariant: looking and exporting change nothing. An import is whole or has not happened: the whole file is checked
before anything is made. A live run is left alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output, tables
from actors.cluster import paths as places
from actors.cluster.config import deploy_files, models
from actors.cluster.config.schema import DemonstrationsConfig, Deploy, ModelConfig
from actors.cluster.runs import recordings, run, run_folder
from actors.cluster.runs.requests import RunRequest
from actors.cluster.tables import TextTable
from actors.desktop.config import PromptConfig
from actors.replay.actor import LEDGER, SEGMENTS
from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.database import queries
from actors.replay.demos import demo_files
from actors.replay.demos.format import Demo, RecordingHeader
from actors.replay.ledger import demo_tasks
from actors.replay.ledger.store import Ledger
from actors.replay.rules.cold_start import family_of
from actors.settings import DemosConfig
from apis.actions.spaces import SPACES
from apis.prompts import FORMS
from runtime.errors import ComputerRLError, ConfigError, StoreError
from runtime.program import program
from runtime.segments import SegmentStore

STRATA = ("always", "sometimes", "never")
ALL = 10**9  # demonstrations: an import by hand takes in what the file holds


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
            counts = demo_files.counts(path)
            header = demo_files.read(path)[0]
        except StoreError:
            continue  # a run of another build, or one without a ledger: `runs` lists it
        if header.demos:
            about = {"run": record.name, "state": run_folder.state(path, record), "started": record.started}
            rows.append({**about, "seed": record.seed, "header": header, "strata": counts})
    if args.json:
        output.document(rows)
    elif not rows:
        more = f"{program()} demos record desktop --count 64{run_folder.runs_flag(Path(args.runs))}"
        output.line(f"no demonstrations in {args.runs}: record some with  {more}")
    else:
        head = ("Run", "State", "Started", "Seed", "Demos", "Form", "Observation", "Tokenizer", "Families")
        shown = []
        for row in rows:
            header, families = row["header"], {name.partition("/")[0] for name in row["strata"]}
            seen = queries.versions_text(header.observations)
            first = (row["run"], row["state"], row["started"], row["seed"], header.demos, header.form or "-")
            shown.append((*first, seen, header.tokenizer or "-", len(families)))
        tables.show(TextTable(head, shown))
    return 0


def show(args: argparse.Namespace) -> int:
    """A recording by family and route, or the steps of one task."""
    path = recordings.locate(args.recording, Path(args.runs))
    with _in_one_line():
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
    rows: list[tuple[object, ...]] = [
        (f.family, f.route or "-", f.demos, f.tasks, f"{f.steps:.1f}", f.prompt_tokens, f.response_tokens,
         f"{f.wall_s:.1f}")
        for f in figures
    ]  # fmt: skip
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


def figures_of(demos: Iterable[Demo]) -> list[StratumFigures]:
    """One per family and route, by name."""
    strata: dict[tuple[str, str], list[tuple[str, int, int, int, float]]] = {}
    for demo in demos:
        prompt = max((len(step.payload.prompt_ids) for step in demo.steps), default=0)
        response = max((len(step.payload.response_ids) for step in demo.steps), default=0)
        row = (demo.task, len(demo.steps), prompt, response, demo.wall_s)
        strata.setdefault((family_of(demo.task), demo.member or demo.route), []).append(row)
    made = []
    for (family, route), rows in sorted(strata.items()):
        tasks, steps, prompts, responses, walls_s = zip(*rows, strict=True)
        made.append(
            StratumFigures(
                family=family, route=route, demos=len(rows), tasks=len(set(tasks)), steps=statistics.fmean(steps),
                prompt_tokens=max(prompts), response_tokens=max(responses), wall_s=statistics.median(walls_s),
            )
        )  # fmt: skip
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
    with _in_one_line():
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


@contextmanager
def _in_one_line() -> Iterator[None]:
    """The troubles of a file or a ledger as one line for the user."""
    try:
        yield
    except ComputerRLError as error:
        raise ConfigError(str(error)) from None


def take_in(args: argparse.Namespace) -> int:
    """Take a file's demonstrations into a run, or into a new one of that name."""
    runs = Path(args.runs)
    source = recordings.locate(args.file, runs)
    header = recordings.header_of(source)
    recordings.refuse_leaks(source, "FILE")
    folder = (runs / args.run).resolve()
    fresh = not run_folder.is_run(folder)
    if fresh:
        places.refuse_bad_name(args.run, "RUN")
        places.refuse_unwritable(runs, "--runs")
        model = str(models.of_flag(args.model, "--model"))
        if header.tokenizer and header.tokenizer != (has := models.fingerprint(model)):
            raise ConfigError(
                f"{source} was recorded with tokenizer {header.tokenizer}, {model} has {has}: name the model that it"
                " was recorded for with --model"
            )
        deploy = Deploy(
            model=ModelConfig(path=model if args.model else ""),
            demos=DemonstrationsConfig(count=header.demos),
            prompt=PromptConfig(
                format=next((form for form in FORMS if form == header.form), "compact"),
                action_space=next((space for space in SPACES if space == header.actions), "both"),
            ),
        )
    else:
        if args.model is not None:
            raise ConfigError(f"--model {args.model}: run {folder.name} has its own: leave it out")
        deploy = deploy_files.stored(folder)
        model = str(models.locate(deploy.model.path))
    settings = LedgerSettings(
        seed=deploy.run.seed,
        train_tasks=[],
        demo_tasks=[],
        max_turns=deploy.tasks.max_turns,
        demos=DemosConfig(count=ALL),
        rules=ReplayConfig() if fresh else deploy.replay,
        # What a file does not say of itself, a new run's ledger does not say either.
        tokenizer=header.tokenizer if fresh else models.fingerprint(model),
        format=header.form if fresh else deploy.prompt.format,
        action_space=header.actions if fresh else deploy.prompt.action_space,
    )
    with _in_one_line():
        made_for = {"form": deploy.prompt.format, "actions": deploy.prompt.action_space}
        demo_tasks.refuse_foreign(source, header, tokenizer=models.fingerprint(model), **made_for)
    if caution := recordings.caution(source):
        output.line(caution, to=sys.stderr)
    with _in_one_line():
        if fresh:
            request = RunRequest(folder=folder, deploy=deploy, file=f"{run_folder.IMPORT} {args.file}")
            moved = _into_new(request, source, settings)
        else:  # what it was and how it ended stays as it is
            with run_folder.held(folder, run_folder.iso(time.time())):
                moved = _into_ledger(folder, source, settings)
    if args.json:
        output.document({"run": folder.name, "imported": moved, "offered": header.demos})
    else:
        known = header.demos - moved
        output.line(f"{folder.name}: {moved} demonstrations taken in{f', {known} were there already' if known else ''}")
    return 0


def _into_new(request: RunRequest, source: Path, settings: LedgerSettings) -> int:
    """Make the run, and take the demonstrations in."""
    claimed = run.claim(request)
    verdict, reason = "failed", "the import was broken off"
    try:
        moved = _into_ledger(request.folder, source, settings)
        verdict, reason = "ok", f"{moved} demonstrations from {source.name}"
    except ComputerRLError as error:
        reason = str(error)
        raise
    finally:
        claimed.end(verdict, reason)
    return moved


def _into_ledger(folder: Path, source: Path, settings: LedgerSettings) -> int:
    with closing(Ledger(folder / LEDGER, settings)) as ledger:
        with closing(SegmentStore(folder / SEGMENTS, "import")) as segments:
            ledger.run([demo_tasks.label])
            (moved,) = ledger.run([lambda tx: demo_tasks.import_demos(tx, source, segments, folder)])
    if isinstance(moved, ComputerRLError):
        raise moved
    return int(moved.demos)
