"""The way into machines that serve OSWorld's routes, on a stand-in of ours: its images were never run here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import msgspec
import pytest
from test_provider_ssh import USER, free_port

from actors.desktop.config import MachineConfig, SshConfig
from actors.desktop.files.read_home import FileSeen, ReadLimits
from actors.desktop.link import GuestLink
from actors.desktop.pool.desktops import BootedDesktop, Lives
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.provider import Desktop, DesktopSpec, Provider
from actors.desktop.providers import osworld
from actors.desktop.providers.ssh import SshProvider
from actors.errors import DesktopFault, GuestRefused
from apis.tasks.verify.verify import WantedFile
from apis.tasksets.commands import PASSWORD
from runtime.errors import ConfigError

ACCOUNTS = "root:x:0:0::/:/bin/sh\nuser:*:1000:1000::/home/user:/bin/bash\nsshd:*:100:65534::/:/bin/false\n"
STAND_IN = Path(__file__).with_name("osworld_stand_in.py")


@contextlib.contextmanager
def machine_in(base: Path) -> Iterator[MachineConfig]:
    """A machine with a desktop and the routes; its own but for the network."""
    for folder in ("home", "tmp"):
        (base / folder).mkdir(parents=True)
        os.chown(base / folder, USER, -1)
    (base / "passwd").write_text(ACCOUNTS)
    port = free_port()
    display = f":{port % 50_000 + 100}"  # as other X servers of this network namespace may have :0
    command = [
        "bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--die-with-parent",
        "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--dir", "/run/sshd",
        "--tmpfs", "/home", "--bind", str(base / "home"), "/home/user", "--bind", str(base / "tmp"), "/tmp",
        "--ro-bind", str(base / "passwd"), "/etc/passwd", "--chdir", "/home/user", "--clearenv",
        "--setenv", "HOME", "/home/user", "--setenv", "USER", "user", "--setenv", "PATH", "/usr/bin:/bin:/usr/sbin",
        "/usr/bin/python3", str(STAND_IN), str(port), display,
    ]  # fmt: skip
    identity = USER if os.geteuid() == 0 else None
    server = subprocess.Popen(command, user=identity, group=identity, extra_groups=None if identity is None else [])
    yield MachineConfig(host="127.0.0.1", port=free_port(), user="user", osworld_port=port, display=display)
    server.kill()
    server.wait()
    subprocess.run(["rm", "-rf", str(base)], check=True)


@pytest.fixture
def machine(state_dir: str) -> Iterator[MachineConfig]:
    with machine_in(Path(state_dir) / ".lock") as machine:
        yield machine


@pytest.fixture
async def provider(machine: MachineConfig) -> AsyncIterator[SshProvider]:
    hosts = SshProvider(SshConfig(machines=[machine]))
    yield hosts
    await hosts.close()


async def test_our_agent_plays_on_the_display_that_is_there(provider: SshProvider, machine: MachineConfig):
    for content in (b"first", b"second"):  # the machine is let into again
        desktop = await provider.boot(DesktopSpec())
        assert desktop.home == "/home/user"
        link = await GuestLink.open(desktop, timeout_s=20)
        ran = await link.call("run", argv=["sh", "-c", "echo $DISPLAY; pgrep -c Xvfb"], timeout_ms=5000, timeout_s=10)
        assert ran.out.split() == [machine.display, "1"]
        await link.call("write_file", path="plum.txt", data=b"", timeout_s=30)
        await link.call("launch", argv=["mousepad", "plum.txt"], timeout_s=30)
        await link.call("wait_window", title="plum.txt", timeout_s=15)
        await link.call("type_text", text=content.decode(), timeout_s=30)
        await link.call("hotkey", keys=["ctrl", "s"], timeout_s=30)
        await link.call("settle", timeout_s=30)
        seen = await link.call("observe", timeout_s=30)
        assert "plum.txt" in str(seen), "windows and elements of a display that is not our own"
        picture = await link.call("screenshot", format="png", timeout_s=10)
        assert picture.startswith(b"\x89PNG")
        assert len(set(picture)) > 64, "a picture of one colour shows no desktop"
        await provider.freeze(desktop)
        (seen,) = await provider.read_home(desktop, [WantedFile("plum.txt")], ReadLimits())
        assert seen == FileSeen(path="plum.txt", data=content)
        await link.close()
        await provider.destroy(desktop)


def leased(provider: Provider, desktop: Desktop, link: GuestLink) -> LeasedDesktop:
    lives = Lives()
    lives.begin(desktop.name)
    lives.booted(desktop.name)
    return LeasedDesktop(BootedDesktop(provider, desktop, link, lives, lives.lease(desktop.name, "t", 0.0, 1e9)))


async def test_a_command_gets_the_password_of_the_images_and_nothing_shows_it(provider: SshProvider):
    desktop = await provider.boot(DesktopSpec())
    assert MachineConfig.OSWORLD_PASSWORD not in repr(desktop)
    link = await GuestLink.open(desktop, timeout_s=20)
    call = {"argv": ["bash", "-c", f"echo {PASSWORD} >plum.txt"], "timeout_ms": 5000}
    await leased(provider, desktop, link).call("run", call, 10.0)
    assert await link.call("read_file", path="plum.txt", timeout_s=5) == f"{MachineConfig.OSWORLD_PASSWORD}\n".encode()
    without = msgspec.structs.replace(desktop, password="")
    with pytest.raises(GuestRefused, match="ssh has none: client_password of qemu and of SSH machines"):
        await leased(provider, without, link).call("run", call, 10.0)
    await link.close()
    await provider.destroy(desktop)


async def test_a_server_that_listens_after_it_has_detached_is_waited_for(
    provider: SshProvider, monkeypatch: pytest.MonkeyPatch
):
    late, changed = re.subn(r"(?m)^(\S+sshd -f .*) \|\| exit$", r"(sleep 1; \1) >/dev/null 2>&1 &", osworld._SERVER)
    assert changed == 1
    monkeypatch.setattr(osworld, "_SERVER", late)
    for _ in range(2):  # the second one takes the port of the first
        await provider.destroy(await provider.boot(DesktopSpec()))


async def test_a_machine_of_another_screen_is_refused_with_the_key_that_mends_it(provider: SshProvider):
    with pytest.raises(DesktopFault, match=r"its screen is 1280x720, and desktops\.screen is 1920x1080"):
        await provider.boot(DesktopSpec(width=1920, height=1080))


async def test_a_machine_that_does_not_answer_or_lacks_something_is_a_fault(
    provider: SshProvider, machine: MachineConfig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(osworld, "_LACKING", "print('gi /usr/sbin/sshd')")
    with pytest.raises(DesktopFault, match="it lacks gi /usr/sbin/sshd"):
        await provider.boot(DesktopSpec())
    monkeypatch.setattr(osworld, "READY_S", 0.3)
    nowhere = SshProvider(SshConfig(machines=[msgspec.structs.replace(machine, osworld_port=free_port())]))
    with pytest.raises(DesktopFault, match=r"machine_unreachable.*not ready within"):
        await nowhere.boot(DesktopSpec())


async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line = await reader.readline()
    content = b"Linux" if b"/platform" in line else b'{"width": "no"}' if b"/screen_size" in line else b"x"
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
    await writer.drain()
    writer.close()


async def test_what_a_server_answers_is_not_believed(tmp_path: Path):
    async with await asyncio.start_server(hostile, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hosts = SshProvider(SshConfig(machines=[MachineConfig(host="127.0.0.1", user="user", osworld_port=port)]))
        with pytest.raises(DesktopFault, match=r"machine_unreachable.*int"):
            await hosts.boot(DesktopSpec())


def test_keys_are_given_or_made_and_a_display_is_one_desktop_s():
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    for more in (
        {},
        {"client_key": "k"},
        {"osworld_port": 5000, "host_key": key},
        {"osworld_port": 5000, "desktops": 2},
        {"client_key": "k", "host_key": key, "container": "podman"},
        {"client_key": "k", "host_key": key, "container": "podman", "image": "i", "display": ":0"},
    ):
        with pytest.raises(ConfigError, match=r"machines h: "):
            MachineConfig(host="h", user="u", **more)  # type: ignore[arg-type]
    assert MachineConfig(host="h", user="u", osworld_port=5000).shown_at == ":0"
