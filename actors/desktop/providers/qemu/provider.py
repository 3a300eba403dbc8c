"""Desktops as virtual machines of qemu on this machine.

A machine's HOME is a disk of its own. It is read after qemu has stopped the machine, and nothing of the
guest takes part in that. qemu has the rights of a user that owns nothing else, and ends with its owner.

The first machine of an image boots, starts the session and is stored while it is stopped: its memory as a migration
stream, its disk as the one that others are made over. Every other machine goes on from there, and gets its own HOME,
keys and time. What is not said here is the sandbox's: folders, users, control groups, removal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar, Self, TextIO

import msgspec

from actors.desktop import provider as abc
from actors.desktop.config import USUAL_SCREEN, QemuConfig, SandboxConfig, ScreenConfig
from actors.desktop.faults import FaultCause, fault
from actors.desktop.files import read_home as outside
from actors.desktop.providers import home
from actors.desktop.providers.qemu import machine
from actors.desktop.providers.qemu.monitor import Monitor
from actors.desktop.providers.sandbox import cgroups, command, owners
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.sandbox.sandbox import LOG, Sandbox, Watched
from actors.errors import DesktopFault
from apis.tasks.verify.verify import WantedFile
from runtime.errors import ConfigError

COLD_BOOT_S = 1800.0  # without an accelerator a machine boots many times as long
SESSION_S = 900.0
STORE_S = 300.0
LOAD_S = 60.0
HOME_S = 60.0
FLUSH_S = 15.0
LOCK_S = 3600.0  # for another process to store what both need
DISKS = 3  # what a desktop's disk holds, each as large as HOME at the most: HOME, what else it writes, a copy of HOME
TRANSLATED = "no hardware acceleration: qemu translates each instruction of the guest"
_LOOK_S = 0.02
_USER, _RUN, _MOUNTED = command.GUEST_USER, command.GUEST_RUN, "/run/desktop"
_AS_USER = f"setpriv --reuid {_USER} --regid {_USER} --init-groups"
# Waits in the stored machine for orders, each a line: so a machine that goes on from there starts no program for them.
_HELPER = rf"""
import ctypes, fcntl, json, os, time
libc = ctypes.CDLL(None, use_errno=True)
def mount(what, where, kind, flags):
    if libc.mount(what, where, kind, flags, None):
        raise OSError(ctypes.get_errno(), "mount")
def take(now):
    time.clock_settime(time.CLOCK_REALTIME, now)
    mount(b"/dev/vdb", b"{_MOUNTED}", b"ext4", 1030)  # MS_NOATIME | MS_NOSUID | MS_NODEV
    mount(b"{_MOUNTED}/home", b"{command.GUEST_HOME}", None, 4096)  # MS_BIND
def of_disk(call):
    place = os.open("{_MOUNTED}", os.O_RDONLY)
    fcntl.ioctl(place, call, 0)
    os.close(place)
orders = dict(wait=lambda: None, take=take, freeze=lambda: of_disk(0xC0045877), thaw=lambda: of_disk(0xC0045878))
port = open("/dev/virtio-ports/{machine.HELPER}", "r+b", buffering=0)
while True:
    line = port.readline()
    if not line.endswith(b"\n"):  # nobody is there
        time.sleep(0.02)
        continue
    try:
        order = json.loads(line)
        orders[order["execute"]](**order["arguments"])
        answer = dict([("return", None)])
    except Exception as error:
        answer = dict(error=str(error))
    port.write(json.dumps(answer).encode() + b"\n")
