"""`eval`: one evaluation round as a run of its own.

Invariant: the weights are fixed before the first episode and stay in the run's folder while it lasts. Played episodes
are kept whatever kills the run, and --resume plays the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import msgspec

from actors.cluster import paths as places
from actors.cluster.commands import refuse_given
from actors.cluster.config import deploy_files
from actors.cluster.config.suggest import blamed
from actors.cluster.evaluate import settings, show
from actors.cluster.runs import loop, run_folder
from actors.cluster.runs import run as runcommand
from actors.cluster.runs import weights as weights_of
from actors.cluster.runs.requests import request_of
from actors.entropulse.actor import PinnedFolders
from actors.replay.database.ledger_file import LEDGER
from runtime.errors import ConfigError
from runtime.messaging.message import Version


def play(args: argparse.Namespace) -> int:
    """Evaluate, or go on evaluating; the exit status."""
    runs = Path(args.runs)
    with blamed(f"--against {args.against}: "):
        before = run_folder.find(runs, args.against) if args.against else None
    if args.resume:
        refuse_given(args, settings.FLAGS, "--resume goes on as the evaluation was begun")
        folder = run_folder.newest(
            runs, args.name, lambda _, record: record.weights is not None, "evaluation"
        ).resolve()
        begun = run_folder.read_record(folder)
        weights, label = begun.weights, begun.file
        assert weights is not None
        if args.model is not None:
            known = weights.name.endswith(f" at {args.model}")
            if not settings.is_url(args.model):
                run = weights_of.run_of(args.model, runs)
                known = (run.name if run else args.model) == weights.name
            if not known:
                begun_with = f"evaluation {folder.name} was begun with {weights.name}"
                raise ConfigError(f"MODEL {args.model}: {begun_with}: leave it out")
        deploy = deploy_files.stored(folder)
    else:
        if args.model is None:
            raise ConfigError("nothing to evaluate: name a MODEL: base, a model folder, a run, last, or a server's URL")
        settings.refuse_misplaced(args)
        url = settings.is_url(args.model)
        weights = settings.named(args) if url else weights_of.locate(args.model, runs, args.at or "")
        folder = (runs / places.named(args.name, "eval")).resolve()
        run_folder.refuse_taken(folder)
        if folder.exists():  # what lies in it would be taken for this evaluation's
            raise ConfigError(f"--name {folder.name}: {folder} is there already and no run; give another --name")
        deploy, label = settings.deploy_of(args, weights), f"{run_folder.EVAL} {args.model}"
    for flag, place in (("--runs", folder.parent), ("--osworld-out", args.osworld_out)):
        if place:
            places.refuse_unwritable(Path(place), flag)
    if deploy.model.endpoint is not None:
        settings.refuse_unanswering(deploy.model.endpoint, picture=deploy.prompt.sight.picture)
    if before is not None:
        show.like(deploy, before)  # what can't be compared is refused before anything is played
    version = Version.parse(weights.version)
    kept = str(PinnedFolders(folder).location(version)) if weights.run else ""
    if args.resume and kept and Path(kept).is_dir():  # the run that made the weights may have deleted its own
        deploy = msgspec.structs.replace(deploy, model=msgspec.structs.replace(deploy.model, path=kept))

    # With --json, standard output is for the one document.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        request = request_of(folder, deploy, file=label, resume=args.resume, weights=weights)
        status = runcommand.carry_out(request, loop.evaluation(version, kept))
    if not (folder / LEDGER).is_file():  # it ended before it played anything, and has said so
        return status
    osworld = Path(args.osworld_out) if args.osworld_out else None
    show.result(folder, weights, deploy, before, osworld, as_json=args.json)
    return status
