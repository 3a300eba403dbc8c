"""Sandboxes on this machine: what is kept apart, what is limited, and that nothing stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import asyncssh
import msgspec
import pytest

from actors.desktop.faults import BrokenBy, FaultCause, LinkState, cause_of
from actors.desktop.files.read_home import ReadLimits
from actors.desktop.link import GuestLink, LinkDown, evidence_of
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers.sandbox import cgroups, command
from actors.desktop.providers.sandbox import provider as provider_module
from actors.desktop.providers.sandbox.owners import UserLease
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.sandbox.sandbox import Sandbox, Watched
from actors.errors import DesktopFault
from apis.guest.session.members import descendants, kill, only
from apis.tasks.verify.verify import WantedFile
from tests.heard import until

ROOT = os.geteuid() == 0


def groups_of(desktop: Desktop) -> list[str]:
    assert desktop.outside is not None
    return [folder for folder in desktop.outside.cgroups.values() if Path(folder).exists()]


def mounts_of(desktop: Desktop) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"/{desktop.name}" in line]


def file_text(path: str) -> str:
    return Path(path).read_text()


def fake_bwrap(folder: Path, script: str) -> None:
    """A program that every user may run in place of bubblewrap."""
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    for parent in (folder, *list(folder.parents)[:-2]):
        parent.chmod(0o755)


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], start_new_session=True)


async def test_a_removal_that_failed_once_is_tried_again_without_what_is_buried(tmp_path: Path) -> None:
    provider = object.__new__(SandboxProvider)
    provider._leaving = {}
    box = Sandbox("crl.x.1", tmp_path / "1", UserLease(0, None))
    provider._sandboxes = {box.name: box}
    box.process = sleeping()  # as far as a boot had come
    box.outer = Watched(box.process.pid)
    box.folder.mkdir()
    remove, fails = box.remove, [TimeoutError("a slow disk")]

    def once() -> None:
        if fails:
            raise fails.pop()
        remove()

    box.remove = once  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        await provider._discard(box)
    await provider._discard(box)
    assert not box.folder.exists()
    assert not provider._sandboxes


async def losing(link: GuestLink, script: str) -> LinkDown:
    """Run a script that ends the link."""

    async def lose() -> None:
        await link.call("launch", argv=["sh", "-c", script], timeout_s=30)
        await link.call("settle", timeout_ms=5000, quiet_ms=4000, timeout_s=10)

    with pytest.raises(LinkDown) as down:
        await lose()
    return down.value


async def run(link: GuestLink, script: str, marker: str = "done") -> None:
    """Run a shell script in the guest and wait until it has ended."""
    await link.call("launch", argv=["sh", "-c", f"{script}\ntouch {marker}"], timeout_s=30)
    for _ in range(400):
        if not await link.call("running", timeout_s=30):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the script goes on")


async def text_of(provider: SandboxProvider, desktop: Desktop, path: str) -> str:
    (seen,) = await provider.read_home(desktop, [WantedFile(path)], ReadLimits())
    assert seen.data is not None, seen
    return seen.data.decode()


async def test_a_desktop_has_its_own_everything(sandbox: SandboxProvider):
    one, two = await asyncio.gather(sandbox.boot(DesktopSpec()), sandbox.boot(DesktopSpec()))
    link = await GuestLink.open(one, timeout_s=20)
    assert one.outside is not None
    assert two.outside is not None
    assert one.host_key != two.host_key
    for space in ("net", "pid", "ipc", "mnt", "user", "uts"):
        links = {os.readlink(f"/proc/{pid}/ns/{space}") for pid in ("self", one.outside.init_pid, two.outside.init_pid)}
        assert len(links) == 3, space
    status = file_text(f"/proc/{one.outside.init_pid}/status")
    assert f"Uid:\t{one.outside.uid}\t" in status
    assert "CapEff:\t0000000000000000" in status
    devices = file_text(f"/proc/{one.outside.init_pid}/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    if ROOT:
        assert one.outside.uid != two.outside.uid
        assert one.outside.uid != 0
    script = f"""id -u > out
        (ls {Path(one.outside.home).parent} || ls /root || cat /etc/shadow || cat /etc/ssh/ssh_host*) >> out 2>/dev/null
        (echo x > /usr/x || echo x > /opt/computerrl/guest/x || echo x > /etc/x) 2>/dev/null || echo read-only >> out
        cat /proc/net/dev | tail -n +3 | cut -d: -f1 >> out
        ls /run/user/1000 >/dev/null && echo own >> out"""
    await run(link, script)
    said = (await text_of(sandbox, one, "out")).split()
    assert said == ["1000", "read-only", "lo", "own"]
    await link.close()


async def test_only_the_pinned_host_key_is_accepted(sandbox: SandboxProvider):
    desktop = await sandbox.boot(DesktopSpec())
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key()
    with pytest.raises(LinkDown, match="Host key is not trusted") as refused:
        await GuestLink.open(msgspec.structs.replace(desktop, host_key=other), timeout_s=20)
    assert refused.value.state is LinkState.LOST
    stranger = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    with pytest.raises(LinkDown, match="Permission denied"):
        await GuestLink.open(msgspec.structs.replace(desktop, client_key=stranger), timeout_s=20)
    assert str(stranger) not in repr(desktop)


async def test_a_destroyed_desktop_leaves_nothing(sandbox: SandboxProvider):
    desktop = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    assert desktop.outside is not None
    init = os.pidfd_open(desktop.outside.init_pid)
    assert len(descendants(desktop.outside.init_pid)) >= 6
    await sandbox.freeze(desktop)  # frozen processes must die as well
    await link.close()
    await sandbox.destroy(desktop)
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(init, 0)
    os.close(init)
    assert groups_of(desktop) == []
    assert mounts_of(desktop) == []
    assert not Path(desktop.address.socket).parent.exists()
    assert not (await sandbox.probe(desktop)).alive
    await sandbox.destroy(desktop)


@pytest.mark.parametrize("delay_s", [0.0, 0.004, 0.02])
async def test_a_cancelled_boot_leaves_nothing(sandbox: SandboxProvider, delay_s: float):
    boot = asyncio.ensure_future(sandbox.boot(DesktopSpec()))
    await asyncio.sleep(delay_s)
    boot.cancel()
    await asyncio.wait([boot])
    if boot.cancelled():
        assert sandbox._sandboxes == {}
    else:
        await sandbox.destroy(boot.result())
    assert [path for path in sandbox._folder.iterdir() if path.name.isdigit()] == []


async def test_a_refused_boot_is_a_fault_that_leaves_nothing(sandbox: SandboxProvider, tmp_path: Path, monkeypatch):
    with pytest.raises(DesktopFault) as missing:
        await sandbox.boot(DesktopSpec(home_template=str(tmp_path / "none")))
    assert missing.value.cause == FaultCause.SANDBOX_REFUSED
    fake_bwrap(tmp_path, "echo the kernel says no >&2\nexit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DesktopFault, match="the kernel says no"):
        await sandbox.boot(DesktopSpec())
    assert sandbox._sandboxes == {}


@pytest.mark.parametrize("way", ["killed", "cancelled"])
async def test_one_that_is_ended_as_it_starts_leaves_no_child_that_waits_for_it(
    sandbox: SandboxProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Bubblewrap is held where its child waits for it and would outlive it: between its clone and its first word."""
    held = f"{shutil.which('bwrap')} --info-fd 8 --userns-block-fd 7"
    fake_bwrap(tmp_path, f'exec 7<>{tmp_path}/never 8>/dev/null {held} "$@"')
    os.mkfifo(tmp_path / "never")
    (tmp_path / "never").chmod(0o666)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    boot = asyncio.create_task(sandbox.boot(DesktopSpec()))
    await until(lambda: any(box.process for box in sandbox._sandboxes.values()))
    (box,) = sandbox._sandboxes.values()
    assert box.process is not None
    outer = box.process.pid
    await until(lambda: len(descendants(outer)) == 2)
    (child,) = descendants(outer).keys() - {outer}
    if way == "killed":
        os.kill(outer, signal.SIGKILL)
    else:
        boot.cancel()
    (ended,) = await asyncio.gather(boot, return_exceptions=True)
    assert isinstance(ended, DesktopFault if way == "killed" else asyncio.CancelledError)
    assert sandbox._sandboxes == {}
    left = only([child])
    kill(left, ENDS_S)
    assert not left, "it is gone before its user is another's"


