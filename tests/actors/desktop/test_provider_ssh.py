"""The `hosts` provider against a real SSH server of an ordinary user on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import struct
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncssh
import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.cluster.runs.doctor import RunNeeds, check_offices
from actors.desktop.config import MachineConfig, SshConfig
from actors.desktop.faults import BrokenBy, FaultCause, LinkState, cause_of
from actors.desktop.files import office
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal
from actors.desktop.link import GuestLink, LinkDown, evidence_of
from actors.desktop.pool.desktops import BootedDesktop, Lives
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers import ssh as hosts_module
from actors.desktop.providers.ssh import SshProvider
from actors.errors import AgentBrokeDesktop, DesktopFault
from apis.tasks.verify.verify import WantedFile
from runtime.errors import ConfigError

ACCOUNTS = "root:x:0:0::/:/bin/sh\nworker:*:1000:1000::/home/worker:/bin/bash\nsshd:*:100:65534::/:/bin/false\n"
SSHD = """ListenAddress 127.0.0.1
HostKey /home/worker/host_key
AuthorizedKeysFile /home/worker/authorized_keys
PidFile none
UsePAM no
StrictModes no
MaxSessions 2
Subsystem sftp internal-sftp
LogLevel ERROR
"""
USER = 29_998 if os.geteuid() == 0 else os.geteuid()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def machine_in(base: Path) -> Iterator[MachineConfig]:
    """A machine of its own but for the network: own users, processes, HOME and /tmp; sshd runs as an ordinary user."""
    base.mkdir()
    home, tmp = base / "home", base / "tmp"
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    for folder in (home, tmp):
        folder.mkdir()
        os.chown(folder, USER, -1)
    (base / "passwd").write_text(ACCOUNTS)
    host_key.write_private_key(home / "host_key")
    client_key.write_public_key(home / "authorized_keys")
    client_key.write_private_key(base / "id")
    (home / "sshd_config").write_text(SSHD)
    for path in home.iterdir():
        path.chmod(0o600)
        os.chown(path, USER, -1)
    port = free_port()
    command = [
        "bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--die-with-parent",
        "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--dir", "/run/sshd",
        "--tmpfs", "/home", "--bind", str(home), "/home/worker", "--bind", str(tmp), "/tmp",
        "--ro-bind", str(base / "passwd"), "/etc/passwd",
        "/usr/sbin/sshd", "-D", "-e", "-p", str(port), "-f", "/home/worker/sshd_config",
    ]  # fmt: skip
    identity = USER if os.geteuid() == 0 else None
    server = subprocess.Popen(command, user=identity, group=identity, extra_groups=None if identity is None else [])
    yield MachineConfig(
        host="127.0.0.1",
        port=port,
        user="worker",
        client_key=str(base / "id"),
        host_key=host_key.export_public_key().decode(),
        desktops=2,
    )
    server.kill()
    server.wait()
    subprocess.run(["rm", "-rf", str(base)], check=True)


@pytest.mark.parametrize("made", [True, False])
def test_a_session_is_sent_the_settings_of_libreoffice(
    made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them a save asks for a file format, which no task of a family expects."""
    (tmp_path / "settings.xcu").touch()
    monkeypatch.setattr(hosts_module.home, "office_profile", lambda: tmp_path if made else None)
    with tarfile.open(fileobj=io.BytesIO(hosts_module.archive.__wrapped__())) as archive:
        names = archive.getnames()
    assert ("home/.config/libreoffice/settings.xcu" in names) == made
    assert {"home/.bashrc", "guest/agent.py", "run"} <= {*names}


@pytest.fixture
def machine(state_dir: str) -> Iterator[MachineConfig]:
    with machine_in(Path(state_dir) / ".lock") as machine:  # the one name that the fixture of the folder lets be
        yield machine


