"""Real desktops for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # modules that tests share

from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox.provider import SandboxProvider


@pytest.fixture
def state_dir() -> Iterator[str]:
    """A short path of this test's own, where other users may pass through."""
    folder = tempfile.mkdtemp(prefix="crl-t", dir="/run" if os.access("/run", os.W_OK) else None)
    os.chmod(folder, 0o755)
    yield folder
    assert [path.name for path in Path(folder).iterdir() if path.name != ".lock"] == []
    shutil.rmtree(folder)


@pytest.fixture
async def sandbox(state_dir: str) -> AsyncIterator[SandboxProvider]:
    """A provider that leaves nothing behind."""
    provider = await SandboxProvider.start(SandboxConfig(state_dir=state_dir), "test")
    yield provider
    await provider.close()
