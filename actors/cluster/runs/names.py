"""Which run a person means by a name.

Invariant: all commands read a name in the same way: a run below the folder of runs, then a path, then `last`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from actors.cluster import output
from actors.cluster.config.suggest import hint
from actors.cluster.runs import run_folder
from actors.cluster.runs.run_folder import RunRecord, runs_flag
from runtime.errors import ConfigError
from runtime.program import program

LAST = "last"  # the newest run that trains; where none does, the newest of another kind


def trains(_path: Path, record: RunRecord) -> bool:
    """Whether `run` made it, and not `eval` or `demos`."""
    return record.verb == run_folder.RUN


def _any(_path: Path, _record: RunRecord) -> bool:
    return True


def look_up(
    runs: Path,
    name: str,
    is_one: Callable[[Path], bool] = run_folder.is_run,
    usable: Callable[[Path, RunRecord], bool] = _any,
) -> Path | None:
    """The folder that `name` means, None where there is no such folder.

    `is_one` says whether a folder is what the command asks for; `last` is the newest `usable` run below `runs`.
    Raises ConfigError where `runs` is no folder.
    """
    known = [*run_folder.all_runs(runs)]
    for path in (runs / name, Path(name)):
        if is_one(path):
            return path
    if name != LAST:
        return None
    return next((path for path, record in reversed(known) if usable(path, record)), None)


def find(runs: Path, name: str) -> Path:
    """The folder of the run that `name` means. Raises ConfigError with the nearest name."""
    found = look_up(runs, name, usable=trains) or look_up(runs, name)
    if found is None:
        known = [path.name for path, _ in run_folder.all_runs(runs)]
        if not known and not run_folder.broken(runs):
            what = "" if name == LAST else f"no run {name}: there are "
            raise ConfigError(f"{what}no runs in {runs} yet: make one with  {program()} run smoke{runs_flag(runs)}")
        raise ConfigError(f"no run {name} in {runs}; {hint(name, known)}")
    if name == LAST and found.name != LAST:
        for _, why in run_folder.broken(runs):
            output.line(f"passed by: {why}", to=sys.stderr)
    return found