@pytest.fixture
async def provider(machine: MachineConfig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SshProvider]:
    """A provider whose machine is up, and allows a connection fewer sessions than it gets desktops and errands."""
    monkeypatch.setattr(hosts_module, "SESSIONS_EACH", 1)
    monkeypatch.setattr(hosts_module, "ROOM_S", 120.0)  # a boot may wait for room as long as a whole test
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection(machine.host, machine.port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            break
    hosts = SshProvider(SshConfig(machines=[machine]))
    yield hosts
    await hosts.close()


@pytest.mark.skipif(not office.PROGRAM.is_file(), reason="LibreOffice is not installed")
async def test_a_machine_says_which_office_it_has(
    provider: SshProvider, machine: MachineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SshConfig(machines=[machine])
    assert await hosts_module.office_releases(config) == {f"{machine.host}:{machine.port}": office.release()}
    one_seat = ("desktops.count=1", "desktops.processes=1", "desktops.warm_pool=0")
    deploy, _ = deploy_files.load("sglang-gpu", one_seat)
    deploy = msgspec.structs.replace(deploy, desktops=msgspec.structs.replace(deploy.desktops, provider=config))
    needs = RunNeeds(deploy=deploy, apps=["libreoffice_calc"])
    assert await asyncio.to_thread(lambda: [*check_offices(needs)]) == []
    release = office.release
    monkeypatch.setattr(office, "release", lambda said="": release(said) if said else "24.8")
    (other,) = await asyncio.to_thread(lambda: [*check_offices(needs)])
    assert not other.ok
    assert not other.fatal
    assert "24.8" in other.found


def sessions_on(machine: MachineConfig) -> list[str]:
    tmp = Path(machine.client_key).parent / "tmp"
    return [path.name for path in tmp.glob("computerrl-*")]


def processes_of(desktop: Desktop) -> list[bytes]:
    """Command lines that name the desktop's folder."""
    folder = desktop.home.removesuffix("/home").encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(place.read_bytes())
    return [line for line in found if folder in line]


def acting_on(provider: SshProvider, desktop: Desktop, link: GuestLink) -> LeasedDesktop:
    """The desktop as an episode has it whose policy has acted."""
    lives = Lives()
    lives.begin(desktop.name)
    lives.booted(desktop.name)
    lease = lives.lease(desktop.name, "desktop/0", time.monotonic(), 60.0)
    body = LeasedDesktop(BootedDesktop(provider, desktop, link, lives, lease))
    body.acted = True
    return body


async def write_plum(link: GuestLink) -> None:
    """Have Documents/plum.txt say hello, then have the editor add world."""
    await link.call("write_file", path="Documents/plum.txt", data=b"hello\n", timeout_s=30)
    await link.call("launch", argv=["mousepad", "Documents/plum.txt"], timeout_s=30)
    await link.call("wait_window", title="plum.txt", timeout_s=20)
    await link.call("hotkey", keys=["ctrl", "End"], timeout_s=30)
    await link.call("type_text", text="world", timeout_s=30)
    await link.call("hotkey", keys=["ctrl", "s"], timeout_s=30)
    await link.call("settle", timeout_s=30)


async def test_a_session_boots_works_is_read_and_leaves_nothing(provider: SshProvider, machine: MachineConfig):
    desktop, other = await asyncio.gather(provider.boot(DesktopSpec()), provider.boot(DesktopSpec()))
    third = asyncio.create_task(provider.boot(DesktopSpec()))
    assert not (await asyncio.wait([third], timeout=0.5))[0], "a full machine is waited for, and no fault"
    link = await GuestLink.open(desktop, timeout_s=20)
    await write_plum(link)
    await link.call("launch", argv=["ln", "-s", "/etc/passwd", "link"], timeout_s=30)
    await link.call("launch", argv=["sh", "-c", "while :; do echo x >> grows; done"], timeout_s=30)
    for _ in range(3):  # a shell waits for each program to start, where no stop signal reaches it
        command = "while :; do head -c 1 /dev/zero; done > /dev/null"
        await link.call("launch", argv=["sh", "-c", command], timeout_s=30)
    nested = 'import os\nfor _ in range(1200): os.mkdir("d"); os.chdir("d")'
    awkward = f"mkdir no; >no/x; chmod 0 no; >Documents/$(printf '\\377'); python3 -c '{nested}'"
    # Its parent ends at once, and its environment does not say whose it is; nor is it of the agent's session.
    grows = f"(env -i /usr/bin/setsid /bin/sh -c 'while :; do echo x >> {desktop.home}/unmarked; done' &)"
    await link.call("launch", argv=["sh", "-c", f"{awkward}; {grows}"], timeout_s=30)
    unmarked = [WantedFile("unmarked")]
    async with asyncio.timeout(30):
        while not (await provider.read_home(desktop, unmarked, ReadLimits()))[0].data:  # noqa: ASYNC110 - a guest's
            await asyncio.sleep(0.02)
    await provider.freeze(desktop)
    assert await provider.read_home(desktop, unmarked, ReadLimits()) == await provider.read_home(
        desktop, unmarked, ReadLimits()
    )
    paths = ["Documents/plum.txt", "Documents", "link", "none", "../run/bus", "grows"]
    seen = await provider.read_home(desktop, [WantedFile(path) for path in paths], ReadLimits())
    assert seen[:-1] == [
        FileSeen(path="Documents/plum.txt", data=b"hello\nworld"),
        FileSeen(path="Documents", names=["\\xff", "plum.txt"]),
        FileSeen(path="link", refusal=ReadRefusal.LINK),
        FileSeen(path="none", refusal=ReadRefusal.MISSING),
        FileSeen(path="../run/bus", refusal=ReadRefusal.BAD_PATH),
    ]
    assert [seen[-1]] == await provider.read_home(desktop, [WantedFile("grows")], ReadLimits())
    assert (await provider.read_home(desktop, [WantedFile("grows")], ReadLimits(file_bytes=1)))[
        0
    ].refusal is ReadRefusal.TOO_BIG
    await link.close()
    await provider.destroy(desktop)
    await provider.destroy(desktop)
    await provider.destroy(await asyncio.wait_for(third, 30))
    assert processes_of(desktop) == []
    assert not (await provider.probe(desktop)).alive
    assert (await provider.probe(other)).alive
    assert len(sessions_on(machine)) == 1
    await provider.destroy(other)
    assert sessions_on(machine) == []


def answer_of_x(machine: MachineConfig, name: bytes = b"", cookie: bytes = b"") -> int:
    """The first byte that the session's X server says to a client (0: failed, 1: come in), by its protocol of 1987."""
    tmp = Path(machine.client_key).parent / "tmp"
    (display,) = (tmp / ".X11-unix").iterdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(display))
        client.settimeout(10)
        fields = b"".join(field + bytes(-len(field) % 4) for field in (name, cookie))
        client.sendall(struct.pack("<cxHHHHxx", b"l", 11, 0, len(name), len(cookie)) + fields)
        return client.recv(1)[0]


async def test_only_who_has_the_sessions_cookie_sees_its_screen(provider: SshProvider, machine: MachineConfig):
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    assert await link.call("ping", timeout_s=30) == "pong"
    (session,) = sessions_on(machine)
    cookie = Path(machine.client_key).parent / "tmp" / session / "run" / "xauthority"
    assert cookie.stat().st_mode & 0o777 == 0o600
    magic = b"MIT-MAGIC-COOKIE-1"
    assert answer_of_x(machine) == 0
    assert answer_of_x(machine, magic, bytes(16)) == 0
    assert answer_of_x(machine, magic, cookie.read_bytes()[-16:]) == 1
    await link.close()


@pytest.mark.parametrize("also", ["", "|^sshd: worker"], ids=["alone", "with its connection"])
async def test_a_policy_that_kills_what_holds_its_session_has_failed_and_leaves_nothing(
    provider: SshProvider, machine: MachineConfig, also: str
):
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    await link.call("launch", argv=["mousepad"], timeout_s=30)
    kills = f"sleep 0.3; pkill -9 -f '[g]uest session{also}'"
    await link.call("launch", argv=["sh", "-c", kills], timeout_s=30)
    async with asyncio.timeout(30):
        while (await provider.probe(desktop)).alive:  # noqa: ASYNC110 - a machine's
            await asyncio.sleep(0.02)
    async with asyncio.timeout(30):
        while not (health := await provider.probe(desktop)).reachable:  # noqa: ASYNC110 - connections may be gone, too
            await asyncio.sleep(0.02)
    with pytest.raises(DesktopFault) as refused:
        await provider.freeze(desktop)
    down = LinkDown(LinkState.LOST, refused.value.detail)
    assert cause_of(evidence_of(health, down, acted=True, ready=True)) is BrokenBy.SESSION_ENDED
    assert processes_of(desktop) != [], "nobody holds them, and they go on"
    await link.close()
    await provider.destroy(desktop)
    assert processes_of(desktop) == []
    assert sessions_on(machine) == []


async def test_a_policy_that_stops_what_holds_its_session_has_failed_and_leaves_nothing(
    provider: SshProvider, machine: MachineConfig, monkeypatch: pytest.MonkeyPatch
):
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=20)
    await link.call("launch", argv=["sh", "-c", "pkill -STOP -f '[g]uest session'"], timeout_s=30)
    await link.call("launch", argv=["mousepad"], timeout_s=30)
    await link.call("settle", timeout_s=30)
    monkeypatch.setattr(hosts_module, "FREEZE_S", 1.0)
    with pytest.raises(AgentBrokeDesktop, match="still_running"):
        await acting_on(provider, desktop, link).frozen_files([WantedFile("x")], 20.0)
    await link.close()
    monkeypatch.setattr(hosts_module, "END_S", 1.0)
    await provider.destroy(desktop)
    assert processes_of(desktop) == []
    assert sessions_on(machine) == []