@pytest.mark.skipif(not ROOT, reason="only root can mount a limited disk")
async def test_disk_is_limited(sandbox: SandboxProvider):
    desktop = await sandbox.boot(DesktopSpec(disk_bytes=24 << 20))
    link = await GuestLink.open(desktop, timeout_s=20)
    assert desktop.warnings == ()
    await run(link, "head -c 100000000 /dev/zero > big; wc -c < big > size || true; rm big; wc -c < size > done.txt")
    (seen,) = await sandbox.read_home(desktop, [WantedFile("size")], ReadLimits())
    assert seen.data is not None
    assert int(seen.data or b"0") < 24 << 20
    await link.close()


@pytest.mark.skipif(not ROOT, reason="only root can limit memory here")
async def test_memory_is_limited_and_the_guest_is_to_blame(sandbox: SandboxProvider):
    desktop = await sandbox.boot(DesktopSpec(memory_bytes=200 << 20))
    link = await GuestLink.open(desktop, timeout_s=20)
    before = await sandbox.probe(desktop)
    assert (before.oom_kills, before.alive) == (0, True)
    assert before.cpu_s > 0
    await run(link, "python3 -c 'x = bytearray(400 << 20)'")
    health = await sandbox.probe(desktop)
    assert health.oom_kills >= 1
    assert health.limit_hits >= 1
    assert cause_of(evidence_of(health, LinkDown(LinkState.LOST, ""), acted=True)) is BrokenBy.MEMORY_LIMIT
    await link.close()