"""
# What the first agent and the first login read is in memory in the end, so that no later one waits for a disk.
_SESSION = f"""set -e
tar -x -C / --no-same-owner
ip link set lo up; ip link set eth0 up; ip address add 10.0.2.15/24 dev eth0
install -d -m 0755 /run/sshd {_MOUNTED}
install -d -m 0700 -o {_USER} /run/user {_RUN} {command.GUEST_HOME}; chmod 0755 /run/user
for file in host_key authorized_keys sshd_config; do ln -s {_MOUNTED}/run/$file {_RUN}/$file; done
echo "127.0.1.1 $(hostname)" >>/etc/hosts
rm -rf /tmp/.X11-unix; install -d -m 1777 /tmp/.X11-unix
if test -s /root/password; then usermod -aG sudo {_USER}; chpasswd </root/password; rm /root/password; fi
sync; echo 3 >/proc/sys/vm/drop_caches
cd /
setsid {command.PYTHON} -I -S -c {shlex.quote(_HELPER)} </dev/null >/run/helper.log 2>&1 &
cd {command.GUEST_HOME}
setsid {_AS_USER} %(more)s env -i USER={_USER} %(session)s </dev/null >/run/session.log 2>&1 &
for _ in $(seq %(tries)d); do test -e {_RUN}/session.json && break; sleep 0.1; done
test -e {_RUN}/session.json
{_AS_USER} timeout 120 {" ".join(command.AGENT)} </dev/null >/dev/null 2>&1 || true
sync
"""


class _Machine:
    """One running qemu: its sockets, and whether it is stopped for good."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.monitor = Monitor(sandbox.plug, "qemu")
        self.agent = Monitor(sandbox.folder / machine.AGENT, "the machine's agent")
        self.helper = Monitor(sandbox.folder / machine.HELPER, "the machine's helper")
        self.port = 0
        self.frozen = False
        self.turn = asyncio.Lock()

    @property
    def pid(self) -> int:
        return 0 if self.sandbox.process is None else self.sandbox.process.pid

    async def stop(self) -> None:
        """Have the guest write HOME to its disk, then stop its processors. Raises DesktopFault."""
        try:
            await self.helper.order("freeze", within_s=FLUSH_S)
        except DesktopFault as silent:
            if not self.sandbox.alive:
                raise
            raise fault(FaultCause.STILL_RUNNING, f"HOME was not written to its disk: {silent.detail}") from silent
        await self.monitor.order("stop")

    async def go_on(self) -> None:
        await self.monitor.order("cont")
        await self.helper.order("thaw", within_s=FLUSH_S)

    async def copied(self) -> None:
        """Copy what HOME's disk holds to where it is read."""
        await asyncio.to_thread(machine.dump, self.sandbox.disk, self.sandbox.lease.uid)

    def close(self) -> None:
        for one in (self.monitor, self.agent, self.helper):
            one.close()


