"""Which weights a person means: a model folder, or a run's at some point.

Invariant: what was located is a whole model folder. A point of a run is named by an evaluation round or by a version,
and never stands for other weights.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from actors.cluster.config import hub, models
from actors.cluster.config.suggest import hint
from actors.cluster.runs import evaluation_rounds, run_folder
from runtime.errors import ConfigError
from runtime.messaging.message import Version

NEWEST = "newest"
BEGIN = Version(lineage=0, step=0)  # of the weights that a run begins with
_PLACES = ("weights", "kept", "pinned")  # of a run's folder: exports, those kept for good, those of open rounds


class NamedWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights and what they are called."""

    folder: str  # Hugging Face folder
    name: str  # `base`, a run's name, a folder's path or a name on the hub, as asked for
    version: str = "0.0"  # LINEAGE.STEP
    run: str = ""  # folder of the run that made them
    at: str = ""  # round, version or `newest`


def locate(name: str, runs: Path, at: str = "") -> NamedWeights:
    """The weights called `name`: `base`, a run's name or folder, `last` (the newest that trained), or a model's folder
    or name on the hub.

    `at` chooses among a run's: the name of an evaluation round, a version, or `newest` (the default). Raises
    ConfigError with the nearest name.
    """
    if (run := run_of(name, runs)) is not None:
        return _of_run(run, at or NEWEST)
    if at and (name == models.BASE or os.path.isdir(name)):
        raise ConfigError(f"--at {at}: {name} is a model, only a run has weights at several points")
    if name == models.BASE or "://" in name or os.path.isdir(name) or hub.named(name):
        return NamedWeights(folder=str(models.locate(name)), name=name)
    known = [models.BASE, *(path.name for path, record in run_folder.all_runs(runs) if _trained(path, record))]
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
        raise ConfigError(f"run {run.name} holds no weights: it ended before its first optimizer step")
    rounds = {found.name: found.version for found in evaluation_rounds.read_rounds(run)}
    version = str(max(held)) if at == NEWEST else rounds.get(at, at)
    by_name = {str(one): path for one, path in sorted(held.items())}
    if version not in by_name:
        points = [NEWEST, *(name for name, of in rounds.items() if of in by_name), *by_name]
        gone = f" (its weights {version} were not kept)" if at in rounds else ""
        raise ConfigError(f"--at {at}: run {run.name} holds no such weights{gone}; {hint(at, points)}")
    folder = models.locate(str(by_name[version]))
    return NamedWeights(folder=str(folder), name=run.name, version=version, run=str(run), at=at)