@pytest.mark.skipif(not ROOT, reason="only root can limit memory here")
async def test_what_a_guest_exhausts_does_not_end_who_tells_how_it_ended(sandbox: SandboxProvider):
    """All memory goes into files, which no kill gives back: in the end every process of the desktop is killed."""
    desktop = await sandbox.boot(DesktopSpec(memory_bytes=150 << 20, disk_bytes=512 << 20))
    assert desktop.outside is not None
    link = await GuestLink.open(desktop, timeout_s=20)
    outer = sandbox._sandboxes[desktop.name].process
    assert outer is not None
    assert outer.pid not in cgroups.members(desktop.outside.cgroups)
    lost = await losing(
        link, "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'while :; do cat /dev/zero >> /tmp/$$; done' & done"
    )
    health = await sandbox.probe(desktop)
    assert health.exit_signal == 0
    assert cause_of(evidence_of(health, lost, acted=True)) is BrokenBy.MEMORY_LIMIT
    await link.close()


async def test_without_chromium_no_program_makes_namespaces(sandbox: SandboxProvider):
    sandbox._user_namespaces = False
    sandbox._filter = command.filter_program(user_namespaces=False)
    desktop = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    await run(
        link, "unshare --user true && touch made; python3 -c 'import threading; threading.Thread().start()' && touch ok"
    )
    made, ok = await sandbox.read_home(desktop, [WantedFile("made"), WantedFile("ok")], ReadLimits())
    assert (made.data, ok.data) == (None, b"")
    await link.close()


async def test_processes_are_limited(sandbox: SandboxProvider):
    desktop = await sandbox.boot(DesktopSpec(processes=60))
    link = await GuestLink.open(desktop, timeout_s=20)
    assert desktop.outside is not None
    if "pids" not in desktop.outside.cgroups:
        await link.close()
        pytest.skip("no cgroup counts processes here")
    await run(link, "for i in $(seq 100); do sleep 5 & done 2>/dev/null")
    assert len(descendants(desktop.outside.init_pid)) <= 60
    await link.close()


