"""Engines to measure on.

Invariant: an engine runs in a process and a folder of its own; both are gone when the block ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from actors.errors import SamplerError
from actors.sampler.config import EmbeddedConfig, SamplersConfig, SamplerSettings, SglangConfig
from actors.sampler.engine import StartedEngine
from actors.sampler.messages import Weights
from actors.sampler.process import interpreter
from runtime.clock import RealClock
from runtime.errors import ConfigError
from runtime.messaging.message import Version

SGLANG = "sglang"


def lacks(kind: str) -> str:
    """What this machine lacks to start an engine of `kind`; "" where it lacks nothing."""
    if kind != SGLANG:
        return ""
    try:
        interpreter("")
    except ConfigError as error:
        return str(error)
    return ""


def settings_of(kind: str, model: Path, **samplers: Any) -> SamplerSettings:
    """Settings of an engine of `kind` that begins with the weights in folder `model`; `samplers` are keys of it."""
    engine: Any = SglangConfig() if kind == SGLANG else EmbeddedConfig()
    return SamplerSettings(samplers=SamplersConfig(engine=engine, **samplers), model=str(model), replay="")


@asynccontextmanager
async def started(kind: str, settings: SamplerSettings) -> AsyncIterator[StartedEngine]:
    """An engine that serves `settings.model` as version 0.0. Raises ConfigError where it does not start."""
    with tempfile.TemporaryDirectory(prefix="crl-bench-") as folder:
        engine = StartedEngine(settings, f"bench-{kind}", Path(folder), RealClock())
        try:
            try:
                await engine.up(Weights(version=Version(lineage=0, step=0), location=settings.model))
            except SamplerError as error:
                raise ConfigError(f"{kind} does not start: {error}") from None
            yield engine
        finally:
            await engine.down()
