"""Which weights a person means, a folder or a run's at some point; their export for others to serve, their check."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
import warnings
from pathlib import Path

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files, models
from actors.cluster.config.suggest import hint
from actors.cluster.runs import evaluation_rounds, run_folder
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.cluster.runs.run_folder import SEED, NamedWeights
from actors.sampler.messages import BEGIN
from apis.actions.spaces import MEANING
from policy import tensorfiles
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from runtime.program import NAME, program

NEWEST = "newest"
CARD = "README.md"
PORT = 30000
_PLACES = ("weights", "kept", "pinned")  # of a run's folder: exports, those kept for good, those of open rounds


def locate(name: str, runs: Path, at: str = "", *, look: bool = True) -> NamedWeights:
    """The weights called `name`: `base`, a run's name or folder, `last` (the newest that trained), or a model's folder
    or name on the hub.

    `at` chooses among a run's: the name of an evaluation round, a version, or `newest` (the default). Without `look` a
    folder may be no model's. Raises ConfigError with the nearest name.
    """
    if (run := run_of(name, runs)) is not None:
        return _of_run(run, at or NEWEST)
    if at and (name in models.NAMES or os.path.isdir(name)):
        raise ConfigError(f"--at {at}: {name} is a model, only a run has weights at several points")
    if name in models.NAMES or "://" in name or os.path.isdir(name) or models.hub_name(name):
        return NamedWeights(folder=str(models.locate(name) if look else models.folder_of(name)), name=name)
    known = [*models.NAMES, *(path.name for path, record in run_folder.all_runs(runs) if _trained(path, record))]
    raise ConfigError(f"{name}: no such run in {runs} and no such model folder; {hint(name, known)}")


def run_of(name: str, runs: Path) -> Path | None:
    """The folder of the run called `name`, None where no run is. Raises ConfigError for `last` where none trained."""
    found = run_folder.look_up(runs, name, usable=_trained)
    if found is None and name == run_folder.LAST:
        raise ConfigError(f"{name}: no training run in {runs} has made an optimizer step")
    return None if found is None else found.resolve()


def _trained(run: Path, record: run_folder.RunRecord) -> bool:
    """Whether the run made weights. An evaluation holds a copy of others' and knows none of their rounds."""
    return not record.of_eval and max(exports(run), default=BEGIN) > BEGIN


def exports(run: Path) -> dict[Version, Path]:
    """The weights that the run at `run` holds, by version."""
    found: dict[Version, Path] = {}
    for place in _PLACES:
        for config in (run / place).glob("[0-9]*/config.json"):
            found.setdefault(Version.parse(config.parent.name), config.parent)
    return found


def _of_run(run: Path, at: str) -> NamedWeights:
    held = exports(run)
    if not held or (at == NEWEST and max(held) == BEGIN):  # what it began with is exported before its first step
        raise ConfigError(f"run {run.name} holds no weights of its own: it has made no optimizer step")
    rounds = {found.name: found.version for found in evaluation_rounds.read_rounds(run)}
    version = str(max(held)) if at == NEWEST else rounds.get(at, at)
    by_name = {str(one): path for one, path in sorted(held.items())}
    if version not in by_name:
        points = [NEWEST, *(name for name, of in rounds.items() if of in by_name), *by_name]
        gone = f" (its weights {version} were not kept)" if at in rounds else ""
        raise ConfigError(f"--at {at}: run {run.name} holds no such weights{gone}; {hint(at, points)}")
    folder = models.locate(str(by_name[version]))
    return NamedWeights(folder=str(folder), name=run.name, version=version, run=str(run), at=at)


