"""`eval`: one evaluation round as a run of its own, and what is printed of it.

Invariant: the weights are fixed before the first episode and stay in the run's folder while it lasts. Played episodes
are kept whatever kills the run, and --resume plays the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.commands import refuse_given
from actors.cluster.config import deploy_files, suites
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import blamed
from actors.cluster.evaluate import settings
from actors.cluster.report.page import share
from actors.cluster.runs import evaluation_rounds, loop, run_folder
from actors.cluster.runs import run as runcommand
from actors.cluster.runs import weights as weights_of
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound
from actors.cluster.runs.requests import request_of
from actors.cluster.runs.weights import NamedWeights
from actors.entropulse.actor import PinnedFolders
from actors.replay.database.ledger_file import LEDGER
from actors.replay.statistics import Rates, side_by_side
from apis.tasks import registry as tasks
from runtime.errors import ConfigError
from runtime.messaging.message import Version


def play(args: argparse.Namespace) -> int:
    """Evaluate, or go on evaluating; the exit status."""
    runs = Path(args.runs)
    with blamed(f"--against {args.against}: "):
        before = run_folder.find(runs, args.against) if args.against else None
    if args.resume:
        refuse_given(args, settings.FLAGS, "--resume goes on as the evaluation was begun")
        folder = run_folder.newest(runs, args.name, lambda _, record: record.weights is not None, "evaluation")
        folder, begun = folder.resolve(), run_folder.read_record(folder)
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
    places.refuse_unwritable(folder.parent, "--runs")
    if deploy.model.endpoint is not None:
        settings.refuse_unanswering(deploy.model.endpoint, picture=deploy.prompt.sight.picture)
    if before is not None:
        like(deploy, before)  # what can't be compared is refused before anything is played
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
    result(folder, weights, deploy, before, as_json=args.json)
    return status


def result(folder: Path, weights: NamedWeights, deploy: Deploy, before: Path | None, *, as_json: bool) -> None:
    """Print the round of the run at `folder`, and compare it with its like in the run `before`.

    Raises ConfigError for what can't be compared.
    """
    rounds = evaluation_rounds.read_rounds(folder)
    if not rounds:
        return
    (played,) = rounds
    compared = None
    if before is not None and played.closed:
        compared = evaluation_rounds.compare(like(deploy, before), played)
        compared = msgspec.structs.replace(compared, before=before.name, after=folder.name)
    if as_json:
        output.document(_document(folder, weights, deploy, played, compared))
    else:
        _print(weights, deploy, played, compared)


# What two evaluations have in common where they are compared: key, and its value.
_SHARED: dict[str, Callable[[Deploy], object]] = {
    "tasks.max_turns": lambda deploy: deploy.tasks.max_turns,
    "prompt.format": lambda deploy: deploy.prompt.format,
    "prompt.action_space": lambda deploy: deploy.prompt.action_space,
    "prompt.observation": lambda deploy: deploy.prompt.observation,
    "prompt.coordinates": lambda deploy: deploy.prompt.sight.unit,
    "prompt.template": lambda deploy: deploy.prompt.template.digest or "none",
    "desktops.screen": lambda deploy: deploy.desktops.screen,
}


def like(deploy: Deploy, run: Path) -> EvaluationRound:
    """The newest closed round of `run` over the very instances and decoding of `deploy`.

    Raises ConfigError, also where `run` gave its agent other actions, another form of prompts or other room for steps.
    """
    before = deploy_files.stored(run)
    for key, of in _SHARED.items():
        if of(before) != of(deploy):
            raise ConfigError(
                f"--against: {run.name} played with {key} {of(before)}, this evaluation with {of(deploy)}"
            )
    task_set, heat = tasks.digest(str(task) for task in deploy.tasks.eval), deploy.sampling.eval_temperature
    wanted = (task_set, heat, deploy.sampling.max_new_tokens)
    for played in reversed(evaluation_rounds.read_rounds(run)):
        if played.closed and (played.task_set, played.temperature, played.max_new_tokens) == wanted:
            return played
    raise ConfigError(f"--against: {run.name} has no closed round over task set {task_set} at temperature {heat:g}")


def _document(
    folder: Path, weights: NamedWeights, deploy: Deploy, played: EvaluationRound, compared: Compared | None
) -> dict[str, Any]:
    shared, summary = {key.rpartition(".")[2]: of(deploy) for key, of in _SHARED.items()}, played.summary
    parts = {"whole": summary.whole, "trained": summary.trained, "untrained": summary.untrained} | summary.families
    return {
        "run": str(folder),
        "weights": weights,
        "decoding": played.decoding,
        "temperature": played.temperature,
        "max_new_tokens": played.max_new_tokens,
        "task_set": played.task_set,
        **shared,
        "template": deploy.prompt.template.digest,
        "closed": played.closed,
        "remembered": played.remembered,
        "intervals": {name: (part.all.value, *part.all.interval) for name, part in parts.items() if part.all.n},
        "summary": summary,
        "scores": side_by_side(played.episodes),
        "gain": compared,
    }


def _print(weights: NamedWeights, deploy: Deploy, played: EvaluationRound, compared: Compared | None) -> None:
    summary = played.summary
    at = f" at {weights.at} ({weights.version})" if weights.run else ""
    state = "" if played.closed else ", not finished"
    state += f", {played.remembered:.0%} of the steps remembered" if played.remembered else ""
    output.prose(
        f"\n{weights.name}{at}: {summary.instances} instances (task set {played.task_set}), {played.decoding},"
        f" form {deploy.prompt.format}, actions {deploy.prompt.action_space},"
        f" {summary.episodes} episodes, {summary.faults} faults{state}\n"
    )
    never = suites.untrained_families(summary.families, played.trained)
    rows = [
        _row(f"{name} (never trained)" if name in never else name, rates) for name, rates in summary.families.items()
    ]
    if summary.untrained.all.n and summary.trained.all.n:
        rows += [_row("ALL TRAINED", summary.trained), _row("ALL NEVER TRAINED", summary.untrained)]
    rows.append(_row("ALL", summary.whole))
    output.table(("FAMILY", "SUCCESS", "95 %", "FEASIBLE", "NO FAULT"), rows)
    if rows := played.score_rows:
        output.line("")
        output.table([title.upper() for title in evaluation_rounds.SCORES], rows)
    if len(summary.pass_at) > 1:
        output.line("\n" + "  ".join(f"pass@{k} {value:.3f}" for k, value in summary.pass_at.items()))
    if compared is not None:
        output.line(f"\n{evaluation_rounds.gain_line(compared)}")


def _row(name: str, rates: Rates) -> tuple[str, ...]:
    low, high = rates.all.interval
    return name, share(rates.all), f"{low:.3f}-{high:.3f}", share(rates.feasible), share(rates.without_faults)
