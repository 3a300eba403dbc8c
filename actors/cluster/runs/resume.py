"""What a run goes on with, or begins from: a run, an experiment, or weights that another run has cloned.

Invariant: a change that would do nothing, or break what a run holds, is refused by name before anything starts. Cloned
weights come from the same deploy file, seed and recording apart. A run from them leaves out its cloning and the
demonstrations that its pulses do not learn, and nothing else.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import msgspec

from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy, ModelConfig
from actors.cluster.config.suggest import hint
from actors.cluster.runs import experiment, ledgers, names, run_folder, weights
from actors.cluster.runs.run_folder import CLONING, RECORDING, Asked, RunRecord
from actors.learner.folders import CHECKPOINTS, newest_known
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER
from actors.replay.demos import demo_files
from policy import checkpoints
from runtime.errors import ConfigError, StoreError

CLONED = "--cloned"
AFTER = "after_bc"  # the round that is played on what was cloned
# What the file says to an arm's run, and no recording or cloning before it changes.
_AS_BEGUN = ("prompt", "tasks", "desktops", "samplers", "sampling", "weight_sync", "learner", "evaluation")
# What tasks, groups and weights of a run's first part were made with.
FIXED = (
    "run.seed", "model.path", "prompt.format", "prompt.action_space", "learner.rl.advantage", "learner.dtype",
)  # fmt: skip
TRAINING = ("tasks.train", "tasks.demo", "demos", "learner", "entropulse", "weight_sync")  # nothing to a trained run


def flag_of(name: str) -> str:
    """The flag whose value the arguments hold as `name`."""
    return "--set" if name == "overrides" else f"--{name.replace('_', '-')}"


def refuse_given(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise ConfigError for the first of `names` that was given and would be passed over."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise ConfigError(f"{flag_of(name)}: {why}: leave it out")


def run_of(runs: Path, name: str | None, file: str) -> Path:
    """The run of its own of deploy file `file` that --resume means. Raises ConfigError where `name` is another's."""
    stem = deploy_files.locate(file).stem
    if name is None:
        return run_folder.newest_of(runs, stem, file)
    folder = run_folder.named(runs, name, [found.name for found, _ in run_folder.all_runs(runs)], "run")
    record = run_folder.read_record(folder)
    line = run_folder.to_continue(record, folder)
    if record.experiment:
        raise ConfigError(f"--name {name}: it is a run of experiment {record.experiment}: continue that with  {line}")
    if record.verb != run_folder.RUN:
        raise ConfigError(f"--name {name}: it was made by {record.verb}: continue it with  {line}")
    if not run_folder.is_of(record, stem, file):
        raise ConfigError(f"FILE {file}: run {name} was begun with {record.file}: continue it with  {line}")
    return folder


def is_experiment(runs: Path, name: str | None, file: str) -> bool:
    """Whether what --resume continues is an experiment: the one called `name`, or what is newest of `file`."""
    known = _of_file(runs, file)
    if name:
        alone = run_folder.is_run(runs / name)
        return not alone and any(record.asked and record.experiment == name for record in known)
    return bool(known) and bool(known[-1].experiment)


def experiment_of(runs: Path, name: str | None, file: str) -> tuple[str, Asked | None]:
    """The experiment of `file` called `name`, or the newest one, and what it was begun with.

    Raises ConfigError where there is none, and where the file says something else by now.
    """
    mine = [record for record in _of_file(runs, file) if record.experiment]
    names = [record.experiment for record in mine]
    if name is None:
        if not mine:
            raise ConfigError(f"nothing to resume: no experiment of {file} in {runs}")
        name = names[-1]
    if name not in names:
        raise ConfigError(f"--name {name}: no such experiment of {file} in {runs}; {hint(name, set(names))}")
    of_it = [record for record in mine if record.experiment == name]
    refuse_changed(file, runs, of_it)
    begun = [record.asked for record in of_it if record.asked]
    return name, functools.reduce(Asked.joined, begun) if begun else None


def _of_file(runs: Path, file: str) -> list[RunRecord]:
    """The runs below `runs` of deploy file `file`, newest last."""
    return [record for _, record in run_folder.all_runs(runs) if deploy_files.same(record.found, file)]


def refuse_changed(file: str, runs: Path, known: Sequence[RunRecord]) -> None:
    """Raise ConfigError where the file says something else by now to a run of an experiment."""
    for record in known:
        if record.settings and _has_changed(file, runs / record.name, record):
            raise ConfigError(
                f"{file}: it has changed since {record.name} was begun with it, and what is begun now would differ;"
                " undo the change, or begin another experiment with another --name"
            )


def _has_changed(file: str, folder: Path, record: RunRecord) -> bool:
    if record.settings.startswith(experiment.NAMES):
        return record.settings != experiment.settings_of(file, record.arm)
    # A digest made under the old names of keys: what the run itself has stored is compared in its place.
    if record.arm in (RECORDING, CLONING) or not (folder / deploy_files.STORED).is_file():
        return False
    overrides, arms = record.asked.overrides if record.asked else [], [record.arm] if record.arm else []
    ours = experiment.expand(file, overrides, arms=arms, seeds=[record.seed])[0].deploy
    theirs = deploy_files.stored(folder)
    return any(getattr(ours, part) != getattr(theirs, part) for part in _AS_BEGUN)


