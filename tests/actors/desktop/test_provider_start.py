"""A provider's start beside others that end, and one that is broken off."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from actors.cluster.runs.doctor import check_state
from actors.desktop.config import PoolConfig, SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.pool import desktops
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox import ending
from actors.desktop.providers.sandbox.owners import owner_of
from actors.desktop.providers.sandbox.provider import SandboxProvider
from runtime.errors import ConfigError
from tests.folders import desk_folder
from tests.heard import Heard, until

pytestmark = pytest.mark.desktop


def test_an_owner_that_ends_while_others_reap_is_no_error(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(state_dir) / "crl.other.1.2.abcdabcd"
    folder.mkdir()

    def dies_now(name: str, base: Path) -> bool:
        if name != folder.name:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(ending, "_dead", dies_now)
    assert ending.reap(state_dir).folders == 0


async def test_a_start_that_is_cancelled_leaves_nothing(state_dir: str) -> None:
    for delay_s in (0.0, 0.005, 0.02):
        start = asyncio.ensure_future(SandboxProvider.start(SandboxConfig(state_dir=state_dir), "cancelled"))
        await asyncio.sleep(delay_s)
        start.cancel()
        (done,) = await asyncio.gather(start, return_exceptions=True)
        if isinstance(done, SandboxProvider):  # it was faster
            await done.close()


async def test_desktops_boot_whatever_the_umask_is_and_compile_nothing() -> None:
    before = os.umask(0o077)
    try:
        with desk_folder() as folder:
            place = Path(folder) / "new"
            provider = await SandboxProvider.start(SandboxConfig(state_dir=str(place)), "shy")
            try:
                desktop = await provider.boot(DesktopSpec())
                link = await GuestLink.open(desktop, timeout_s=30)
                assert await link.call("ping", timeout_s=30) == "pong"
                await link.close()
                assert list((provider._folder / "guest" / "__pycache__").glob("agent.*.pyc"))
            finally:
                await provider.close()
    finally:
        os.umask(before)


async def test_what_a_sandbox_said_before_it_ended_is_told() -> None:
    with desk_folder() as folder:
        provider = await SandboxProvider.start(SandboxConfig(state_dir=folder), "broken")
        heard = Heard()
        (provider._folder / "etc" / "chromium.d").rename(provider._folder / "moved")  # what it is to mount
        pool = DesktopPool(provider, DesktopSpec(), PoolConfig(warm_pool=1, longest_backoff_s=0.2), heard)
        await until(lambda: heard.of(desktops.DESKTOP_BOOT_FAILED))
        assert "Can't find source path" in heard.of(desktops.DESKTOP_BOOT_FAILED)[0]["detail"]
        (provider._folder / "moved").rename(provider._folder / "etc" / "chromium.d")
        await pool.close()


def test_a_lock_that_another_user_laid_as_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        ending.reap(str(tmp_path / "state"))
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize("length", [25, 40, 54])  # ~/.local/state/computerrl of users with short and long names
async def test_names_of_desktops_have_room_in_any_user_s_own_folder(state_dir: str, length: int) -> None:
    folder = f"{state_dir}/".ljust(length, "x")
    provider = await SandboxProvider.start(SandboxConfig(state_dir=folder), "smoke-20261126-150454-236")
    try:
        assert len(f"{provider._folder}/000000/ssh") <= 107
        assert owner_of(provider._folder.name) == provider._owner
        assert provider._folder.is_dir()
    finally:
        await provider.close()
        shutil.rmtree(folder)


async def test_a_folder_without_room_for_a_name_is_refused(state_dir: str) -> None:
    folder = f"{state_dir}/".ljust(80, "x")
    with pytest.raises(ConfigError, match=r"state_dir .* bytes too long for sockets' paths") as refused:
        await SandboxProvider.start(SandboxConfig(state_dir=folder), "t")
    check = check_state(folder)
    assert (check.fatal, check.found) == (True, str(refused.value))
    assert "state_dir: a short path of yours" in (check.mend or "")
