"""A VLC that the user started, that hangs, or that is gone: the agent goes on and says so."""

from __future__ import annotations

import pytest

from actors.cluster.checks.desk import RealDesk, opened, provider
from actors.cluster.checks.functions import missing
from actors.desktop.config import SandboxConfig
from apis.apps.check.case import tables
from apis.observation import from_guest

pytestmark = [pytest.mark.desktop, pytest.mark.skipif(bool(missing("vlc")), reason="VLC is not installed")]


async def _ended(desk: RealDesk) -> None:
    await desk.call("launch", argv=["pkill", "-KILL", "-x", "vlc"])
    for _ in range(20):
        if "VLC is not running" in await desk.tool("play"):
            return
        await desk.call("settle", timeout_ms=100)
    raise AssertionError(await desk.tool("play"))


async def _hung(desk: RealDesk) -> None:
    """Stop VLC, and wait until it is: the order is given by a program that the agent only starts."""
    await desk.call("launch", argv=["pkill", "-STOP", "-x", "vlc"])
    for _ in range(50):
        if (await desk.tool("get_playlist")).startswith("refused: VLC did not answer within "):
            return
        await desk.call("settle", timeout_ms=100)
    raise AssertionError(await desk.tool("get_playlist"))


@pytest.mark.proof
async def test_the_agent_outlives_whatever_vlc_does(state_dir: str) -> None:
    async with provider(SandboxConfig(state_dir=state_dir)) as made, opened(made, tables()["vlc"]) as desk:
        seen = from_guest(await desk.call("observe"))
        assert seen.app == "vlc"
        assert not any("Privacy" in window.title for window in seen.windows)
        await _hung(desk)
        told = await desk.call("info")  # by the question's own deadline or, on a busy machine, by the call's
        assert told.startswith(("not known: VLC ", "not known: info: VLC did not answer")), told
        assert await desk.call("ping") == "pong"
        await _ended(desk)
        assert await desk.call("info") == ""
        # as a user would start it, without the agent's help
        await desk.call("write_file", path="start.sh", data=b"exec vlc Music/two.wav")
        await desk.call("launch", argv=["sh", "start.sh"])
        await desk.call("wait_window", title="vlc", timeout_ms=25_000)
        assert "two.wav" in await desk.tool("play")