def settings(folder: Path, overrides: Sequence[str]) -> Deploy:
    """The settings of the run in `folder` with `overrides`. Raises ConfigError."""
    before, after = (deploy_files.stored(folder, said) for said in ([], overrides))
    for key in FIXED:
        was = attrgetter(key)(before)
        if attrgetter(key)(after) != was:
            raise ConfigError(f"--set {key}: run {folder.name} has {was}, which it keeps: leave it out")
    cloned, now = experiment.cloning_of(before), experiment.cloning_of(after)
    begun, over = _reached(folder)
    if begun and (other := experiment.first_difference(cloned, now)) is not None:
        raise ConfigError(f"--set {other}: run {folder.name} has begun to clone as it was told: leave it out")
    changed = [part for part in TRAINING if attrgetter(part)(before) != attrgetter(part)(after)]
    if over and changed:
        said = next((one for one in overrides if one.startswith(changed[0])), changed[0])
        raise ConfigError(f"--set {said}: run {folder.name} has begun its last evaluation and is trained no more")
    return after


def _reached(folder: Path) -> tuple[bool, bool]:
    """Whether the run in `folder` has begun to clone, and its last evaluation. Raises ConfigError for a broken
    ledger."""
    if not (folder / LEDGER).is_file():
        return False, False
    with ledgers.opened(folder) as db:
        return queries.has_cloned(db), queries.evaluates_last(db)


def pinned(name: str, runs: Path) -> str:
    """`name` of --cloned, and for `last` the name of what it means now: runs begun later will be newer."""
    return cloned_in(name, runs).name if name == names.LAST else name


def cloned_in(name: str, runs: Path) -> Path:
    """The folder of the run that --cloned `name` means. Raises ConfigError with the nearest name."""
    # A model folder has not been cloned by a run: `find` says which runs there are.
    return weights.run_of(name, runs) or names.find(runs, name)


def from_cloned(name: str, runs: Path, deploy: Deploy) -> Deploy:
    """`deploy` from what run `name` has cloned. Raises ConfigError with the nearest name or the first key that its
    cloning differs in."""
    path = cloned_in(name, runs)
    record = run_folder.read_record(path)
    theirs = deploy_files.stored(path)
    if not theirs.entropulse.bc_steps and (record.experiment or record.cloned):
        raise ConfigError(f"{CLONED} {name}: it began from what {record.cloned_in} had cloned: name that")
    if (key := experiment.first_difference(experiment.cloning_of(theirs), experiment.cloning_of(deploy))) is not None:
        raise ConfigError(f"{CLONED} {name}: it was cloned with another {key} than the deploy file says")
    if record.arm == run_folder.CLONING and (record.verdict != "ok" or run_folder.owner(path) is not None):
        raise ConfigError(f"{CLONED} {name}: it is not done with cloning: {run_folder.state(path, record)}")
    try:
        found = weights.locate(str(path), runs, "" if record.arm == run_folder.CLONING else AFTER)
    except ConfigError as error:
        raise ConfigError(f"{CLONED} {name}: {str(error).removeprefix(f'--at {AFTER}: ')}") from None
    if record.seed != deploy.run.seed:
        also = f"not {deploy.run.seed}: say --seed {record.seed}"
        raise ConfigError(f"{CLONED} {name}: it was cloned with seed {record.seed}, {also}")
    return after_cloning(deploy, found.folder, path.resolve())


def after_cloning(deploy: Deploy, folder: str, run: Path) -> Deploy:
    """Of `deploy`, what follows cloning, from the model in `folder` on, which the run in folder `run` has cloned.

    Where pulses learn demonstrations again, they learn all of that run's: what its own policy solved when it tried
    again is among them.
    """
    change, phases = msgspec.structs.replace, deploy.entropulse
    again = bool(deploy.replay.pulse_demos and phases.pulses and phases.pulse == "full")
    source, count = (str(run), demonstrations(str(run))) if again else ("", 0)
    return change(
        deploy,
        run=change(deploy.run, require=change(deploy.run.require, bc_steps=0)),
        model=ModelConfig(path=folder),
        demos=change(deploy.demos, source=source, count=count, resample_rounds=0),
        replay=deploy.replay if again else change(deploy.replay, pulse_demos=0),
        entropulse=change(phases, bc_steps=0),
    )


@functools.lru_cache(maxsize=8)
def demonstrations(run: str) -> int:
    """How many different demonstrations the run in folder `run` has: an import passes by what it holds already."""
    return len({demo.digest for demo in demo_files.read(Path(run))[1]})


def checkpoint(folder: Path) -> str:
    """What a resume of the run in `folder` would begin from, after it was found whole. Loads nothing.

    Raises ConfigError where that would not be loaded.
    """
    try:
        found = checkpoints.complete(folder / CHECKPOINTS)[::-1]
        trained, digests = ledgers.checkpoint_digests(folder, [version for version, _ in found])
        version, location, digest = newest_known(found, digests, trained)
        if location is None:
            return "none: begins from model.path"
        checkpoints.verify(location, digest)
    except StoreError as error:
        raise ConfigError(str(error)) from error
    return f"{version} can be loaded: its files are those that the run saved"
