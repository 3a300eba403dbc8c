"""Machines of qemu: what a HOME's disk gives back, what is not believed, and (proofs) machines that boot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from fault_worlds import VM
from test_provider_faults import BOOT_S
from test_provider_osworld import leased

from actors.desktop.config import QemuConfig
from actors.desktop.files.read_home import FileSeen, ReadLimits, read_home
from actors.desktop.link import GuestLink
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.qemu import machine
from actors.desktop.providers.qemu import monitor as monitor_module
from actors.desktop.providers.qemu.monitor import Monitor
from actors.errors import DesktopFault
from apis.tasks.verify.verify import WantedFile
from apis.tasksets.commands import PASSWORD
from runtime.errors import ConfigError

T = TypeVar("T")
USER = 29_998 if os.geteuid() == 0 else os.geteuid()
TOOLS = pytest.mark.skipif(
    not all(map(shutil.which, ("mke2fs", "debugfs", "bwrap"))), reason="make vm-image installs e2fsprogs"
)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A disk with a HOME, where the tools' user may go."""
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(0o755)
    home = tmp_path / "disk" / "home"
    (home / "docs").mkdir(parents=True)
    (home / "docs" / "plum.txt").write_bytes(b"a\n\xff")
    (home / "link").symlink_to("/etc/passwd")
    (home / "shut").write_text("x")
    (tmp_path / "disk" / "run").mkdir()
    for path in (tmp_path / "disk", *(tmp_path / "disk").rglob("*")):
        os.lchown(path, USER, -1)
    return tmp_path / "disk"


def debugfs(*words: str, orders: str = "") -> str:
    done = subprocess.run(["debugfs", *words], input=orders.encode(), capture_output=True, check=True)
    return done.stdout.decode()


@TOOLS
async def test_a_home_comes_back_from_its_disk_as_it_was(disk: Path) -> None:
    docs = disk / "home" / "docs"
    (docs / "deep").mkdir()
    os.link(docs / "plum.txt", docs / "deep" / "twin\n")
    os.mkfifo(docs / "pipe")
    (docs / "deep").chmod(0o500)
    for path in (docs / "deep", docs / "pipe"):
        os.chown(path, USER, -1)
    machine.make_home(disk, USER, 32 << 20)
    assert not (disk / "home").exists()
    debugfs("-w", "-R", "set_inode_field /home/shut mode 0100000", str(disk / machine.HOME))
    for _ in range(2):  # it is looked at more than once
        place = machine.dump(disk, USER)
        wanted = [WantedFile(path) for path in ("docs/plum.txt", "docs", "link", "shut", "none")]
        seen = await read_home(str(place), USER, wanted, ReadLimits())
        assert [file.refusal for file in seen] == [None, None, "link", "forbidden", "missing"]
        assert seen[0] == FileSeen(path="docs/plum.txt", data=b"a\n\xff")
        assert (place / "docs" / "deep" / "twin\n").samefile(place / "docs" / "plum.txt")
        assert (place / "docs" / "pipe").is_fifo()
        assert (place / "docs" / "deep").stat().st_mode & 0o777 == 0o500
    assert " 1000 " in debugfs("-R", "ls -l /home", str(disk / machine.HOME)), "the guest knows its files as its own"


@TOOLS
@pytest.mark.parametrize("damage", ["all", "superblock", "loop"])
async def test_a_file_system_that_the_guest_has_damaged_is_no_fault(disk: Path, damage: str) -> None:
    machine.make_home(disk, USER, 32 << 20)
    image = disk / machine.HOME
    if damage == "loop":  # a folder that has itself in it
        orders = "cd /home/docs\nlink /home/docs again\n"
        debugfs("-w", "-f", "-", str(image), orders=orders)
    else:
        with image.open("r+b") as file:
            file.seek(0 if damage == "all" else 1024)
            file.write(os.urandom((32 << 20) if damage == "all" else 1024))
    place = await asyncio.to_thread(machine.dump, disk, USER)
    (seen,) = await read_home(str(place), USER, [WantedFile("docs/plum.txt")], ReadLimits())
    assert seen.data == b"a\n\xff" if damage == "loop" else seen.refusal == "missing"


def test_an_image_that_lacks_a_part_is_named_with_what_makes_it(tmp_path: Path) -> None:
    (tmp_path / "disk.qcow2").touch()
    with pytest.raises(ConfigError, match=r"provider\.image: .*vmlinuz is missing: `make vm-image`"):
        machine.image_of(QemuConfig(image=str(tmp_path)))


