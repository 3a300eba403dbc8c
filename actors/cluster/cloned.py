"""Runs that begin where another run has cloned: its weights, in place of cloning the same once more.

Invariant: they were cloned as the deploy file says, seed and recording of demonstrations apart; what is left out of
a run is its demonstrations (where its pulses learn none of them) and its cloning, and nothing else.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from actors.cluster import experiment, runfolder, typed, weights
from actors.cluster.config import Deploy
from actors.replay import demofiles
from runtime.errors import ConfigError

FLAG = "--cloned"
AFTER = "after_bc"  # the round that is played on what was cloned


class Cloned(msgspec.Struct, frozen=True, kw_only=True):
    """Weights as a run has cloned them."""

    folder: str
    run: str  # its name
    path: str  # its folder
    seed: int


def locate(name: str, runs: Path, deploy: Deploy) -> Cloned:
    """What run `name` has cloned, for a run of `deploy`. Raises ConfigError with the nearest name or the first key
    that its cloning differs in."""
    path = weights.run_of(name, runs)
    if path is None:  # says what there is; a model folder has not been cloned by anyone
        path = runfolder.find(runs, name)
    record = runfolder.read_record(path)
    theirs = typed.read(path / "deploy.yaml", Deploy)
    if not theirs.entropulse.bc_steps and (record.experiment or record.cloned):
        raise ConfigError(f"{FLAG} {name}: it began from what {record.cloned_in} had cloned: name that")
    if (key := experiment.first_difference(experiment.cloning_of(theirs), experiment.cloning_of(deploy))) is not None:
        raise ConfigError(f"{FLAG} {name}: it was cloned with another {key} than the deploy file says")
    if record.arm == runfolder.CLONING and (record.verdict != "ok" or runfolder.owner(path) is not None):
        raise ConfigError(f"{FLAG} {name}: it is not done with cloning: {runfolder.state(path, record)}")
    try:
        found = weights.locate(str(path), runs, "" if record.arm == runfolder.CLONING else AFTER)
    except ConfigError as error:
        raise ConfigError(f"{FLAG} {name}: {str(error).removeprefix(f'--at {AFTER}: ')}") from None
    return Cloned(folder=found.folder, run=path.name, path=str(path.resolve()), seed=record.seed)


def of_seed(name: str, runs: Path, deploy: Deploy) -> Cloned:
    """The same, for a run that is called after its seed. Raises ConfigError where run `name` cloned with another."""
    found = locate(name, runs, deploy)
    if found.seed != deploy.run.seed:
        raise ConfigError(
            f"{FLAG} {name}: it was cloned with seed {found.seed}, not {deploy.run.seed}: say --seed {found.seed}"
        )
    return found


def begin(deploy: Deploy, weights_folder: str, run: str) -> Deploy:
    """`deploy` from the model folder `weights_folder` on, which the run in folder `run` has cloned."""
    demos = demonstrations(run) if experiment.learns_again(deploy) else 0
    return experiment.after_cloning(deploy, weights_folder, run, demos)


@functools.lru_cache(maxsize=8)
def demonstrations(run: str) -> int:
    """How many different demonstrations the run in folder `run` has: an import passes by what it holds already."""
    return len({demo.digest for demo in demofiles.read(Path(run))[1]})