async def test_a_dead_machine_keeps_no_boot_from_the_others(provider: SshProvider, machine: MachineConfig):
    dead = msgspec.structs.replace(machine, port=free_port(), desktops=4)
    hosts = SshProvider(SshConfig(machines=[dead, machine]))
    with pytest.raises(DesktopFault, match="machine_unreachable"):
        await hosts.boot(DesktopSpec())
    for _ in range(2):
        assert (await hosts.boot(DesktopSpec())).address.port == machine.port
    with pytest.raises(DesktopFault, match="machine_unreachable"):
        await hosts.boot(DesktopSpec())  # the other one has no seat left
    await hosts.close()


async def test_a_boot_that_can_not_unpack_leaves_no_folder(
    provider: SshProvider, machine: MachineConfig, monkeypatch: pytest.MonkeyPatch
):
    torn = hosts_module.archive()[:-2000]
    monkeypatch.setattr(hosts_module, "archive", lambda: torn)
    with pytest.raises(DesktopFault, match=r"boot_failed.*EOFError"):
        await provider.boot(DesktopSpec())
    assert sessions_on(machine) == []
    assert provider._machines[0].used == 0


@contextlib.asynccontextmanager
async def serving(
    folder: Path, handle: Callable[[asyncssh.SSHServerProcess[bytes]], object], **options: int
) -> AsyncIterator[SshProvider]:
    """A provider whose machine carries out every command by `handle`."""
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    client_key.write_private_key(folder / "id")
    client_key.write_public_key(folder / "authorized_keys")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=str(folder / "authorized_keys"),
        process_factory=handle, encoding=None, **options,
    )  # fmt: skip
    public, port = host_key.export_public_key().decode(), server.get_port()
    machine = MachineConfig(host="127.0.0.1", port=port, user="u", client_key=str(folder / "id"), host_key=public)
    hosts = SshProvider(SshConfig(machines=[machine]))
    try:
        yield hosts
    finally:
        await hosts.close()
        server.close()
        await server.wait_closed()


