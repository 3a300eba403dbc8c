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
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from tests.actors.desktop.offices import Guest


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


@pytest.fixture
async def guest(sandbox: SandboxProvider) -> AsyncIterator[Guest]:
    desktop = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=30)
    yield Guest(sandbox, desktop, link)
    await link.close()
