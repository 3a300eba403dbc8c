"""A provider's start beside others that end, and one that is broken off."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox import leftovers
from actors.desktop.providers.sandbox.provider import SandboxProvider


def test_an_owner_that_ends_while_others_reap_is_no_error(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(state_dir) / "crl.other.1.2.abcdabcd"
    folder.mkdir()

    def dies_now(name: str) -> bool:
        if name != folder.name:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(leftovers, "_dead", dies_now)
    assert leftovers.reap(state_dir).folders == 0


async def test_a_start_that_is_cancelled_leaves_nothing(state_dir: str) -> None:
    for delay_s in (0.0, 0.005, 0.02):
        start = asyncio.ensure_future(SandboxProvider.start(SandboxConfig(state_dir=state_dir), "cancelled"))
        await asyncio.sleep(delay_s)
        start.cancel()
        (done,) = await asyncio.gather(start, return_exceptions=True)
        if isinstance(done, SandboxProvider):  # it was faster
            await done.close()
