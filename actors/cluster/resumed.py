"""What a run goes on with when it is resumed: the settings it has, and what --set changes from there on.

Invariant: a change that would do nothing, or break what the run holds, is refused by name before anything starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from actors.cluster import experiment, ledgers, typed
from actors.cluster.config import Deploy, refuse_expert_keys
from actors.replay.ledgerfile import LEDGER
from runtime.errors import ConfigError

# What tasks, groups and weights of a run's first part were made with.
FIXED = (
    "run.seed", "run.base", "desktops.form", "desktops.actions", "learner.advantage", "learner.dtype",
)  # fmt: skip
TRAINING = ("tasks.train", "tasks.demo", "demos", "learner", "entropulse")  # nothing to a run that is trained


def settings(folder: Path, overrides: Sequence[str]) -> Deploy:
    """The settings of the run in `folder` with `overrides`. Raises ConfigError."""
    file = folder / "deploy.yaml"
    before, after = (typed.read(file, Deploy, said) for said in ([], overrides))
    refuse_expert_keys(after, str(file))
    for key in FIXED:
        was = attrgetter(key)(before)
        if attrgetter(key)(after) != was:
            raise ConfigError(f"--set {key}: run {folder.name} has {was}, which it keeps: leave it out")
    cloned, now = experiment.cloning_of(before), experiment.cloning_of(after)
    if (other := experiment.first_difference(cloned, now)) is not None and has_cloned(folder):
        raise ConfigError(f"--set {other}: run {folder.name} has begun to clone as it was told: leave it out")
    changed = [part for part in TRAINING if attrgetter(part)(before) != attrgetter(part)(after)]
    if changed and is_done(folder):
        said = next((one for one in overrides if one.startswith(changed[0])), changed[0])
        raise ConfigError(f"--set {said}: run {folder.name} has begun its last evaluation and is trained no more")
    return after


def has_cloned(folder: Path) -> bool:
    """Whether the run in `folder` has begun to clone, or is past it. Raises ConfigError for a broken ledger."""
    if not (folder / LEDGER).is_file():
        return False
    with ledgers.opened(folder) as db:
        return bool(db.execute("SELECT EXISTS (SELECT 1 FROM stays WHERE phase != 'demo')").fetchone()[0])


def is_done(folder: Path) -> bool:
    """Whether the run in `folder` has begun its last evaluation, or is over. Raises ConfigError for a broken ledger."""
    if not (folder / LEDGER).is_file():
        return False
    with ledgers.opened(folder) as db:
        ended = db.execute(
            "SELECT (SELECT phase FROM stays ORDER BY idx DESC LIMIT 1) = 'done' "
            "OR EXISTS (SELECT 1 FROM rounds WHERE name = 'final' AND abandoned = 0)"
        ).fetchone()[0]
    return bool(ended)
