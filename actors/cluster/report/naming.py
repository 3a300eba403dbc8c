"""What the names given to `report` mean.

Invariant: a name means runs or files of figures that are there, or is refused with what is there instead.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.cluster.config.suggest import hint
from actors.cluster.report import figures_file
from actors.cluster.runs import run_folder
from runtime.errors import ConfigError

LAST = "last"  # the newest run


def paths_of(name: str, runs: Path) -> list[Path]:
    """The runs' folders and files of figures that `name` means, at least one. Raises ConfigError."""
    if name.endswith(figures_file.SUFFIX):
        return [figures_file.locate(name)]
    path = Path(name)
    if not run_folder.is_run(path) and (files := sorted(path.glob(f"*{figures_file.SUFFIX}"))):
        return files  # of a folder that keeps figures
    if found := run_folder.of_experiment(runs, name):
        return found
    if not run_folder.is_run(runs / name) and not run_folder.is_run(path):
        if name != LAST:
            _refuse_other_place(path)
        if next(run_folder.all_runs(runs), None) is None and not run_folder.broken(runs):
            what = "" if name == LAST else f"no run {name}: there are "
            raise ConfigError(f"{what}no runs in {runs} yet: make one with  computerrl run smoke")
    return [run_folder.find(runs, name)]


def _refuse_other_place(path: Path) -> None:
    """Raise ConfigError where a file or folder is at `path`, or where it is called as a file of figures nearly is."""
    if os.path.isfile(path):
        raise ConfigError(f"{path}: the file exists, but a file of a run's figures ends in {figures_file.SUFFIX}")
    if os.path.isdir(path):
        raise ConfigError(f"{path}: the folder exists, but is no run and holds no file of a run's figures")
    if path.suffix != ".gz":  # a run's name
        return
    near = [str(path.with_name(one.name)) for one in sorted(path.parent.glob(f"*{figures_file.SUFFIX}"))]
    raise ConfigError(
        f"{path}: no such file, and a file of a run's figures ends in {figures_file.SUFFIX}; {hint(str(path), near)}"
    )
