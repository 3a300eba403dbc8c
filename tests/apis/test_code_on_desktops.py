"""VS Code as a user starts and ends it, of which the agent says so, and oracles of its tasks."""

from __future__ import annotations

from contextlib import suppress

import pytest

from actors.cluster.checks.desk import RealDesk, opened, provider
from actors.cluster.checks.functions import missing
from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import cgroups
from actors.errors import GuestRefused
from apis.apps.check.case import tables
from apis.observation import from_guest
from tests.apis.plays import Form, oracle_solves

without = pytest.mark.skipif(bool(missing("code")), reason=missing("code") or "it is here")
SERVER = b"server-main.js"
MOST_CHARS = 2800  # of a compact prompt


def _servers(desk: RealDesk) -> int:
    assert desk.desktop.outside is not None
    found = 0
    for pid in cgroups.members(desk.desktop.outside.cgroups):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/cmdline", "rb") as file:
            found += SERVER in file.read()  # one that has just ended is no server
    return found


@without
async def test_one_window_for_whoever_starts_it_and_nothing_is_left_of_it(state_dir: str) -> None:
    async with provider(SandboxConfig(state_dir=state_dir)) as made, opened(made, tables()["code"]) as desk:
        seen = from_guest(await desk.call("observe"))
        assert seen.app == "code"
        assert _servers(desk) == 1
        # as a user would in a terminal, without the agent's help
        await desk.call("write_file", path="start.sh", data=b"exec code proj/one.py Documents/base.txt")
        await desk.call("launch", argv=["sh", "start.sh"])
        await desk.call("wait_window", title="base.txt", timeout_ms=25_000)
        info = await desk.call("info")
        assert "* ~/Documents/base.txt, line 1, character 1" in info.splitlines()
        assert "  ~/proj/one.py" in info.splitlines()
        (window,) = await desk.call("windows")
        await desk.call("close", number=window.id)
        for _ in range(50):
            if not await desk.call("windows") and not _servers(desk):
                break
            await desk.call("settle", timeout_ms=200, quiet_ms=150)
        assert _servers(desk) == 0
        assert await desk.call("info") == ""
        assert "VS Code is not open" in await desk.tool("goto_file", file_path="~/proj/one.py")
        await desk.tool("launch_vscode", path="~/proj/one.py")
        await desk.call("wait_window", title="one.py", timeout_ms=25_000)


async def test_without_the_editor_its_functions_say_so(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "editor_place", lambda: None)
    async with provider(SandboxConfig(state_dir=state_dir)) as made:
        desktop = await made.boot(DesktopSpec())
        link = await GuestLink.open(desktop, timeout_s=30)
        try:
            calls = {"list_extensions": {"show_versions": False, "category": None}, "update_extensions": {}}
            calls["launch_vscode"] = {"path": "~/Documents"}
            for name, arguments in calls.items():
                with pytest.raises(GuestRefused, match="VS Code is not installed on this desktop"):
                    await link.call("tool", timeout_s=30, owner="CodeTools", name=name, arguments=arguments)
            with pytest.raises(GuestRefused, match="code: No such file"):
                await link.call("launch", timeout_s=30, argv=["code"])
        finally:
            await link.close()
            await made.destroy(desktop)


@without
@pytest.mark.parametrize(("family", "form"), [("code_text", "published"), ("code_extension", "compact")])
async def test_oracles_solve_their_tasks_by_mouse_and_keyboard(family: str, form: Form, pool: DesktopPool) -> None:
    await oracle_solves(pool, f"{family}/held-out/4", form=form, route="gui", most_steps=8, most_chars=MOST_CHARS)
