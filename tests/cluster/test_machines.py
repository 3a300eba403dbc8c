"""A run on three machines, two of them with desktops and engine: one cut off, one back, one without its Ray."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.logs.reader import read_logs
from tests.cluster.machines import PORT, ROOT, Machines, machines, until

pytestmark = [
    pytest.mark.skipif(os.environ.get("COMPUTERRL_TEST_RAY") != "1", reason="COMPUTERRL_TEST_RAY=1 asks for it"),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and ip"),
    pytest.mark.timeout(1200),
]

STARTS_S = 240.0
LOST_S = 180.0  # silent_limit_s, what a host then has to stop by itself, a start, on a busy machine
SEATS = 2  # of a process; a machine holds two processes
COMMAND = str(Path(sys.executable).parent / "computerrl")


class Run:
    """A run on machine 0, watched by its logs."""

    def __init__(self, cluster: Machines, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self.deploy, self.log = folder / "deploy.yaml", folder / "run.log"
        self.runs = folder / "runs"
        self.dir = self.runs / "away"
        file = {
            "extends": "smoke",
            "cluster": {"engine": "ray", "address": f"{cluster.address(0)}:{PORT}", "wait_s": STARTS_S},
            "desktops": {"count": 2 * SEATS, "processes": 2, "place": {"desktops": SEATS}},
            "samplers": {"place": {"engines": 1}},
            "tasks": {"demo": [{"family": "file_manager", "split": "train", "count": 2000}]},
            "demos": {"count": 1900},
            "entropulse": {"bc_steps": 50},
            "run": {"limit_s": None},
        }
        self.deploy.write_text(json.dumps(file))  # JSON is YAML

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        told = [COMMAND, "run", str(self.deploy), "--runs", str(self.runs), "--name", "away", *words]
        return self._cluster.start(0, told, self.log)

    def lines(self, event: str) -> list[dict[str, Any]]:
        return list(read_logs(self.dir, event=event)) if (self.dir / "logs").is_dir() else []

    def lives(self) -> list[dict[str, Any]]:
        return [line for line in self.lines("host_started") if line["name"].startswith("desktops/")]

    def committed(self) -> int:
        return len(self.lines("episode_committed"))

    def plays_on(self, more: int = 6) -> None:
        """Wait until both processes have played some more episodes."""
        before = {host: len(self._ended(host)) for host in ("desktops-0", "desktops-1")}
        until(
            lambda: all(len(self._ended(host)) >= n + more // 2 for host, n in before.items()), STARTS_S,
            f"episodes of both processes: {self.log.read_text()[-1500:]}",
        )  # fmt: skip

    def _ended(self, host: str) -> list[str]:
        file = self.dir / "logs" / f"{host}.jsonl"
        return [line for line in file.read_text().splitlines() if '"episode_ended"' in line] if file.is_file() else []


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def named(words: list[str]) -> list[int]:
    """Processes whose command line has one of these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if any(word in line for word in words):
                found.append(int(entry.name))
    return found


def test_a_run_goes_on_without_a_machine_and_with_one_that_is_back():
    folder = ROOT / ".cache" / f"cluster-{os.getpid()}"  # /tmp of a machine is its own
    folder.mkdir(parents=True)
    try:
        with machines(3, 2 * SEATS, folder) as cluster:
            play(cluster, Run(cluster, folder))
    finally:
        shutil.rmtree(folder)


def play(cluster: Machines, run: Run) -> None:
    owners: set[str] = set()
    for k in range(3):
        cluster.start_ray(k)
    for k in range(3):
        cluster.ray_is_up(k, STARTS_S)
    process = run.start()
    until(lambda: len(run.lives()) == 2, STARTS_S, "two processes on two machines")
    first = {line["name"]: line for line in run.lives()}
    away_from_here = {cluster.name(1), cluster.name(2)}
    assert {line["machine"] for line in first.values()} == away_from_here
    run.plays_on()
    owners.update(*(cluster.desktop_owners(k) for k in (1, 2)))

    # A machine is cut off: no side is told.
    lost = first["desktops/0"]
    away = 1 if lost["machine"] == cluster.name(1) else 2
    other = 3 - away
    cluster.cut(away)
    until(lambda: len(run.lives()) == 3, LOST_S, "the lost process on the other machine")
    assert gone(lost["pid"])  # it has stopped by itself, out of reach, before its successor began
    assert run.lives()[-1]["machine"] == cluster.name(other)
    run.plays_on()

    # It comes back, as its service would bring it; then the other one's Ray is killed.
    cluster.plug(away)
    cluster.ray_ends(away, LOST_S)
    assert not named(list(owners & set(cluster.desktop_owners(away)))), "desktops of a machine that was cut off"
    cluster.start_ray(away)
    cluster.ray_is_up(away, STARTS_S)
    owners.update(*(cluster.desktop_owners(k) for k in (1, 2)))
    os.kill(cluster.raylet(other), signal.SIGKILL)
    until(lambda: len(run.lives()) == 5, LOST_S, "both processes on the machine that is back")
    assert {line["machine"] for line in run.lives()[3:]} == {cluster.name(away)}
    run.plays_on()
    owners.update(*(cluster.desktop_owners(k) for k in (1, 2)))

    process.send_signal(signal.SIGINT)
    process.wait(90)
    assert not run.lines("system_failed")
    assert {"desktops/0", "desktops/1"} <= {line["name"] for line in run.lines("host_lost")}
    assert {line["machine"] for line in run.lines("host_started") if line["name"] == "samplers/0"} <= away_from_here
    committed = run.committed()

    # What was played is kept, and enough to go on with: cloning and a step of RL on desktops elsewhere.
    again = run.start("--resume", "--set", f"demos.count={committed}")
    assert again.wait(2 * STARTS_S) == 0, run.log.read_text()[-3000:]
    audit = subprocess.run([COMMAND, "audit", str(run.dir)], capture_output=True, text=True, check=False)
    assert audit.returncode == 0, audit.stdout
    assert not named(list(owners))
