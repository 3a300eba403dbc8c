"""A new run that goes on from another's checkpoint: with its weights, optimizer, reservoir, curriculum and rounds.

The trunk's folder is only read. What a fork begins with appears whole or not at all, and holds one
checkpoint: what the trunk did after it is undone as after a crash.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import hint
from actors.cluster.runs import changes, ledgers, run_folder
from actors.entropulse.decide import FINAL, GREEDY
from actors.learner.folders import CHECKPOINTS
from actors.replay.database.ledger_file import LEDGER, copy_ledger
from policy import checkpoints
from runtime.errors import ConfigError, StoreError
from runtime.segments import SEGMENTS

# What the checkpoint's weights, and the steps that are kept, were made with.
FIXED = ("model.path", "prompt.format", "prompt.action_space", "learner.dtype", "learner.lora")


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A trunk's checkpoint."""

    run: Path
    version: str

    def __str__(self) -> str:
        return f"{self.run.name}@{self.version}"


def locate(named: str, runs: Path) -> ForkPoint:
    """The checkpoint that `RUN@VERSION` means, or RUN alone: its newest. Raises ConfigError with the nearest one."""
    name, _, version = named.rpartition("@") if "@" in Path(named).name else (named, "", "")
    run = run_folder.find(runs, name)
    run_folder.refuse_held(run)
    try:
        saved = [one for one, _ in checkpoints.complete(run / CHECKPOINTS)]
    except StoreError as error:
        raise ConfigError(f"--from {named}: {error}") from None
    _, digests = ledgers.checkpoint_digests(run, saved)
    known = [str(one) for one, digest in zip(saved, digests, strict=True) if digest]
    if not known:
        raise ConfigError(f"--from {named}: run {name} holds no checkpoint that its ledger knows")
    if version and version not in known:
        raise ConfigError(f"--from {named}: run {name} holds no checkpoint {version}; {hint(version, known)}")
    return ForkPoint(run=run, version=version or known[-1])


def refuse_changes(point: ForkPoint, deploy: Deploy) -> None:
    """Raise ConfigError for the first key in which a fork can't differ from its trunk."""
    for path, was, _ in changes.keys(deploy_files.stored(point.run), deploy):
        if changes.under(path, FIXED):
            raise ConfigError(f"--set {path}: {point} was trained with {was}, which a fork keeps: leave it out")


def make(point: ForkPoint, folder: Path) -> None:
    """Copy into the new folder `folder` what a run goes on from; nothing where that was done before it was killed.

    Raises ConfigError where it can't be copied.
    """
    if (folder / LEDGER).is_file():
        return
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True, mode=run_folder.PRIVATE)
        with run_folder.held(point.run, run_folder.read_record(point.run).started):
            copy_ledger(point.run, partial, again=[FINAL, FINAL + GREEDY])
            shutil.copytree(point.run / CHECKPOINTS / point.version, partial / CHECKPOINTS / point.version)
            shutil.copytree(point.run / SEGMENTS, partial / SEGMENTS, ignore=shutil.ignore_patterns("*.lock"))
        partial.rename(folder)
    except (OSError, StoreError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise ConfigError(f"{folder.name} can't be made from {point}: {error}") from None
