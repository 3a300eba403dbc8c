"""A run for a program, `computerrl.Run`: started as the command starts it, and read from its folder alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actors.cluster import paths as places
from actors.cluster.report.run_data import RunFigures, read_run
from actors.cluster.runs import run_folder
from actors.cluster.runs.run_folder import RunRecord
from actors.cluster.runs.run_reader import RunNow, RunReader
from runtime.errors import ConfigError, DeadlineExceeded

START_S = 120.0  # from the command to a run that owns its folder
LOOK_S = 0.2


class RunHandle:
    """The run called `name` below the folder `runs`; `last` is the newest. Raises ConfigError with the nearest name."""

    def __init__(self, name: str, runs: str | Path = places.RUNS) -> None:
        self.folder = run_folder.find(Path(runs), name)

    def __repr__(self) -> str:
        return f"Run({self.folder.name!r}: {self.state})"

    @classmethod
    def start(
        cls,
        file: str | Path,
        *,
        name: str = "",
        runs: str | Path = places.RUNS,
        settings: Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """Start a deploy file, a path or a bundled name, as `computerrl run` does; returns once it owns its folder.

        `settings` change keys by their path: `{"desktops.count": 2}`. Raises ConfigError with the command's own line
        where it refuses, and DeadlineExceeded after `START_S` seconds.
        """
        name = name or places.unnamed(Path(file).stem, time.time())
        command = [sys.executable, "-P", "-m", "actors.cluster.cli", "run", str(file), "--name", name]
        command += ["--runs", str(runs)]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
            _until_owned(process, Path(runs) / name)
            if process.returncode == 2:
                said.seek(0)
                raise ConfigError(said.read().decode("utf-8", "replace").strip().rpartition("\n")[2])
        return cls(name, runs)

    @property
    def record(self) -> RunRecord:
        """What it is a run of, since when, and how it ended."""
        return run_folder.read_record(self.folder)

    @property
    def state(self) -> str:
        """One word: running, ok, failed, stopped, crashed or killed."""
        return run_folder.state(self.folder, self.record)

    def follow(self, every_s: float = 1.0) -> Iterator[RunNow]:
        """What it does, now and every `every_s` seconds until it has ended; the last look is at its end.

        Raises ConfigError where its folder can't be read.
        """
        reader = RunReader(self.folder)
        try:
            while True:
                seen = reader.look()
                yield seen
                if seen.state != "running":
                    return
                time.sleep(every_s)
        finally:
            reader.close()

    def figures(self) -> RunFigures:
        """What `computerrl report` is made of, so far. Raises ConfigError before it has a ledger."""
        return read_run(self.folder)

    def wait(self, timeout_s: float) -> RunRecord:
        """Its record once it has ended. Raises DeadlineExceeded."""
        deadline = time.monotonic() + timeout_s
        while self.state == "running":
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"run {self.folder.name} still runs after {timeout_s:g} s")
            time.sleep(LOOK_S)
        return self.record

    def stop(self) -> None:
        """Have it end cleanly, as Ctrl-C does; nothing where it has ended. Returns at once: `wait` for its end."""
        owner = run_folder.owner(self.folder)
        if owner is not None and owner.pid:
            os.kill(owner.pid, signal.SIGINT)


def _until_owned(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Returns when the run has its folder, or the command has ended."""
    deadline = time.monotonic() + START_S
    while process.poll() is None:
        if run_folder.is_run(folder) and (by := run_folder.owner(folder)) is not None and by.pid == process.pid:
            return
        if time.monotonic() > deadline:
            process.terminate()
            raise DeadlineExceeded(f"run {folder.name} did not begin within {START_S:g} s")
        time.sleep(LOOK_S)
