"""A run on three machines, one of which is cut off, and one loses its Ray.

Desktops are on two of them; engine, router, learner and a rank on the third, which has the folder of runs by sshfs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.replay.demos import demo_files
from actors.replay.rules.cold_start import family_of
from runtime.logs.reader import LogWatch
from runtime.messaging.message import Version
from tests.cluster.machines import Machines, gone, until
from tests.soak.verdict import things

pytestmark = [
    pytest.mark.skipif(os.environ.get("COMPUTERRL_TEST_RAY") != "1", reason="COMPUTERRL_TEST_RAY=1 asks for it"),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and ip"),
    pytest.mark.skipif(not shutil.which("sshfs"), reason="a machine mounts by sshfs, which is not installed"),
    pytest.mark.timeout(2400),
]

ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).parent / "computerrl")
STEP_S = 600.0  # for each thing that is waited for, on a busy machine
WHOLE_S = 900.0
SEATS = 2  # of a process
HERE, AWAY, THIRD = range(3)
HAS = (
    {"desktops": 2 * SEATS, "ranks": 1},  # with the entry point and Ray's head
    {"desktops": SEATS},
    {"engines": 1, "ranks": 1, "actors": 2},
)
# A recording is cloned beside what is played here: what the policy has learned of it, it solves sometimes and sometimes
# not, so that groups of unequal rewards come soon.
RECORDED, PLAYED = 100, 14  # demonstrations of FAMILY
FAMILY = "file_manager"
FIRST = 1000  # the number of the first task that is played: none of the recording's
SAVED, KILLED_AFTER = 10, 15  # the first checkpoint that is written because it is due, and when the raylet is killed
FILE: dict[str, Any] = {
    "extends": "smoke",
    "desktops": {"count": 2 * SEATS, "processes": 2, "warm_pool": 1, "place": {"desktops": SEATS}},
    "samplers": {"place": {"engines": 1}, "router_place": {"actors": 1}},
    "learner": {
        "parallel": {"data": 2},
        "place": {"ranks": 1},
        "actor_place": {"actors": 1},
        "checkpoint_every": SAVED,
    },
    "tasks": {
        "demo": [{"family": FAMILY, "split": "train", "count": PLAYED, "first": FIRST}],
        "eval": [{"family": FAMILY, "split": "held-out", "count": 2}],
    },
    "demos": {"count": RECORDED + PLAYED},
    "entropulse": {"bc_steps": 80},
    "run": {"limit_s": None},
}


def recorded(families: Collection[str], into: Path) -> list[str]:
    """Write the main job's demonstrations of `families` to the recording `into`; the task of each."""
    header, demos = demo_files.read(deploy_files.bundled()["local"].parent / "demos" / "local.parquet")
    kept = [demo for demo in demos if family_of(demo.task) in families]
    tasks = [demo.task for demo in kept]
    shown = [one for one in header.tasks if one.task in set(tasks)]
    demo_files.write(into, msgspec.structs.replace(header, demos=len(kept), tasks=shown), kept)
    return tasks


class Run:
    """A run that machine 0 starts, watched by its logs."""

    def __init__(self, cluster: Machines, folder: Path) -> None:
        # The name is the test's own: by it the last look tells what was left from what a test beside it has.
        self._cluster, self.log, self.dir = cluster, folder / "run.log", folder / "runs" / f"away-{os.getpid()}"
        self._watch, self._lines = LogWatch(self.dir), defaultdict[str, list[dict[str, Any]]](list)
        deploy = folder / "deploy.yaml"
        source = folder / "demos.parquet"
        shown = recorded({FAMILY}, source)
        assert len(shown) == RECORDED
        tasks = FILE["tasks"] | {"train": list(dict.fromkeys(shown))}
        demos = FILE["demos"] | {"source": str(source)}
        where = {"engine": "ray", "address": cluster.ray, "wait_s": STEP_S}
        file = FILE | {"tasks": tasks, "demos": demos, "cluster": where}
        deploy.write_text(json.dumps(file))  # JSON is YAML
        words = [COMMAND, "run", str(deploy), "--runs", str(self.dir.parent), "--name", self.dir.name]
        self.process = cluster.start(HERE, words, self.log)

    def lines(self, event: str) -> list[dict[str, Any]]:
        for line in self._watch.new():
            self._lines[line["event"]].append(line)
        return self._lines[event]

    def lives(self, kind: str) -> list[dict[str, Any]]:
        """Lives of hosts of a kind, such as `desktops`, in order."""
        return [line for line in self.lines("host_started") if line["name"].startswith(f"{kind}/")]

    def until(self, true: Any, what: str) -> None:
        def found() -> bool:
            assert self.process.poll() is None, f"{what}: the run has ended: {self.log.read_text()[-3000:]}"
            return bool(true())

        began = time.monotonic()
        until(found, STEP_S, what)
        say(time.monotonic() - began, f"until {what}")

    def plays(self, host: str) -> int:
        """How many episodes the process has ended."""
        file = self.dir / "logs" / f"{host.replace('/', '-')}.jsonl"
        return file.read_text().count('"episode_ended"') if file.is_file() else 0

    def cpu_s(self) -> float:
        """What its processes have used, by their own word."""
        return sum(sum(line["seconds"].values()) for line in self.lines("cpu_used"))

    def close(self) -> None:
        self._watch.close()

    def step(self) -> int:
        """The newest step in the log."""
        return max((int(line["version"].partition(".")[2]) for line in self.lines("learner_step")), default=0)


