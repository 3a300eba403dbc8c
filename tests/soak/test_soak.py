"""The pure parts of a soak: when what is broken, whether the log names it, whether levels come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.database.ledger_file import connect
from actors.replay.demos import demo_files
from runtime.errors import ConfigError
from runtime.logs.reader import LogWatch
from tests.soak import elsewhere, inject, levels, machines
from tests.soak.elsewhere import MachineSoak
from tests.soak.kinds import KINDS, MACHINE_KINDS, Kind, Planned, schedule
from tests.soak.named import LoggedState, judged
from tests.soak.soak import SoakOptions
from tests.soak.verdict import Broken, audited, bad, windows


@given(st.sampled_from([KINDS, MACHINE_KINDS]), st.integers(0, 2**32), st.floats(60, 4000), st.floats(2, 60))
def test_a_schedule_comes_from_its_seed_and_spares_the_restart_budgets(
    kinds: dict[str, Kind], seed: int, lasts_s: float, every_s: float
) -> None:
    plan = schedule(seed, lasts_s, every_s, kinds)
    assert plan == schedule(seed, lasts_s, every_s, kinds)
    assert [planned.at_s for planned in plan] == sorted(planned.at_s for planned in plan)
    assert all(0 < planned.at_s <= lasts_s and 0 <= planned.pick < 1 for planned in plan)
    last: dict[str, float] = {}
    for planned in plan:
        kind = kinds[planned.kind]
        assert planned.at_s - last.get(kind.part, float("-inf")) >= kind.rest_s
        last[kind.part] = planned.at_s


@pytest.mark.skipif(os.geteuid() != 0, reason="a soak needs root")
def test_a_machine_that_has_desktops_is_broken_and_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "OWN", ("/run",))

    class Cluster:
        ray, env, done = "10.77.0.10:6379", {"A": "b"}, list[str]()

        def entered(self, number: int, words: list[str]) -> list[str]:
            return [f"in {number}", *words]

        def hosts(self, number: int) -> list[int]:
            return [7] if number == 2 else []

        def name(self, number: int) -> str:
            return f"m{number}"

        def kill_raylet(self, number: int) -> bool:
            self.done.append(f"kill {number}")
            return True

        def cut(self, number: int) -> None:
            self.done.append(f"cut {number}")

        def plug(self, number: int) -> None:
            self.done.append(f"plug {number}")

    cluster = Cluster()
    soak = MachineSoak(SoakOptions(runs=tmp_path, minutes=15), lambda _: None, cluster)  # type: ignore[arg-type]
    assert soak.entered(["x"]) == ["in 0", "x"]
    assert "desktops.count=4" in soak.wanted.overrides
    for kind in ("machine_cut", "raylet_kill"):
        hit = soak.inject(Planned(1.0, kind, 0.9))
        assert hit is not None
        assert hit.victim == "m2"
        if hit.undo is not None:
            hit.undo()
    assert cluster.done == ["cut 2", "plug 2", "kill 2"]
    assert soak.unsettled() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a soak needs root")
def test_what_goes_by_apply_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "OWN", ("/run",))

    class Cluster:
        ray, env = "10.77.0.10:6379", dict[str, str]()

    soak = MachineSoak(SoakOptions(runs=tmp_path, minutes=15), lambda _: None, Cluster())  # type: ignore[arg-type]
    program = tmp_path / "apply"
    monkeypatch.setattr(soak, "command", lambda *words: [str(program), *words])

    def applied(kind: str, script: str) -> str:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        hit = soak.inject(Planned(1.0, kind, 0.0))
        assert hit is not None
        return hit.victim

    asked = f'echo "$*" >> {tmp_path}/asked'
    assert applied("apply_desktops", asked) == "desktops 2 to 1"
    assert applied("apply_samplers", asked) == "samplers 1 to 2"
    assert {planned.kind for planned in soak.unsettled()} == {"apply_desktops", "apply_samplers"}
    assert applied("apply_desktops", "echo it is busy; exit 2") == "desktops 1 to 2"
    assert soak.reasons == ["desktops 1 to 2: it is busy"]
    assert applied("apply_desktops", asked) == "desktops 1 to 2"
    assert [planned.kind for planned in soak.unsettled()] == ["apply_samplers"]
    assert [line.split(" ", 2)[2] for line in (tmp_path / "asked").read_text().splitlines()] == [
        "--set desktops.processes=1 --set desktops.count=2",
        "--set samplers.count=2",
        "--set desktops.processes=2 --set desktops.count=4",
    ]

    monkeypatch.setattr(elsewhere, "APPLY_S", 0.0)
    applied("apply_samplers", "exec sleep 60")
    assert "timed out" in soak.reasons[-1]
    monkeypatch.setattr(elsewhere, "APPLY_S", 300.0)
    soak.ending = True
    applied("apply_samplers", "exec sleep 60")  # ends at once, and is no reason
    assert "timed out" in soak.reasons[-1]
    assert len(soak.reasons) == 2


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a soak needs root")
def test_a_soak_of_machines_begins_from_demonstrations_of_its_families(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cluster:
        ray, env = "10.77.0.10:6379", dict[str, str]()

    monkeypatch.setattr(machines, "OWN", ("/run",))
    demo = "tasks.demo=[file_manager/train/7, {family: files_move, split: train, count: 3}]"
    wanted = SoakOptions(runs=tmp_path, minutes=15, overrides=[demo])
    soak = MachineSoak(wanted, lambda _: None, Cluster())  # type: ignore[arg-type]
    source, count = soak.prepared()
    header, demos = demo_files.read(Path(source.removeprefix("demos.source=")))
    assert count == f"demos.count={header.demos}"
    assert {demo.task.split("/")[0] for demo in demos} == {"file_manager", "files_move"}
    wanted = msgspec.structs.replace(wanted, overrides=[demo, "demos.source=mine.jsonl"])
    assert MachineSoak(wanted, lambda _: None, Cluster()).prepared() == []  # type: ignore[arg-type]
    partly = demo.replace("files_move", "term_head")  # never trained on, so in no recording
    wanted = msgspec.structs.replace(wanted, overrides=[partly])
    assert MachineSoak(wanted, lambda _: None, Cluster()).prepared() == []  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="a soak needs root")
def test_folders_that_each_machine_has_for_itself_hold_no_runs() -> None:
    with pytest.raises(ConfigError, match="--runs /tmp/runs: each machine has its own /tmp"):
        elsewhere.whole(SoakOptions(runs=Path("/tmp/runs"), minutes=15), lambda _: None)


@pytest.mark.skipif(os.geteuid() != 0, reason="a soak needs root")
def test_what_machines_lack_is_refused_before_they_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "OWN", ("/run",))
    monkeypatch.setattr(machines, "_ip", lambda *_: pytest.fail("a machine was begun"))
    with pytest.raises(ConfigError, match="--minutes is at least 1"):
        elsewhere.whole(SoakOptions(runs=tmp_path, minutes=0.5), lambda _: None)
    monkeypatch.setattr(machines, "RAY", str(tmp_path / "ray"))
    with pytest.raises(ConfigError, match="not installed: make ray"):
        elsewhere.whole(SoakOptions(runs=tmp_path, minutes=15), lambda _: None)


def test_every_kind_comes_in_half_an_hour() -> None:
    for seed in range(20):
        _, (start, end), _ = windows(30.0)
        assert {planned.kind for planned in schedule(seed, end - start, 20.0)} == set(KINDS)


@given(st.floats(1, 600))
def test_levels_are_taken_before_the_first_fault_and_after_the_last(minutes: float) -> None:
    first, breaking, last = windows(minutes)
    assert 0 < first[0] < first[1] <= breaking[0] < breaking[1] < last[0] < last[1] == 60 * minutes


def test_minute_two_is_minute_two() -> None:
    assert windows(30.0) == ((60.0, 120.0), (120.0, 1680.0), (1740.0, 1800.0))


def line(event: str, t: float, actor: str = "desktop/1", **fields: Any) -> dict[str, Any]:
    return {"event": event, "t": t, "actor": actor, **fields}


GONE = line("desktop_gone", 12.0, desktop="d7", holder="desktop/1", cpu_s=0.5)
KILLED = line("episode_faulted", 12.5, cause="sandbox_killed")


@pytest.mark.parametrize(
    ("kind", "lines", "state"),
    [
        ("sandbox_kill", [GONE, KILLED], LoggedState.NAMED),
        ("sandbox_kill", [KILLED], LoggedState.PENDING),  # of whom? that desktop is not gone yet
        ("sandbox_kill", [GONE, {**KILLED, "actor": "desktop/2"}], LoggedState.PENDING),  # another seat's fault
        ("sandbox_kill", [GONE, {**KILLED, "t": 9.0}], LoggedState.PENDING),  # it was written before
        ("sandbox_kill", [GONE, line("episode_ended", 12.5, reason="verified")], LoggedState.MOOT),
        ("sandbox_kill", [GONE, line("episode_faulted", 12.5, cause="verify_timeout")], LoggedState.UNNAMED),
        ("sandbox_kill", [line("desktop_spare_died", 11.0, desktop="d7", detail="")], LoggedState.NAMED),
        ("sandbox_kill", [line("desktop_spare_died", 11.0, desktop="d8", detail="")], LoggedState.PENDING),
        ("agent_kill", [GONE, line("episode_ended", 12.5, reason="agent_broke_desktop")], LoggedState.NAMED),
        ("app_kill", [GONE, line("episode_ended", 12.5, reason="out_of_steps")], LoggedState.NAMED),
        ("agent_kill", [line("desktop_boot_failed", 11.0, cause="boot_failed")], LoggedState.PENDING),  # it had booted
    ],
)
def test_only_a_line_about_the_desktop_that_was_hit_names_its_fault(
    kind: str, lines: list[dict[str, Any]], state: LoggedState
) -> None:
    assert judged(KINDS[kind], 10.0, lines, desktop="d7").state is state


def test_other_parts_are_named_by_their_own_lines() -> None:
    lost = line("host_lost", 11.0, "host/main", name="ranks/0")
    assert judged(KINDS["rank_kill"], 10.0, [lost]).state is LoggedState.NAMED
    assert judged(KINDS["host_kill"], 10.0, [lost]).state is LoggedState.PENDING
    stalled = line("stall", 30.0, "host/main", cause="silent", whom="host/desktops/0")
    found = judged(KINDS["host_stop"], 10.0, [stalled])
    assert (found.state, found.after_s) == (LoggedState.NAMED, 20.0)
    booting = line("desktop_boot_failed", 11.0, cause="boot_failed")
    assert judged(KINDS["x_kill"], 10.0, [booting], desktop="d7", ready=False).state is LoggedState.NAMED


def level(at_s: float, **more: int) -> levels.Level:
    values = {
        "processes": 4, "zombies": 0, "guest_processes": 40, "descriptors": 200, "rss_bytes": 1 << 30, "desktops": 5,
        "mounts": 5, "cgroups": 20, "folders": 12, "run_bytes": 1,
    }  # fmt: skip
    return levels.Level(at_s=at_s, **{**values, **more})


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_leak_is_what_stays(peak: int, stays: int) -> None:
    seen = [level(float(t)) for t in range(60, 121, 5)]
    seen += [level(float(t), descriptors=200 + peak) for t in range(125, 500, 5)]
    seen += [level(float(t), descriptors=200 + stays) for t in range(540, 601, 5)]
    found = {one.name: one for one in levels.returns(seen, (60.0, 120.0), (540.0, 600.0))}
    assert found["descriptors"].back == (200 + stays <= 200 * 1.15 + 40)
    assert found["descriptors"].most == 200 + max(peak, stays)
    assert all(one.back for name, one in found.items() if name != "descriptors")


def test_desktops_that_are_asked_for_are_no_leak() -> None:
    seen = [level(1.0, desktops=2), level(9.0, desktops=7)]
    for asked, back in ((6, False), (7, True)):
        found = {one.name: one for one in levels.returns(seen, (0.0, 2.0), (8.0, 10.0), asked)}
        assert found["desktops"].back == back


def broken(state: LoggedState) -> Broken:
    return Broken(at_s=1.0, kind="x_kill", victim="", state=str(state), sign="", after_s=1.0, deadline_s=9.0)


def test_a_verdict_is_good_only_when_everything_is() -> None:
    fine = [broken(LoggedState.NAMED), broken(LoggedState.MOOT)]
    back = [levels.Return(name="mounts", before=3.0, after=3.0, most=9.0, allowed=5.0)]
    gone = [levels.Return(name="mounts", before=3.0, after=6.0, most=9.0, allowed=5.0)]
    assert bad(fine, back, {"episode_faulted": 3}, [], wrong="", rl_steps=1) == []
    assert bad(fine[1:], back, {}, [], wrong="", rl_steps=1) == ["no fault was injected"]
    unseen = [levels.Return(name="guest_processes", before=0.0, after=0.0, most=0.0, allowed=30.0)]
    assert bad(fine, unseen, {}, [], wrong="", rl_steps=1) == ["guest_processes: none was seen before the first fault"]
    halfway = msgspec.structs.replace(fine[0], missing="host_started name=desktops/ within 300 s")
    assert bad([halfway], back, {}, [], wrong="", rl_steps=1) == [
        "x_kill at 1 s: no host_started name=desktops/ within 300 s in the log"
    ]
    assert (
        len(
            bad(
                [*fine, broken(LoggedState.UNNAMED)],
                gone,
                {"task_outlives": 1},
                ["process 7"],
                wrong="counts differ",
                rl_steps=0,
            )
        )
        == 6
    )


def test_a_ledger_whose_counts_differ_is_told(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    assert audited(file) == "there is no ledger"
    connection, _ = connect(file)
    connection.execute("INSERT INTO counters VALUES ('episodes:demo', 2)")
    connection.close()
    assert "2 for episodes:demo" in audited(file)


def test_levels_that_were_never_seen_did_not_come_back() -> None:
    assert not any(one.back for one in levels.returns([], (0.0, 1.0), (2.0, 3.0)))
    assert not any(one.back for one in levels.returns([level(0.5)], (0.0, 1.0), (2.0, 3.0)))


def test_only_the_named_run_is_looked_at(tmp_path: Path) -> None:
    run = tmp_path / "soak-of-a-test"
    (run / "logs").mkdir(parents=True)
    state = tmp_path / "state"
    (state / f"{levels.mark_of(run)}1.2.abcdabcd" / "3").mkdir(parents=True)
    (state / "crl.another.1.2.abcdabcd" / "3").mkdir(parents=True)
    found = levels.left(run, str(state))
    assert [len(found[kind]) for kind in ("owners", "folders", "mounts", "cgroups")] == [1, 1, 0, 0]
    seen = levels.look(1.0, os.getpid(), run, str(state))
    assert (seen.desktops, seen.folders, seen.guest_processes) == (1, 1, 0)
    assert seen.processes >= 1
    away = tmp_path / "away"
    (away / str(state).lstrip("/") / f"{levels.mark_of(run)}1.2.abcdabcd" / "7").mkdir(parents=True)
    (tmp_path / "mounts").write_text(
        f"x /y/{levels.mark_of(run)}1.2.abcdabcd.7/z t rw 0 0\nx /y/crl.another.1/z t rw 0 0\n"
    )
    sleeper = subprocess.Popen(["sleep", "30"])
    try:
        there = levels.Elsewhere(away, tmp_path / "mounts", (sleeper.pid, 2**22 + 1))
        both = levels.look(1.0, os.getpid(), run, str(state), [levels.HERE, there])
        alone = levels.look(1.0, sleeper.pid, run, str(state), [levels.HERE, there])
    finally:
        sleeper.kill()
        sleeper.wait()
    assert (both.desktops, both.mounts) == (2, 1)
    assert alone.processes == 1
    assert inject.inject("agent_kill", 0.0, run, os.getpid(), str(state)) is None
    assert inject.inject("engine_kill", 0.0, run, os.getpid(), str(state)) is None


def test_a_stopped_part_is_let_go_again(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)", "--name=ranks/0"])
    try:
        while b"--name=ranks/0" not in Path(f"/proc/{sleeper.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # within exec it is empty for a moment
        hit = inject.inject("rank_stop", 0.0, tmp_path, os.getpid(), str(tmp_path))
        assert hit is not None
        assert hit.undo is not None
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        hit.undo()
        _, status = os.waitpid(sleeper.pid, os.WCONTINUED)
        assert os.WIFCONTINUED(status)
    finally:
        sleeper.send_signal(signal.SIGKILL)
        sleeper.wait(timeout=10)


def test_a_watch_gives_each_line_once(tmp_path: Path) -> None:
    watch = LogWatch(tmp_path)
    assert watch.new() == []
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "replay.jsonl"
    text = '{"ts": "1", "t": 1.0, "level": "info", "event": "a", "actor": "replay"}\n'
    file.write_text(text)
    assert [found["event"] for found in watch.new()] == ["a"]
    assert watch.new() == []
    with file.open("a") as more:
        more.write(text.replace('"a"', '"b"') + '{"torn')
    assert [found["event"] for found in watch.new()] == ["b"]
    watch.close()
