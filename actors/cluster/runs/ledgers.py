"""A run's ledger, read-only, for commands: one that is not there, or can't be read, ends a command in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from actors.cluster.config.suggest import blamed
from actors.cluster.runs import run_folder
from actors.learner.folders import CHECKPOINTS, newest_known
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER, reading
from actors.replay.ledger.training import DIGEST
from actors.replay.messages import Phase
from policy import checkpoints
from runtime.errors import ConfigError, StoreError
from runtime.messaging.message import Version
from runtime.segments import SEGMENTS


@contextmanager
def opened(run: Path) -> Iterator[queries.Database]:
    """The ledger of the run in folder `run`, read-only, rows by name. Raises ConfigError."""
    with blamed(""), reading(run) as database:
        yield database


def damage(run: Path) -> str:
    """Why no run can go on from what is in folder `run`; "" where that is sound or was not begun."""
    if not (run / LEDGER).is_file():
        left = next((name for name in (f"{CHECKPOINTS}/*", f"{SEGMENTS}/*.seg") if any(run.glob(name))), "")
        return f"its {LEDGER} is gone, and {run / left} says nothing without it: put it back" if left else ""
    try:
        with reading(run) as database:
            if wrong := queries.damage(database):
                return f"the ledger of {run} is damaged: {wrong.splitlines()[-1]}"
            begun = queries.at_one_moment(database)
            saved = begun and any(name.startswith(DIGEST) for name in queries.meta(database))
            files = queries.payload_files(database) if begun else []
        if saved and not checkpoints.complete(run / CHECKPOINTS):
            return f"the checkpoints that it saved in {run / CHECKPOINTS} are gone: put them back"
        if files and not any((run / SEGMENTS / name).is_file() for name in files):
            return f"the steps that it stored in {run / SEGMENTS} are gone: put them back"
    except (ConfigError, StoreError) as error:
        return str(error)
    return ""


def onward(record: run_folder.RunRecord, run: Path) -> str:
    """The command that goes on with the run in folder `run`, or why none does."""
    wrong = damage(run)
    return f"it can't go on: {wrong}" if wrong else f"continue with  {run_folder.to_continue(record, run)}"


def holds_demos(run: Path, count: int) -> bool:
    """Whether the run in folder `run`, begun or not, has `count` demonstrations, or is past wanting them.

    Raises ConfigError where its ledger can't be read.
    """
    if not (run / LEDGER).is_file():
        return False
    with opened(run) as database:
        newest = queries.segment(database)
        return queries.demos(database) >= count or (newest is not None and newest["phase"] != Phase.DEMO)


def checkpoint_digests(run: Path, versions: Sequence[Version]) -> tuple[Version, list[str]]:
    """The newest version that the run in folder `run` trained, and the digests of its checkpoints of `versions`.

    A digest is "" where the ledger has none. Raises ConfigError where the ledger can't be read.
    """
    if not (run / LEDGER).is_file():
        return Version(lineage=0, step=0), ["" for _ in versions]
    with opened(run) as database:
        known = queries.meta(database)
    return Version.parse(known.get("trained", "0.0")), [known.get(f"{DIGEST}{version}", "") for version in versions]


def checkpoint(folder: Path) -> str:
    """What a resume of the run in `folder` would begin from, after it was found whole. Loads nothing.

    Raises ConfigError where that would not be loaded.
    """
    with blamed(""):
        saved = checkpoints.complete(folder / CHECKPOINTS)[::-1]
        trained, digests = checkpoint_digests(folder, [version for version, _ in saved])
        version, location, digest = newest_known(saved, digests, trained)
        if location is None:
            return "none: begins from model.path"
        checkpoints.verify(location, digest)
    return f"{version} can be loaded: its files are those that the run saved"
