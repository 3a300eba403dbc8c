"""The pure parts of a soak: when what is broken, whether the log names it, whether levels come back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.database.ledger_file import connect
from tests.soak import soak as module
from tests.soak.faults import KINDS, inject, schedule
from tests.soak.log import LoggedState, judged
from tests.soak.soak import Soak, SoakOptions
from tests.soak.verdict import Broken, Level, Return, audited, bad, returns, windows


@given(st.integers(0, 2**32), st.floats(60, 4000), st.floats(2, 60))
def test_a_schedule_comes_from_its_seed_and_spares_the_restart_budgets(
    seed: int, lasts_s: float, every_s: float
) -> None:
    plan = schedule(seed, lasts_s, every_s)
    assert plan == schedule(seed, lasts_s, every_s)
    assert [planned.at_s for planned in plan] == sorted(planned.at_s for planned in plan)
    assert all(0 < planned.at_s <= lasts_s and 0 <= planned.pick < 1 for planned in plan)
    last: dict[str, float] = {}
    for planned in plan:
        kind = KINDS[planned.kind]
        assert planned.at_s - last.get(kind.part, float("-inf")) >= kind.rest_s
        last[kind.part] = planned.at_s


@given(st.floats(1, 600))
def test_levels_are_taken_before_the_first_fault_and_after_the_last(minutes: float) -> None:
    first, breaking, last = windows(minutes)
    assert 0 < first[0] < first[1] <= breaking[0] < breaking[1] < last[0] < last[1] == 60 * minutes
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


def level(at_s: float, **more: int) -> Level:
    values = {
        "processes": 4, "zombies": 0, "guest_processes": 40, "descriptors": 200, "rss_bytes": 1 << 30, "desktops": 5,
        "mounts": 5, "cgroups": 20, "folders": 12, "run_bytes": 1,
    }  # fmt: skip
    return Level(at_s=at_s, **{**values, **more})


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_leak_is_what_stays(peak: int, stays: int) -> None:
    seen = [level(float(t)) for t in range(60, 121, 5)]
    seen += [level(float(t), descriptors=200 + peak) for t in range(125, 500, 5)]
    seen += [level(float(t), descriptors=200 + stays) for t in range(540, 601, 5)]
    found = {one.name: one for one in returns(seen, (60.0, 120.0), (540.0, 600.0))}
    assert found["descriptors"].back == (200 + stays <= 200 * 1.15 + 40)
    assert found["descriptors"].most == 200 + max(peak, stays)
    assert all(one.back for name, one in found.items() if name != "descriptors")
    assert not any(one.back for one in returns([level(0.5)], (0.0, 1.0), (2.0, 3.0)))


def broken(state: LoggedState) -> Broken:
    return Broken(at_s=1.0, kind="x_kill", victim="", state=str(state), sign="", after_s=1.0, deadline_s=9.0)


def test_a_verdict_is_good_only_when_everything_is() -> None:
    fine = [broken(LoggedState.NAMED), broken(LoggedState.MOOT)]
    back = [Return(name="mounts", before=3.0, after=3.0, most=9.0, allowed=5.0)]
    gone = [Return(name="mounts", before=3.0, after=6.0, most=9.0, allowed=5.0)]
    assert bad(fine, back, {"episode_faulted": 3}, [], wrong="", rl_steps=1) == []
    assert bad(fine[1:], back, {}, [], wrong="", rl_steps=1) == ["no fault was injected"]
    unseen = [Return(name="guest_processes", before=0.0, after=0.0, most=0.0, allowed=30.0)]
    assert bad(fine, unseen, {}, [], wrong="", rl_steps=1) == ["guest_processes: none was seen before the first fault"]
    worst = [*fine, broken(LoggedState.UNNAMED)]
    assert len(bad(worst, gone, {"task_outlives": 1}, ["process 7"], wrong="counts differ", rl_steps=0)) == 6


def test_a_ledger_whose_counts_differ_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    assert audited(file) == "there is no ledger"
    connection, _ = connect(file)
    connection.execute("INSERT INTO counters VALUES ('episodes:demo', 2)")
    connection.close()
    assert "episodes:demo" in audited(file)


def test_a_stopped_part_is_let_go_again(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)", "--name=ranks/0"])
    try:
        while b"--name=ranks/0" not in Path(f"/proc/{sleeper.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # within exec it is empty for a moment
        hit = inject("rank_stop", 0.0, tmp_path, os.getpid(), str(tmp_path))
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


RUN = """#!/usr/bin/python3
import pathlib, signal, sys
for number in SIGNALS:
    signal.signal(number, signal.SIG_IGN)
pathlib.Path("up").touch()
signal.pause()
"""


async def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch, ignored: str, signals: int) -> list[str]:
    """What a soak says whose run ignores some signals and that gets some itself while it waits for RL."""
    program = folder / "run"
    program.write_text(RUN.replace("SIGNALS", ignored))
    program.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "executable", str(program))
    said: list[str] = []
    place = ["desktops.provider.type=sandbox", f"desktops.provider.state_dir={folder}"]
    soak = Soak(SoakOptions(runs=folder / "runs", overrides=place), said.append)
    going = asyncio.create_task(soak.go())
    async with asyncio.timeout(20):
        for _ in range(2000):
            if (folder / "up").exists():
                break
            await asyncio.sleep(0.01)
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
        assert await going is None
    assert soak.process is not None
    assert soak.process.returncode is not None
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="a soak needs root")
@pytest.mark.parametrize(
    ("ignored", "signals", "ended_by"),
    [("()", 1, []), ("(2, 15)", 1, ["SIGINT", "SIGTERM"]), ("(2, 15)", 2, [])],
)
async def test_an_interrupted_soak_ends_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str, signals: int, ended_by: list[str]
):
    in_vain = literal_eval(ignored) if signals == 1 else ()
    ways = tuple((number, 0.3 if number in in_vain else 30.0) for number, _ in module.STOP_NOW)
    monkeypatch.setattr(module, "STOP_NOW", ways)
    began = time.monotonic()
    said = await interrupted(tmp_path, monkeypatch, ignored, signals)
    assert time.monotonic() - began < 15
    assert "interrupted: stopping the run (again: kill it)" in said
    assert [line.rsplit(" ", 1)[1] for line in said if "did not end" in line] == ended_by