async def test_what_a_session_wrote_that_took_no_code_is_the_cause(tmp_path: Path):
    def lacks(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stderr.write(b"no such program\n")
        process.exit(127)

    async with serving(tmp_path, lacks) as hosts:
        with pytest.raises(DesktopFault, match=r"boot_failed.*no such program"):
            await hosts.boot(DesktopSpec())


async def test_a_machine_that_takes_the_code_too_slowly_gets_no_more_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hosts_module, "ANSWER_S", 0.5)
    late, came = asyncio.Event(), asyncio.Event()
    size = 0

    async def reads_late(process: asyncssh.SSHServerProcess[bytes]) -> None:
        nonlocal size
        await late.wait()
        try:
            while data := await process.stdin.read(1 << 20):
                size += len(data)
        finally:  # the connection is gone
            came.set()

    async with serving(tmp_path, reads_late, window=4096) as hosts:
        with pytest.raises(DesktopFault, match="boot_timeout"):
            await hosts.boot(DesktopSpec())
        late.set()
        await asyncio.wait_for(came.wait(), 10)
    assert size < len(hosts_module.archive())


async def test_a_lost_owner_takes_its_sessions_along(provider: SshProvider, machine: MachineConfig):
    await provider.boot(DesktopSpec())
    assert len(sessions_on(machine)) == 1
    for session in provider._sessions.values():
        session.connection.abort()  # as the kernel does for a killed process
    for _ in range(300):
        if not sessions_on(machine):
            break
        await asyncio.sleep(0.02)
    assert sessions_on(machine) == []
    provider._sessions.clear()


async def test_an_unreachable_machine_is_a_fault(provider: SshProvider, machine: MachineConfig):
    desktop = await provider.boot(DesktopSpec())
    nowhere = SshProvider(SshConfig(machines=[msgspec.structs.replace(machine, port=free_port())]))
    with pytest.raises(DesktopFault) as fault:
        await nowhere.boot(DesktopSpec())
    assert (fault.value.cause, fault.value.culprit) == ("machine_unreachable", "host")
    nowhere._sessions[desktop.name] = msgspec.structs.replace(
        provider._sessions[desktop.name], machine=nowhere._machines[0]
    )
    health = await nowhere.probe(desktop)
    assert (health.alive, health.reachable) == (False, False)
    lost = LinkDown(LinkState.LOST, "")
    assert cause_of(evidence_of(health, lost, acted=True)) is FaultCause.MACHINE_UNREACHABLE


async def test_another_host_key_or_folder_is_refused(machine: MachineConfig, provider: SshProvider):
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    for more, said in (({"host_key": other}, "Host key is not trusted"), ({"folder": "/none"}, "/none")):
        changed = SshProvider(SshConfig(machines=[msgspec.structs.replace(machine, **more)]))
        with pytest.raises(DesktopFault, match=said):
            await changed.boot(DesktopSpec())
        await changed.close()


def test_bad_settings_are_told(tmp_path: Path):
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    machine = MachineConfig(host="nowhere", user="u", client_key=str(tmp_path / "none"), host_key=key)
    for machines in ([], [machine], [msgspec.structs.replace(machine, host_key="not a key")]):
        with pytest.raises(ConfigError):
            SshProvider(SshConfig(machines=machines))