def export(args: argparse.Namespace) -> int:
    """`export`: write weights to a new folder and say how it is served; 0. Raises ConfigError where it exists."""
    weights, into = locate(args.model, Path(args.runs), args.at or ""), Path(args.folder)
    places.refuse_unwritable(into.parent, "DIR")
    if os.path.lexists(into):
        raise ConfigError(f"{into} exists already: name a new folder")
    rounds = evaluation_rounds.read_rounds(Path(weights.run)) if weights.run else []
    left_out = shutil.ignore_patterns(CARD, ".*")
    try:
        with places.made_whole(into) as made:
            shutil.copytree(weights.folder, made, ignore=left_out, dirs_exist_ok=True)
            (made / CARD).write_text(card(weights, into.name, rounds), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{into} can't be written: {error.strerror or error}") from None
    lines = serving(into.resolve(), shlex.quote(sys.executable), program())
    if args.json:
        digest = tensorfiles.digest(into)
        output.document({"folder": str(into.resolve()), "weights": weights, "digest": digest, "serve": lines})
        return 0
    at = f" at {weights.at} (version {weights.version})" if weights.run else ""
    output.line(f"{into}: {weights.name}{at}, {sum(f.stat().st_size for f in into.iterdir()) >> 10} KiB\n")
    for what, line in lines.items():
        output.line(f"{what:<10}{line}")
    return 0


def serving(folder: Path | str, python: str = "python", own: str = NAME) -> dict[str, str]:
    """The lines that serve the model in `folder`, by server, and the one that evaluates it.

    `python` and `own` are this program's words; SGLang has an environment of its own.
    """
    name = shlex.quote(str(folder))
    return {
        "SGLang": f"python -m sglang.launch_server --model-path {name} --port {PORT}",
        "embedded": f"{python} -P -m policy.engine --model-path {name} --port {PORT}",
        "evaluate": f"{own} eval {name} --tasks desktop --decoding t=1",
    }


def card(weights: NamedWeights, title: str, rounds: list[EvaluationRound]) -> str:
    """The model card, in Markdown with the hub's front matter."""
    parts = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [computer-use, reinforcement-learning]"
        f"\n---\n\n# {output.clean(title)}\n",
        _origin(weights),
    ]
    measured = {one.name: one.summary.whole.all for one in rounds if one.closed and _of(one, weights)}
    for name, rate in measured.items():
        low, high = rate.interval
        won = f"{rate.value:.3f} ({rate.successes}/{rate.n}, 95 % {low:.3f} to {high:.3f})"
        parts.append(f"Success in round {output.clean(name)}: {won}.\n")
    gains = (one for one in evaluation_rounds.gains(rounds) if one.after in measured)
    parts += [f"Paired gain: {evaluation_rounds.gain_line(one)}.\n" for one in gains]
    parts.append("## Serving\n\n```sh\n" + "\n".join(serving("DIR").values()) + "\n```\n")
    return "\n".join(parts)


def _of(found: EvaluationRound, weights: NamedWeights) -> bool:
    """Whether the round was played by these weights.

    A resume gives the newest weights the name of another lineage; of rounds that stand, the same step is the same ones.
    """
    same_step = found.step == Version.parse(weights.version).step
    return found.version == weights.version or (weights.at == NEWEST and same_step)


def _origin(weights: NamedWeights) -> str:
    if not weights.run:
        return f"A copy of the model {output.clean(weights.name)}.\n"
    run = Path(weights.run)
    record = run_folder.read_record(run)
    deploy = deploy_files.stored(run)
    asked = record.asked or run_folder.Asked()
    sets = [one for one in asked.overrides if one.partition("=")[0].strip() != SEED]  # the seed has its own flag
    words = run_folder.Asked(seeds=[record.seed], overrides=sets).words()
    words += ["--from", Path(asked.fork).name] if asked.fork else []
    if record.verb == run_folder.RUN:
        command, how = ["computerrl", "run", record.file, *words], "Trained"
    else:
        command, how = ["computerrl", *record.file.split(" ")], "Not trained here, used"
    return (
        f"{how} by `{output.clean(shlex.join(command))}`: run {output.clean(record.name)} of {record.started}, seed"
        f" {record.seed}, build {record.build}, weights {weights.version} ({output.clean(weights.at)}). Form of"
        f" prompts: {deploy.prompt.format}. Actions: {MEANING[deploy.prompt.action_space]}.\n"
    )


QUIET_S = 2.0


def check(args: argparse.Namespace) -> int:
    """`model check`: print the verdict; its exit status. Raises ConfigError where there is no such model."""
    warnings.simplefilter("ignore")  # Megatron's, of kernels that it lacks
    from policy.architecture import ModelVerdict

    folder, began = Path(locate(args.model, Path(args.runs), look=False).folder), time.monotonic()

    def tell(step: str) -> None:
        if not args.json and time.monotonic() - began > QUIET_S:
            output.news(f"{output.duration(time.monotonic() - began)}  {step}")

    try:
        folder = models.locate(str(folder))  # refuses what needs no torch to be refused
        from transformers.utils import logging

        from policy.model_check import compare

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        found = compare(folder, args.dtype, tell)
    except ConfigError as error:
        found = ModelVerdict(architecture="", why=str(error).removeprefix(f"{args.model}: "))
    if args.json:
        output.document(found)
    elif found.why:
        output.line(f"{args.model}: {found.why}")
    else:
        output.prose(
            f"{args.model}: {found.architecture}, {args.dtype}: largest difference of a logit"
            f" {found.max_logit_diff:.2g}; generates; every tensor comes back"
        )
        for refused in found.chat:
            output.prose(f"its chat template refuses {refused}")
    return 1 if found.why else 0