def say(seconds: float, what: str) -> None:
    sys.stdout.write(f"{seconds:6.1f} s {what}\n")


def named(words: set[str]) -> list[int]:
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


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if entry.is_dir()} if folder.is_dir() else set()


def test_a_run_goes_on_when_a_machine_is_cut_off_and_another_loses_its_ray():
    folder = ROOT / ".cache" / f"cluster-{os.getpid()}"  # /tmp of a machine is its own
    runs = folder / "runs"  # the third machine mounts it, the others have it
    runs.mkdir(parents=True)
    began = time.monotonic()
    try:
        with Machines(HAS, folder) as cluster:
            cluster.serve()
            cluster.until_served(STEP_S)
            say(time.monotonic() - began, "until Ray is on three machines")
            cluster.mount(THIRD, runs)
            with closing(Run(cluster, folder)) as run:
                play(cluster, run)
                say(run.cpu_s(), "of processor time without guests and Ray")
        say(time.monotonic() - began, "in all")
    finally:
        shutil.rmtree(folder)


def play(cluster: Machines, run: Run) -> None:
    run.until(lambda: len(run.lines("host_started")) == 7, "seven processes on three machines")
    at = {line["name"]: line for line in run.lines("host_started")}
    where = {name: line["machine"] for name, line in at.items()}
    home, away, third = map(cluster.name, range(3))
    assert {where["desktops/0"], where["desktops/1"]} == {home, away}
    assert {where["samplers/0"], where["router"], where["learner"]} == {third}
    assert {where["ranks/0"], where["ranks/1"]} == {home, third}
    run.until(lambda: run.plays("desktops/0") and run.plays("desktops/1"), "an episode of each process")
    owners = {name for k in (HERE, AWAY) for name in names(cluster.folder(k, "run/computerrl"))}

    # A machine with desktops is cut off, and no side is told. Meanwhile the run learns, and the third loses its Ray.
    lost = next(name for name in ("desktops/0", "desktops/1") if where[name] == away)
    cluster.cut(AWAY)
    run.until(lambda: run.step() >= KILLED_AFTER, "steps of cloning beyond a checkpoint")
    saved = [Version.parse(line["version"]) for line in run.lines("checkpoint_saved")]
    assert cluster.kill_raylet(THIRD)

    run.until(lambda: len(run.lives("desktops")) == 3, "the lost desktops on the machine that is left")
    assert gone(at[lost]["pid"])  # it has stopped by itself, out of reach, before its successor began
    assert run.lives("desktops")[-1] | {"name": lost, "machine": home} == run.lives("desktops")[-1]
    assert not cluster.hosts(AWAY)
    cluster.plug(AWAY)
    run.until(lambda: run.lines("learner_resumed"), "both ranks again")
    parent = run.lines("learner_resumed")[0]["parent"]
    assert Version.parse(parent) >= saved[-1] >= Version(lineage=0, step=SAVED)
    assert parent in {line["version"] for line in run.lines("checkpoint_saved")}
    again = Version.parse(run.lines("learner_resumed")[0]["version"]).lineage
    run.until(lambda: run.lives("samplers")[1:], "the engine again")
    began = time.monotonic()
    assert cluster.joined(THIRD) == 2

    # smoke to its end: what it counts is right, and nothing is left on any machine.
    assert run.process.wait(WHOLE_S) == 0, run.log.read_text()[-3000:]
    say(time.monotonic() - began, f"until its end, groups {Counter(one['ending'] for one in run.lines('group_ended'))}")
    owners |= {name for k in (HERE, AWAY) for name in names(cluster.folder(k, "run/computerrl"))}
    assert run.plays(lost) > 1
    assert not run.lines("system_failed")
    # No machine was tried in vain: each process was lost once, and its next life is its last.
    of_third = ["samplers/0", "router", "learner", "ranks/0", "ranks/1"]
    assert sorted(line["name"] for line in run.lines("host_lost")) == sorted([lost, *of_third])
    assert [line["machine"] for line in run.lives("samplers")] == [third, third]
    steps = [Version.parse(line["version"]) for line in run.lines("learner_step")]
    assert min(one.step for one in steps if one.lineage == again) == Version.parse(parent).step + 1
    assert not [one for one in steps if one.lineage > again]
    audit = subprocess.run([COMMAND, "audit", str(run.dir)], capture_output=True, text=True, check=False, timeout=60)
    assert audit.returncode == 0, audit.stdout
    for k in (AWAY, THIRD):
        until(lambda k=k: cluster.joined(k) > 1, STEP_S, f"Ray on machine {k} again: {cluster.log(k)}")
    assert not [pid for k in range(3) for pid in cluster.hosts(k)]
    assert not named(owners)
    assert owners
    for k in range(3):
        assert not any(things(run.dir, "/run/computerrl", cluster.folder(k, ""), cluster.mounts(k)).values())
    assert not [one for k in range(3) for one in names(cluster.folder(k, "tmp")) if one.startswith("computerrl-host-")]
