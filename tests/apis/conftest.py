"""Real desktops to play tasks on, and a store of task files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig
from actors.desktop.pool.pool import DesktopPool
from apis.tasksets import store

pytest.register_assert_rewrite(*(f"tests.apis.{name}" for name in ("moves", "plays")))


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of task files of a test's own."""
    monkeypatch.setenv(store.PLACE, str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
async def pool(tmp_path: Path, state_dir: str) -> AsyncIterator[DesktopPool]:
    """A pool of a test's own, closed at its end. It keeps no spare, for most tests play once."""
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0))
    made = await DesktopPool.open(desktops, tmp_path / "plays")
    yield made
    await made.close()
