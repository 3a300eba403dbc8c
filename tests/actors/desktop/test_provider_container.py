"""Containers of podman on this machine: what a sandbox promises, and what a container program leaves when killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.desktop.config import ContainerConfig
from actors.desktop.faults import FaultCause
from actors.desktop.link import GuestLink
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.container import LABEL, ContainerProvider
from actors.errors import DesktopFault
from runtime.errors import ConfigError
from tests.actors.desktop.test_provider_sandbox import (
    ENDS_S,
    file_text,
    run,
    test_a_cancelled_boot_leaves_nothing,  # noqa: F401 - played here on containers
    test_a_destroyed_desktop_leaves_nothing,  # noqa: F401
    test_a_frozen_desktop_holds_still,  # noqa: F401
    test_a_killed_agent_is_the_guests_doing,  # noqa: F401
    test_disk_is_limited,  # noqa: F401
    test_memory_is_limited_and_the_guest_is_to_blame,  # noqa: F401
    test_only_the_pinned_host_key_is_accepted,  # noqa: F401
    test_processes_are_limited,  # noqa: F401
    test_what_a_guest_exhausts_does_not_end_who_tells_how_it_ended,  # noqa: F401
    text_of,
)

RUNTIME = "runc" if shutil.which("runc") else ""
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(
        not shutil.which("podman") or os.geteuid() != 0, reason="make containers installs podman; it needs root"
    ),
]


@pytest.fixture
async def sandbox(state_dir: str) -> AsyncIterator[ContainerProvider]:
    """A provider that leaves nothing behind, not in podman's own list either."""
    provider = await open_provider(ContainerConfig(state_dir=state_dir, runtime=RUNTIME), "test")
    assert isinstance(provider, ContainerProvider)
    yield provider
    await provider.close()
    assert listed(state_dir) == []


def listed(state_dir: str) -> list[str]:
    done = subprocess.run(
        ["podman", "ps", "--all", "--quiet", "--filter", f"label={LABEL}={state_dir}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


async def test_a_container_sees_its_own_and_nothing_of_the_host(sandbox: ContainerProvider, tmp_path: Path):
    one, two = await asyncio.gather(sandbox.boot(DesktopSpec()), sandbox.boot(DesktopSpec()))
    assert one.outside is not None
    assert two.outside is not None
    for space in ("net", "pid", "ipc", "mnt", "uts"):
        links = {os.readlink(f"/proc/{pid}/ns/{space}") for pid in ("self", one.outside.init_pid, two.outside.init_pid)}
        assert len(links) == 3, space
    status = file_text(f"/proc/{one.outside.init_pid}/status")
    assert f"Uid:\t{one.outside.uid}\t" in status
    assert 0 != one.outside.uid != two.outside.uid
    for line in ("CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    devices = file_text(f"/proc/{one.outside.init_pid}/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    link = await GuestLink.open(one, timeout_s=20)
    script = f"""id -un > out
        (ls {tmp_path} || ls /root || cat /etc/shadow || cat /etc/ssh/ssh_host* || ls /run/door/go.x) >> out 2>/dev/null
        (echo x > /usr/x || echo x > /opt/computerrl/guest/x || echo x > /etc/x || echo x > /run/door/x) 2>/dev/null ||
            echo read-only >> out
        (echo x > /run/door/go) 2>/dev/null || echo no-go >> out
        python3 -c 'import socket; socket.socket(40)' 2>/dev/null || echo no-vsock >> out
        ls /run/user/1000 >/dev/null && echo own >> out"""
    await run(link, script)
    assert (await text_of(sandbox, one, "out")).split() == ["agent", "read-only", "no-go", "no-vsock", "own"]
    await link.close()


async def test_containers_boot_whatever_the_umask_is(state_dir: str):
    before = os.umask(0o077)
    try:
        provider = await open_provider(ContainerConfig(state_dir=state_dir, runtime=RUNTIME), "umask")
        link = await GuestLink.open(await provider.boot(DesktopSpec()), timeout_s=20)
        assert await link.call("ping", timeout_s=5.0) == "pong"
        await link.close()
        await provider.close()
    finally:
        os.umask(before)


@pytest.mark.parametrize("killed", ["client", "monitor", "container"])
async def test_whatever_is_killed_the_desktop_can_be_destroyed(sandbox: ContainerProvider, state_dir: str, killed: str):
    desktop = await sandbox.boot(DesktopSpec())
    box = sandbox._sandboxes[desktop.name]
    assert box.process is not None
    assert box.init is not None
    if killed == "client":
        os.kill(box.process.pid, signal.SIGKILL)
        box.process.wait()
    elif killed == "container":
        box.init.kill()
        await box.init.ended(ENDS_S)
    else:
        killing = await asyncio.create_subprocess_exec("pkill", "-KILL", "-f", f"conmon.* {desktop.name} ")
        assert await killing.wait() == 0
    if killed != "monitor":
        assert not (await sandbox.probe(desktop)).alive
    await sandbox.destroy(desktop)
    assert listed(state_dir) == []
    assert not (await sandbox.probe(desktop)).alive


async def test_orphans_are_buried(sandbox: ContainerProvider):
    desktop = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    await run(
        link, "for i in 1 2 3 4; do (sleep 0 &); done; sleep 1; cat /proc/[0-9]*/status | grep -c 'State:.Z' >left"
    )
    assert await text_of(sandbox, desktop, "left") == "0\n"
    await link.close()


async def test_a_container_ends_with_its_owner(sandbox: ContainerProvider):
    desktop = await sandbox.boot(DesktopSpec())
    box = sandbox._sandboxes[desktop.name]
    assert box.init is not None
    os.close(box.lifeline)
    box.lifeline = -1
    await box.init.ended(ENDS_S)
    await sandbox.destroy(desktop)


async def test_what_a_dead_owner_left_is_removed_by_the_next(state_dir: str, tmp_path: Path):
    program = tmp_path / "owner.py"
    program.write_text(
        f"""import asyncio, os, signal
from actors.desktop.config import ContainerConfig
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import DesktopSpec

async def main():
    provider = await open_provider(ContainerConfig(state_dir={state_dir!r}, runtime={RUNTIME!r}), "owner")
    desktop = await provider.boot(DesktopSpec())
    os.system(f"pkill -KILL -f 'conmon.* {{desktop.name}} '")  # nobody is left to bury the container
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    )
    ended = await asyncio.create_subprocess_exec(".venv/bin/python", str(program))
    assert await ended.wait() == -signal.SIGKILL
    provider = await open_provider(ContainerConfig(state_dir=state_dir, runtime=RUNTIME), "next")
    assert listed(state_dir) == []
    await provider.close()
    assert not [name for name in os.listdir(state_dir) if "owner" in name]


async def test_what_can_not_be_made_is_said(sandbox: ContainerProvider, state_dir: str, tmp_path: Path, monkeypatch):
    with pytest.raises(ConfigError, match=r"desktops\.provider\.image 'none:7': podman has no such image here"):
        await open_provider(ContainerConfig(state_dir=state_dir, image="none:7"), "other")
    program = tmp_path / "podman"
    program.write_text("#!/bin/sh\necho the kernel says no >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DesktopFault, match="the kernel says no") as refused:
        await sandbox.boot(DesktopSpec())
    assert refused.value.cause == FaultCause.SANDBOX_REFUSED
    assert sandbox._sandboxes == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "podman").unlink()
    with pytest.raises(ConfigError, match="missing programs: podman"):
        await open_provider(ContainerConfig(state_dir=state_dir), "other")
