"""Machines in network namespaces: their Ray is started again where it ends, and all of them are removed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.errors import ConfigError
from tests.cluster import machines


def test_machines_are_removed_though_one_of_them_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Anchor:
        def __init__(self, number: int) -> None:
            self.pid = number

        def kill(self) -> None:
            done.append(f"kill {self.pid}")

        def wait(self, _: float) -> None:
            done.append(f"wait {self.pid}")

    def kill(self: machines.Machines, number: int) -> None:
        raise TimeoutError(f"machine {number} does not end")

    done, deleted = list[str](), list[str]()
    monkeypatch.setattr(machines.Machines, "_build", lambda self: self._anchors.extend(map(Anchor, range(2))))
    monkeypatch.setattr(machines.Machines, "_kill", kill)
    monkeypatch.setattr(machines.subprocess, "run", lambda words, **_: deleted.append(words[-1]))
    monkeypatch.setattr(machines, "RAY", sys.executable)
    cluster = machines.Machines(({}, {}), tmp_path)
    with pytest.raises(TimeoutError), cluster:
        pass
    assert done == ["kill 1", "wait 1", "kill 0", "wait 0"]
    assert {cluster.name(0), cluster.name(1)} < set(deleted)


def test_a_checkout_that_the_machines_can_not_see_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = tmp_path / "ray"
    ray.touch()
    monkeypatch.setattr(machines, "RAY", str(ray))
    monkeypatch.setattr(machines, "OWN", (str(tmp_path),))
    with pytest.raises(
        ConfigError, match=f"the checkout with {ray}: each machine has its own {tmp_path}; next: choose another"
    ):
        machines.Machines(({},), tmp_path).__enter__()


def test_a_ray_that_ends_at_once_is_not_started_in_a_hot_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = list[float]()

    def start(*_: object) -> subprocess.Popen[bytes]:
        starts.append(time.monotonic())
        return subprocess.Popen(["true"])

    monkeypatch.setattr(machines.Machines, "start", start)
    monkeypatch.setattr(machines.Machines, "_kill", lambda *_: None)
    cluster = machines.Machines(({}, {}), tmp_path)
    cluster.serve()
    time.sleep(1.0)
    cluster.__exit__()
    assert 1 < len(starts) <= 2 * (1 + 1.0 / machines.LOOK_S)


def test_a_head_that_does_not_come_up_is_started_again_until_it_does_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter(["no port\n", machines.JOINED, ""])

    def start(self: machines.Machines, number: int, _: object, log: Path) -> subprocess.Popen[bytes]:
        with log.open("a") as file:
            file.write(next(said))
        return subprocess.Popen(["true"])

    monkeypatch.setattr(machines.Machines, "start", start)
    monkeypatch.setattr(machines.Machines, "_kill", lambda *_: None)
    cluster = machines.Machines(({},), tmp_path)
    with pytest.raises(TimeoutError, match="not within 0 s: Ray on machine 0: it said nothing"):
        cluster.until_served(0)
    cluster.serve()
    cluster.until_served(10)
    time.sleep(3 * machines.LOOK_S)
    cluster.__exit__()
    assert cluster.log(0).read_text() == f"no port\n{machines.JOINED}"
    assert next(said) == "", "the run is on its machine: what comes up again is another Ray"
