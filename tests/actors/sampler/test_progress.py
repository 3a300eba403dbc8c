"""A start is given up for silence, and not for the time that it takes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from actors.errors import EngineGone
from actors.sampler import engine
from actors.sampler.client import EngineClient
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.engine import StartedEngine
from actors.sampler.messages import Weights
from actors.sampler.progress import StartProgress
from runtime.clock import RealClock
from runtime.messaging.message import Version


def test_output_and_computation_are_progress_and_idling_is_none() -> None:
    progress = StartProgress(0.0)
    assert progress.silent_s(0, 0.1, 60.0) == 60.0  # a process that polls
    assert progress.silent_s(10, 0.1, 70.0) == 0.0
    assert progress.silent_s(10, 30.0, 100.0) == 0.0
    assert progress.silent_s(10, 30.5, 200.0) == 100.0


PROGRAM = """
import time
for _ in range(30):
    print("compiles", flush=True)
    time.sleep(0.05)
time.sleep(60)
"""


class Compiling(StartedEngine):
    """A process that says what goes on as often as asked, and never listens."""

    kind = "sglang"
    url = "http://localhost:1"

    def command(self, location: str, version: str) -> tuple[list[str], dict[str, str], list[int]]:
        return [sys.executable, "-c", PROGRAM], dict(os.environ), []


async def test_a_start_that_goes_on_is_waited_for_and_reported_and_a_silent_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_LOOK_S", 0.1)
    monkeypatch.setattr(engine, "_SAY_S", 0.3)

    async def never(self: EngineClient, token: int, timeout_s: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(EngineClient, "first_token", never)
    said: list[tuple[float, str]] = []
    settings = SamplerSettings(samplers=SamplersConfig(start_timeout_s=0.6), model="")
    one = Compiling(settings, "s", tmp_path, RealClock(), lambda *line: said.append(line))
    began = time.monotonic()
    with pytest.raises(EngineGone, match=r"no sign of life for .*: compiles"):
        await one.up(Weights(version=Version(lineage=0, step=0), location=""))
    assert time.monotonic() - began > 1.5, "it wrote for so long"
    assert said
    assert said[-1][1] == "compiles"
    await one.down()


def test_a_load_has_more_time_for_more_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(2_000_000))
    settings = SamplerSettings(samplers=SamplersConfig(load_timeout_s=5.0), model="")
    assert settings.load_limit_s(str(tmp_path)) == 5.02
    assert settings.load_limit_s("nowhere") == 5.0