@pytest.mark.parametrize("way", ["own", "version 2", "signals"])
async def test_a_frozen_desktop_holds_still(sandbox: SandboxProvider, monkeypatch, way: str):
    if way == "version 2":
        there = cgroups.mounted()
        if cgroups.UNIFIED not in there:
            pytest.skip("no version 2 hierarchy is mounted")
        monkeypatch.setattr(cgroups, "mounted", lambda: {cgroups.UNIFIED: there[cgroups.UNIFIED]})
    elif way == "signals":
        monkeypatch.setattr(cgroups, "mounted", dict)
    desktop = await sandbox.boot(DesktopSpec())
    assert ("no freezer; stop signals are used" in desktop.warnings) == (way == "signals")
    link = await GuestLink.open(desktop, timeout_s=20)
    await link.call("launch", argv=["sh", "-c", "while :; do echo x >> grows; done"], timeout_s=30)
    async with asyncio.timeout(60):
        while not (await sandbox.read_home(desktop, [WantedFile("grows")], ReadLimits()))[0].data:  # noqa: ASYNC110 - a guest's
            await asyncio.sleep(0.02)
    await sandbox.freeze(desktop)
    first = await text_of(sandbox, desktop, "grows")
    await asyncio.sleep(0.1)
    assert first == await text_of(sandbox, desktop, "grows")
    assert first.startswith("x\n")
    await link.close()


async def test_who_ended_the_desktop(sandbox: SandboxProvider):
    by_host = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(by_host, timeout_s=20)
    outer = sandbox._sandboxes[by_host.name].process
    assert outer is not None
    os.kill(outer.pid, signal.SIGKILL)
    with pytest.raises(LinkDown) as down:
        await link.call("settle", timeout_ms=5000, quiet_ms=4000, timeout_s=10)
    assert cause_of(evidence_of(await sandbox.probe(by_host), down.value, acted=True)) is FaultCause.SANDBOX_KILLED
    await link.close()

    by_guest = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(by_guest, timeout_s=20)
    lost = await losing(link, "kill -9 -1")
    box = sandbox._sandboxes[by_guest.name]
    assert box.init is not None
    await box.init.ended(5)
    health = await sandbox.probe(by_guest)
    assert not health.alive
    assert cause_of(evidence_of(health, lost, acted=True)) is BrokenBy.SESSION_ENDED
    assert cause_of(evidence_of(health, lost, acted=False)) is FaultCause.BOOT_FAILED
    await link.close()


async def test_a_killed_agent_is_the_guests_doing(sandbox: SandboxProvider):
    desktop = await sandbox.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    lost = await losing(link, "kill -9 $PPID")
    assert lost.state is LinkState.LOST
    seen = evidence_of(await sandbox.probe(desktop), lost, acted=True)
    assert (seen.alive, seen.exit_signal, seen.oom_kills, seen.limit_hits, seen.processes_refused) == (True, 0, 0, 0, 0)
    assert cause_of(seen) is BrokenBy.LINK_CLOSED
    await link.close()


ENDS_S = 10.0
write = os.write


@pytest.mark.parametrize("when", ["before it lets go", "as it lets go", "while it serves"])
async def test_a_sandbox_ends_with_its_lifeline(sandbox: SandboxProvider, monkeypatch, when: str) -> None:
    if when == "before it lets go":  # bwrap gets its byte, the session never gets its own

        def half(fd: int, data: bytes) -> int:
            return write(fd, data[:1] if data == b"12" else data)

        monkeypatch.setattr(provider_module.os, "write", half)
    desktop = await sandbox.boot(DesktopSpec())
    box = sandbox._sandboxes[desktop.name]
    assert box.init is not None
    assert box.outer is not None
    if when == "while it serves":
        link = await GuestLink.open(desktop, timeout_s=30.0)
        assert await link.call("ping", timeout_s=5.0) == "pong"
        await link.close()
    os.close(box.lifeline)
    box.lifeline = -1
    await box.init.ended(ENDS_S)
    await box.outer.ended(ENDS_S)
    assert not (await sandbox.probe(desktop)).alive
    await sandbox.destroy(desktop)
