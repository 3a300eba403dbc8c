"""`demos import`: a recording into a run, old or new.

Invariant: an import is whole or has not happened: the whole file is checked before anything is made. A live run is left
alone. The record of an old run stays as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files, models
from actors.cluster.config.schema import DemonstrationsConfig, Deploy, ModelConfig
from actors.cluster.runs import recordings, run, run_folder
from actors.cluster.runs.requests import RunRequest
from actors.desktop.config import PromptConfig
from actors.replay.actor import LEDGER, SEGMENTS
from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.demos.format import RecordingHeader
from actors.replay.ledger import demo_import
from actors.replay.ledger.store import Ledger
from actors.settings import DemosConfig
from apis.actions.spaces import SPACES
from apis.prompts import FORMS
from runtime.errors import ComputerRLError, ConfigError
from runtime.segments import SegmentStore

ALL = 10**9  # demonstrations: an import by hand takes in what the file holds


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
    _refuse_foreign(source, header, models.fingerprint(model), deploy.prompt)
    if caution := recordings.caution(source):
        output.line(caution, to=sys.stderr)
    try:
        if fresh:
            request = RunRequest(folder=folder, deploy=deploy, file=f"{run_folder.IMPORT} {args.file}")
            moved = _into_new(request, source, settings)
        else:  # what it was and how it ended stays as it is
            with run_folder.held(folder, run_folder.iso(time.time())):
                moved = _into_ledger(folder, source, settings)
    except ComputerRLError as error:
        raise ConfigError(str(error)) from None
    if args.json:
        output.document({"run": folder.name, "imported": moved, "offered": header.demos})
    else:
        held = header.demos - moved
        output.line(f"{folder.name}: {moved} demonstrations taken in{f', {held} were there already' if held else ''}")
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


def _refuse_foreign(source: Path, header: RecordingHeader, tokenizer: str, prompt: PromptConfig) -> None:
    try:
        demo_import.refuse_foreign(source, header, tokenizer=tokenizer, form=prompt.format, actions=prompt.action_space)
    except ComputerRLError as error:
        raise ConfigError(str(error)) from None


def _into_ledger(folder: Path, source: Path, settings: LedgerSettings) -> int:
    ledger = Ledger(folder / LEDGER, settings)
    try:
        segments = SegmentStore(folder / SEGMENTS, "import")
        try:
            ledger.run([demo_import.label])
            (moved,) = ledger.run([lambda book: demo_import.import_demos(book, source, segments, folder)])
        finally:
            segments.close()
    finally:
        ledger.close()
    if isinstance(moved, ComputerRLError):
        raise moved
    return int(moved.demos)
