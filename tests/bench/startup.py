"""From the command to the first optimizer step of RL, by part.

The times are of the run's own log lines against the moment when the command was started. The measuring
process measures only that moment.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files
from actors.replay.messages import Phase
from runtime.logs.reader import read_logs

Line = dict[str, Any]
Mark = tuple[str, Callable[[Line], bool]]


def _event(name: str, **fields: str) -> Callable[[Line], bool]:
    return lambda line: line["event"] == name and all(line.get(key) == value for key, value in fields.items())


def _started(kind: str) -> Callable[[Line], bool]:
    return lambda line: line["event"] == "actor_started" and str(line.get("name", "")).split("/")[0] == kind


MARKS: tuple[Mark, ...] = (
    ("ledger open", _event("ledger_opened")),
    ("learner ready", _started("learner")),
    ("sampler ready", _started("sampler")),
    ("first seat ready", _started("desktop")),
    ("first demonstration played", _event("episode_committed", lane="demo")),
    ("cloning begins", _event("phase_changed", phase=Phase.BC)),
    ("first cloning step", _event("step_trained", phase=Phase.BC)),
    ("RL begins", _event("phase_changed", phase=Phase.RL)),
    ("first RL episode played", _event("episode_committed", lane="train")),
    ("first group complete", _event("group_ready")),
    ("first RL batch taken", _event("batch_taken", phase=Phase.RL)),
    ("first RL step", _event("step_trained", phase=Phase.RL)),
)
GOAL = MARKS[-1][0]


def parts(lines: Iterable[Line], begun_s: float) -> list[tuple[str, float]]:
    """Each mark reached and its second since `begun_s`, in the order they were reached."""
    found: dict[str, float] = {}
    for line in lines:
        for name, reached in MARKS:
            if name not in found and reached(line):
                found[name] = datetime.fromisoformat(line["ts"]).timestamp() - begun_s
    return sorted(found.items(), key=lambda pair: pair[1])


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    file: str = "smoke"
    overrides: list[str] = msgspec.field(default_factory=list)
    runs: str = "runs"


def run(wanted: Options, *, as_json: bool) -> int:
    """Run the file and print its parts; 1 when the run failed or made no such step."""
    file, overrides, runs = wanted.file, wanted.overrides, Path(wanted.runs)
    deploy_files.load(file, overrides)
    places.refuse_unwritable(runs, "--runs")
    name = f"bench-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [sys.executable, "-P", "-m", "actors.cluster.cli", "run", file, "--name", name, "--runs", str(runs)]
    for override in overrides:
        command += ["--set", override]
    begun = time.time()
    done = subprocess.run(command, check=False, stdout=sys.stderr if as_json else None, stdin=subprocess.DEVNULL)
    logged = (runs / name / "logs").is_dir()
    marks = parts(read_logs(runs / name), begun) if logged else []
    goal = dict(marks).get(GOAL)
    status = 0 if done.returncode == 0 and goal is not None else 1
    if as_json:
        rounded = [{"part": part, "at_s": round(at, 2)} for part, at in marks]
        output.document({"run": name, "exit": done.returncode, "seconds": goal and round(goal, 2), "parts": rounded})
        return status
    rows, before = [], 0.0
    for part, at in marks:
        rows.append((f"{at:8.2f}", f"{at - before:+8.2f}", part))
        before = at
    output.line()
    output.table(("    AT S", "   AFTER", "PART"), rows)
    output.line(f"\nfirst RL step after {goal:.1f} s" if goal is not None else "\nno RL step")
    return status
