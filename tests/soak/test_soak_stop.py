"""Ctrl-C on a soak ends its run first: promptly where it obeys, by force where it does not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from ast import literal_eval
from pathlib import Path

import pytest

from tests.soak import soak as module
from tests.soak.soak import Soak, SoakOptions

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
    [("()", 1, []), ("(2,)", 1, ["SIGINT"]), ("(2, 15)", 1, ["SIGINT", "SIGTERM"]), ("(2, 15)", 2, [])],
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


def test_patience_with_an_interrupted_run_is_short():
    assert sum(patience_s for _, patience_s in module.STOP_NOW) <= 25
    assert module.STOP_NOW[-1][0] is module.STOP[-1][0] is signal.SIGKILL