def test_kvm_is_taken_where_a_linux_boots_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = machine.Image(tmp_path, tmp_path, tmp_path, tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: True)
    for boots, wanted, kind in ((True, "auto", "kvm"), (False, "auto", "tcg"), (True, "tcg", "tcg")):
        monkeypatch.setattr(machine, "boots_with", lambda *_, boots=boots: boots)
        config = msgspec.convert({"type": "qemu", "accelerator": wanted}, QemuConfig)
        assert machine.accelerator(config, image) == kind
    monkeypatch.setattr(machine, "boots_with", lambda *_: False)
    with pytest.raises(ConfigError, match=r"provider\.accelerator is kvm"):
        machine.accelerator(QemuConfig(accelerator="kvm"), image)


async def asked(tmp_path: Path, answer: bytes, within_s: float = 5.0) -> object:
    """What a monitor makes of an answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await reader.readline()
            writer.write(answer)
            await reader.read()
        served.set()

    served = asyncio.Event()

    async with await asyncio.start_unix_server(serve, tmp_path / "qmp"):
        monitor = Monitor(tmp_path / "qmp", "qemu")
        await monitor.connect()
        try:
            return await monitor.order("query-status", within_s=within_s)
        finally:
            monitor.close()
            await asyncio.wait_for(served.wait(), 10)


async def test_events_are_passed_over_and_answers_are_not_believed(tmp_path: Path) -> None:
    assert await asked(tmp_path, b'{"event": "STOP"}\n{"return": {"status": "paused"}}\n') == {"status": "paused"}
    wrong = (
        b"",
        b"no json\n",
        b'{"error": {"class": "GenericError"}}\n',
        b"[]\n",
        b"x" * (5 << 20),
        b'{"event": "x"}\n',
    )
    for answer in wrong:
        with pytest.raises(DesktopFault, match="qemu query-status"):
            await asked(tmp_path, answer, 0.5)
    with pytest.raises(DesktopFault, match="forwards no port"):
        machine.forwarded("Hub -1 (net):")


async def test_an_agent_that_still_answers_former_connections_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that was busy answers all at once: for each try an error, as of what is no JSON, and that try's mark."""
    monkeypatch.setattr(monitor_module, "TRY_S", 0.5)
    asked, owed = 0, b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked, owed
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                asked += 1
                mark = msgspec.json.decode(line.lstrip(b"\xff"))["arguments"]["id"]
                owed += b'{"error": {"class": "GenericError"}}\n\xff{"return": %d}\n' % mark
                if asked > 2:
                    writer.write(owed)
                    owed = b""

    async with await asyncio.start_unix_server(serve, tmp_path / "ga"):
        monitor = Monitor(tmp_path / "ga", "the agent")
        await monitor.sync(20.0)
        monitor.close()
    assert asked == 3


def of_machines(test: T) -> T:
    for mark in VM:
        test = mark(test)
    return test


@pytest.fixture
async def root_machine(state_dir: str) -> AsyncIterator[tuple[str, GuestLink, LeasedDesktop]]:
    password = "plum"
    config = QemuConfig(state_dir=state_dir, client_password=password)
    provider = await open_provider(config, "root")
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=BOOT_S)
    yield password, link, leased(provider, desktop, link)
    await link.close()
    await provider.close()


@of_machines
async def test_by_its_password_the_guest_becomes_root_and_reaches_no_network(
    root_machine: tuple[str, GuestLink, LeasedDesktop],
) -> None:
    password, link, desktop = root_machine
    script = f"""echo {password} | sudo -S id -u; timeout 5 bash -c '</dev/tcp/10.0.2.2/22' && echo reached
        timeout 5 bash -c '</dev/tcp/1.1.1.1/53' && echo reached; mount | grep -c /home/agent"""
    ran = await link.call("run", argv=["bash", "-c", f"({script}) 2>/dev/null"], timeout_ms=100_000, timeout_s=BOOT_S)
    assert ran.out.split()[-2:] == ["0", "1"], ran.out
    assert "reached" not in ran.out
    # As the published files become root (os/a462a795 and five others).
    script = f"echo {PASSWORD} | sudo -S su - root -c 'id -u >/home/agent/who'; stat -c %U who >whose"
    await desktop.call("run", {"argv": ["bash", "-c", script], "timeout_ms": 100_000}, BOOT_S)
    for path, said in (("who", b"0\n"), ("whose", b"root\n")):
        assert await link.call("read_file", path=path, timeout_s=BOOT_S) == said