class QemuProvider(SandboxProvider):
    """Makes virtual machines; one per actor process."""

    KIND: ClassVar[str] = "qemu"
    NEEDS: ClassVar[tuple[str, ...]] = machine.PROGRAMS

    _config: QemuConfig

    def __init__(self, config: SandboxConfig, owner: owners.SandboxOwner) -> None:
        super().__init__(config, owner)
        self._image = machine.image_of(self._config)
        self._machines: dict[str, _Machine] = {}
        self._first = ""  # the name of the machine that boots and is stored
        self._storing = asyncio.Lock()
        self._kept: dict[Path, int] = {}  # stored machines in use, by their folders: descriptors that lock these

    @classmethod
    async def start(cls, config: SandboxConfig, run_id: str, screen: ScreenConfig = USUAL_SCREEN) -> Self:
        """As a sandbox's; it also boots and stores a machine where none is stored yet, which takes minutes."""
        provider = await super().start(config, run_id)
        try:
            await provider._stored(abc.DesktopSpec.of(config, screen))
        except BaseException as error:
            await provider.close()
            if isinstance(error, DesktopFault):
                raise ConfigError(f"desktops.provider.image {provider._image.folder}: {error}") from error
            raise
        return provider

    def _lay_out(self) -> None:
        super()._lay_out()
        self._accelerator = machine.accelerator(self._config, self._image)
        self._marks = self._image.marks()

    async def _stored(self, spec: abc.DesktopSpec) -> Path:
        """The folder of the stored machine that this desktop goes on from; it is made once for all processes."""
        config = self._config
        sizes = config.memory_mib, config.cpus, self._accelerator, spec.width, spec.height
        parts = (*sizes, config.client_password, _SESSION, machine.DEVICES)
        own = hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()
        place = self._image.folder / STORED / f"{self._marks}.{own}"
        async with self._storing:
            if place in self._kept:
                return place
            async with _locked(place.parent):
                if not place.exists():
                    _forget_others(place)
                    new = place.with_name(".new")
                    shutil.rmtree(new, ignore_errors=True)
                    new.mkdir()
                    await self._store(new, spec)
                    new.rename(place)
                self._kept[place] = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._kept[place], fcntl.LOCK_SH | fcntl.LOCK_NB)
        return place

    async def _store(self, into: Path, spec: abc.DesktopSpec) -> None:
        """Boot a machine up to its session, and keep its memory and its disk."""
        self._first = f"{self._owner.name}.{self._count + 1}"
        desktop = await super().boot(spec)
        try:
            first = self._machines[desktop.name]
            await first.monitor.order("stop")
            file = os.open(into / STATE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                await first.monitor.hand_over(file, STATE)
            finally:
                os.close(file)
            await first.monitor.order("migrate-set-parameters", {"max-bandwidth": 1 << 40})
            await first.monitor.order("migrate", {"uri": f"fd:{STATE}"})
            await _until(first, "query-migrate", "completed", STORE_S)
            with contextlib.suppress(DesktopFault):
                await first.monitor.order("quit")
            if first.sandbox.init is not None:
                await first.sandbox.init.ended(STORE_S)
            await asyncio.to_thread(_keep, first.sandbox.disk / OVERLAY, into)
        finally:
            await self.destroy(desktop)

    async def _boot(self, sandbox: Sandbox, spec: abc.DesktopSpec) -> abc.Desktop:
        larger = msgspec.structs.replace(spec, disk_bytes=DISKS * spec.disk_bytes)
        desktop = await super()._boot(sandbox, larger)
        assert desktop.outside is not None
        place = sandbox.disk / machine.DUMPED / "home"
        longer = ("--patience", str(int(QemuConfig.PATIENCE))) if self._accelerator == "tcg" else ()
        return msgspec.structs.replace(
            desktop,
            address=abc.SshAddress(host="127.0.0.1", port=self._machines[sandbox.name].port),
            agent=(*desktop.agent, *longer),
            password=self._config.client_password,
            outside=msgspec.structs.replace(desktop.outside, home=str(place)),
            warnings=(*desktop.warnings, *([TRANSLATED] if self._accelerator == "tcg" else ())),
        )

    async def _launch(self, sandbox: Sandbox, spec: abc.DesktopSpec) -> int:
        """Start the machine; qemu's process."""
        if sandbox.name == self._first:
            return await self._launch_first(sandbox, spec)
        stored = await self._stored(spec)
        sandbox.preparing = asyncio.gather(
            asyncio.to_thread(machine.make_home, sandbox.disk, sandbox.lease.uid, spec.disk_bytes // DISKS),
            asyncio.to_thread(machine.overlay, stored / DISK, sandbox.disk / OVERLAY, sandbox.lease.uid),
        )
        await asyncio.shield(sandbox.preparing)
        state = os.open(stored / STATE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            running = await self._run(sandbox, state)
        finally:
            os.close(state)
        await _until(running, "query-status", "paused", LOAD_S)
        networks = await running.monitor.order("human-monitor-command", {"command-line": "info usernet"})
        running.port = machine.forwarded(str(networks))
        await running.monitor.order("cont")
        await running.helper.order("take", {"now": time.time()}, HOME_S)
        return running.pid

    async def _launch_first(self, sandbox: Sandbox, spec: abc.DesktopSpec) -> int:
        await asyncio.to_thread(machine.overlay, self._image.disk, sandbox.disk / OVERLAY, sandbox.lease.uid)
        running = await self._run(sandbox, -1)
        await running.agent.sync(COLD_BOOT_S)
        password = self._config.client_password
        line = f"{_USER}:{password}\n" if password else ""
        session = command.session_command("machine", (spec.width, spec.height), "--port", str(machine.GUEST_PORT))
        more = "" if password else "--no-new-privs"
        script = _SESSION % {"more": more, "session": shlex.join(session), "tries": SESSION_S * 10}
        given: dict[str, bytes | Path] = {
            "opt/computerrl/guest": self._folder / "guest",
            "etc/chromium.d": self._folder / "etc/chromium.d",
            "root/password": line.encode(),
        }
        await running.agent.run(script, home.packed(given), SESSION_S)
        await running.helper.order("wait", within_s=SESSION_S)
        return running.pid

    async def _run(self, sandbox: Sandbox, state_fd: int) -> _Machine:
        """Start qemu, and greet it. By the loop's thread, for the kernel ends qemu with that."""
        running = self._machines[sandbox.name] = _Machine(sandbox)
        with contextlib.ExitStack() as opened:
            listeners = []
            for path in (sandbox.plug, sandbox.folder / machine.AGENT, sandbox.folder / machine.HELPER):
                listeners.append(opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)))
                listeners[-1].bind(str(path))
                listeners[-1].listen(1)
            fds = [listener.fileno() for listener in listeners]
            disks = sandbox.disk / OVERLAY, sandbox.disk / machine.HOME
            argv = machine.rights(sandbox.lease) + machine.qemu(
                self._image, self._config, self._accelerator, disks, listeners=fds, state_fd=state_fd
            )
            log = opened.enter_context((sandbox.disk / LOG).open("wb"))
            sandbox.process = command.started(
                argv, os.geteuid(), (*fds, state_fd), stdout=log, stderr=log, start_new_session=True
            )
        sandbox.outer, sandbox.init = Watched(sandbox.process.pid), Watched(sandbox.process.pid)
        sandbox.warnings += await asyncio.to_thread(cgroups.enter, sandbox.groups, [running.pid])
        try:
            # All at once: the guest of a stored machine had somebody at the other end.
            for one in (running.helper, running.agent, running.monitor):
                await one.connect()
            await running.monitor.order("qmp_capabilities")
        except DesktopFault as silent:
            raise fault(FaultCause.SANDBOX_REFUSED, sandbox.last_words() or silent.detail) from silent
        return running

    async def _throw_away(self, sandbox: Sandbox) -> None:
        if (running := self._machines.get(sandbox.name)) is not None:
            running.close()
        await super()._throw_away(sandbox)
        self._machines.pop(sandbox.name, None)

    def _running(self, desktop: abc.Desktop) -> _Machine:
        running = self._machines.get(desktop.name)
        if running is None or desktop.outside is None or not running.sandbox.alive:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{desktop.name} is not running here")
        return running

    async def freeze(self, desktop: abc.Desktop) -> None:
        running = self._running(desktop)
        async with running.turn:
            if not running.frozen:
                await running.stop()
                running.frozen = True
                await running.copied()
        self._running(desktop)

    async def read_home(
        self, desktop: abc.Desktop, wanted: list[WantedFile], limits: outside.ReadLimits
    ) -> list[outside.FileSeen]:
        """See `Provider.read_home`. A machine that is not frozen is stopped for the moment in which HOME is copied."""
        running = self._machines.get(desktop.name)
        if running is None or desktop.outside is None:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{desktop.name} is not running here")
        async with running.turn:
            if not running.frozen:
                await self._running(desktop).stop()
                try:
                    await running.copied()
                finally:
                    await running.go_on()
            # A copy's inodes and times say nothing, so all of each file is looked at.
            size = (running.sandbox.disk / machine.HOME).stat().st_size
            census = msgspec.structs.replace(limits.census, file_bytes=size, bytes=size)
            limits = msgspec.structs.replace(limits, census=census)
            return await outside.read_home(desktop.outside.home, desktop.outside.uid, wanted, limits)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            for file in self._kept.values():
                os.close(file)
            self._kept.clear()


STORED, STATE, DISK, OVERLAY = "ready", "state", "disk.qcow2", "over.qcow2"


def _keep(disk: Path, into: Path) -> None:
    shutil.copy(disk, into / DISK)
    (into / DISK).chmod(0o644)  # whatever the umask is: qemu runs as another user
    into.chmod(0o755)


async def _until(running: _Machine, command_: str, status: str, within_s: float) -> None:
    """Ask qemu until its answer has this status. Raises DesktopFault."""
    try:
        async with asyncio.timeout(within_s):
            while (now := (await running.monitor.order(command_)).get("status")) != status:
                if now == "failed" or not running.sandbox.alive:
                    raise fault(FaultCause.BOOT_FAILED, f"{command_}: {now}: {running.sandbox.last_words()}"[:300])
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise fault(FaultCause.BOOT_TIMEOUT, f"{command_}: not {status} within {within_s:g} s") from None


@contextlib.asynccontextmanager
async def _locked(folder: Path) -> AsyncIterator[None]:
    """The lock of all stored machines of an image, once no other process has it. Raises DesktopFault, OSError."""
    with _lock_of(folder) as lock:
        try:
            async with asyncio.timeout(LOCK_S):
                while True:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise fault(FaultCause.BOOT_TIMEOUT, f"{folder}: locked by another process for {LOCK_S:g} s") from None
        yield


def _lock_of(folder: Path) -> TextIO:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    return (folder / ".lock").open("w")


def _forget_others(place: Path) -> None:
    """Remove machines that were stored of another image, code or qemu, that are not in use."""
    for other in place.parent.iterdir():
        if other.is_dir() and other.name.partition(".")[0] not in ("", place.name.partition(".")[0]):
            lock = os.open(other, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other)
            os.close(lock)
