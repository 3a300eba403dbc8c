"""`eval`: one evaluation round as a run of its own.

Invariant: the weights are fixed before the first episode and stay in the run's folder while it lasts. Played episodes
are kept whatever kills the run, and --resume plays the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.cluster import paths as places
from actors.cluster.commands import refuse_given
from actors.cluster.config import deploy_files
from actors.cluster.evaluate import settings, show
from actors.cluster.runs import loop, run_folder
from actors.cluster.runs import run as runcommand
from actors.cluster.runs import weights as weights_of
from actors.cluster.runs.requests import request_of
from actors.cluster.runs.weights import NamedWeights
from actors.entropulse.actor import PinnedFolders
from actors.replay.database.ledger_file import LEDGER
from runtime import disk
from runtime.errors import ConfigError, StoreError
from runtime.messaging.message import Version

_EVALUATED = "evaluated.json"
_BEGINNING = "beginning.lock"  # held until it is a run, or is given up


def play(args: argparse.Namespace) -> int:
    """Evaluate, or go on evaluating; the exit status."""
    runs = Path(args.runs)
    try:
        before = run_folder.find(runs, args.against) if args.against else None
    except ConfigError as error:
        raise ConfigError(f"--against {args.against}: {error}") from None
    if args.resume:
        refuse_given(args, settings.FLAGS, "--resume goes on as the evaluation was begun")
        evaluations = functools.partial(run_folder.newest, runs, args.name)
        folder = evaluations(lambda path, _: (path / _EVALUATED).is_file(), "evaluation").resolve()
        weights = read_weights(folder)
        if args.model is not None:
            known = weights.name.endswith(f" at {args.model}")
            if not settings.is_url(args.model):
                run = weights_of.run_of(args.model, runs)
                known = (run.name if run else args.model) == weights.name
            if not known:
                begun = f"evaluation {folder.name} was begun with {weights.name}"
                raise ConfigError(f"MODEL {args.model}: {begun}: leave it out")
        deploy = deploy_files.stored(folder)
    else:
        if args.model is None:
            raise ConfigError("nothing to evaluate: name a MODEL: base, a model folder, a run, last, or a server's URL")
        settings.refuse_misplaced(args)
        url = settings.is_url(args.model)
        weights = settings.named(args) if url else weights_of.locate(args.model, runs, args.at or "")
        name = args.name or places.unnamed("eval", time.time())
        places.refuse_bad_name(name)
        folder = (runs / name).resolve()
        _refuse_taken(folder)
        deploy = settings.deploy_of(args, weights)
    for flag, place in (("--runs", folder.parent), ("--osworld-out", args.osworld_out)):
        if place:
            places.refuse_unwritable(Path(place), flag)
    if deploy.model.endpoint is not None:
        settings.refuse_unanswering(deploy.model.endpoint, picture=deploy.prompt.sight.picture)
    if before is not None:
        show.like(deploy, before)  # what can't be compared is refused before anything is played
    version, kept = Version.parse(weights.version), _place(weights, folder)
    deploy = msgspec.structs.replace(deploy, model=msgspec.structs.replace(deploy.model, path=kept))

    label = f"{run_folder.EVAL} {args.model}" if not args.resume else run_folder.read_record(folder).file
    # With --json, standard output is for the one document.
    elsewhere = contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext()
    with elsewhere, _kept(weights, folder) if not args.resume else contextlib.nullcontext():
        request = request_of(folder, deploy, file=label, resume=args.resume)
        status = runcommand.carry_out(request, loop.evaluation(version))
    if not (folder / LEDGER).is_file():  # it ended before it played anything, and has said so
        return status
    osworld = Path(args.osworld_out) if args.osworld_out else None
    show.result(folder, weights, deploy, before, osworld, as_json=args.json)
    return status


def _refuse_taken(folder: Path) -> None:
    """Raise ConfigError where something is at `folder`; what a killed `eval` left before it was a run goes first."""
    _clear_unbegun(folder)
    run_folder.refuse_taken(folder)
    if folder.exists():  # what lies in it would be taken for this evaluation's
        raise ConfigError(f"--name {folder.name}: {folder} is there already and no run; give another --name")


def _clear_unbegun(folder: Path) -> None:
    """Remove the folder of an evaluation that never became a run, refused or broken off before, unless one begins."""
    if not (folder / _EVALUATED).is_file() or run_folder.is_run(folder):
        return
    with (folder / _BEGINNING).open("a") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _place(weights: NamedWeights, folder: Path) -> str:
    return str(PinnedFolders(folder).location(Version.parse(weights.version))) if weights.run else weights.folder


@contextlib.contextmanager
def _kept(weights: NamedWeights, folder: Path) -> Iterator[None]:
    """A new folder with the weights in it, which goes again unless it becomes a run's. Raises ConfigError."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(run_folder.PRIVATE)
    except FileExistsError:
        raise ConfigError(
            f"--name {folder.name}: another evaluation has just begun there; give another --name"
        ) from None
    try:
        with (folder / _BEGINNING).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _keep(weights, folder)
            yield
    finally:
        _clear_unbegun(folder)


def _keep(weights: NamedWeights, folder: Path) -> None:
    """Put a run's weights where they are safe: a run that goes on deletes its older exports."""
    # First, for it says whose folder this is, should what follows be broken off.
    (folder / _EVALUATED).write_bytes(msgspec.json.format(msgspec.json.encode(weights)))
    if weights.run:
        try:
            PinnedFolders(folder).pin(Version.parse(weights.version), Path(weights.folder))
        except StoreError as error:
            raise ConfigError(str(error)) from None


def read_weights(folder: Path) -> NamedWeights:
    """Which weights the run at `folder` evaluates. Raises ConfigError when it is none of `eval`."""
    try:
        return msgspec.json.decode(disk.read_bytes(folder / _EVALUATED), type=NamedWeights)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{folder} is no run of eval: {error}") from None
