"""What one sandbox has on this host: processes, disk, terminals, control groups, descriptors and a user.

Invariant: everything is reachable from `Sandbox`, however far the boot has come. A process is named by its pidfd, never
by a number that the kernel may have given to another process. Where mounting is not allowed the desktop still gets its
folders, and a warning says that no limit holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
from pathlib import Path
from typing import Any

from actors.desktop import provider as abc
from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers.sandbox import cgroups, command, shares
from actors.desktop.providers.sandbox.owners import UserLease
from apis.guest.session.members import PLUG


class Watched:
    """A process of which the end is awaited."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._loop.add_reader(self._fd, self._on_end)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._fd)
        self._ended.set()

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def kill(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    async def ended(self, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            await self._ended.wait()

    def close(self) -> None:
        if self._fd >= 0:
            if self.alive:
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def connected(plug: Path) -> socket.socket | None:
    """A connection to who listens at `plug`; None while that is not to be had. Raises OSError."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.setblocking(False)
        client.connect(str(plug))
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    return client


def listener_of(connection: socket.socket) -> int:
    """The process that listened at its other end, as this host numbers it."""
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def first_of(pid: int) -> int:
    """The first process of the process namespace that `pid` is in: itself, or one above it. Raises OSError."""
    while True:
        about = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        _, *inside = about["NSpid"].split()
        if not inside:
            raise OSError(errno.ENOTSUP, f"process {pid} has no process namespace of its own")
        if inside[-1] == "1":
            return pid
        pid = int(about["PPid"])


_libc = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MNT_DETACH = 2, 4, 8, 2
FOLDERS = ("home", "tmp", "run")
LOG = "log"  # on a desktop's disk: what its sandbox says
INODES = 20_000
REMOVE_S = 20.0  # for each try at what is awkward to remove


def make_disk(folder: Path, uid: int, size_bytes: int) -> list[str]:
    """Make `folder` with home, tmp and run in it, owned by `uid`; warnings."""
    folder.mkdir()
    folder.chmod(0o711)
    options = f"size={size_bytes},nr_inodes={INODES},mode=711".encode()
    warnings = []
    done = _libc.mount(b"computerrl", os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
    if done != 0:
        warnings.append(f"no limit of disk: {os.strerror(ctypes.get_errno())}")
    for name in FOLDERS:
        below = folder / name
        below.mkdir(mode=0o700)
        os.chown(below, uid, -1)
    (folder / "tmp" / ".X11-unix").mkdir()
    os.chmod(folder / "tmp" / ".X11-unix", 0o1777)  # noqa: S103 - as X wants it; the guest has one user
    os.chown(folder / "tmp" / ".X11-unix", uid, -1)
    return warnings


def make_terminals(folder: Path, most: int) -> list[str]:
    """Make `folder` and a file system of at most so many terminals in it; warnings.

    The kernel counts terminals of the whole machine: without a limit one desktop can take those of the others.
    """
    folder.mkdir()
    options = f"newinstance,ptmxmode=0666,mode=620,max={most}".encode()
    if _libc.mount(b"computerrl", os.fsencode(folder), b"devpts", _MS_NOSUID | _MS_NOEXEC, options) != 0:
        return [f"no limit of terminals: {os.strerror(ctypes.get_errno())}"]
    return []


def fill_home(home: Path, template: Path, uid: int) -> None:
    """Copy the template into HOME and give it to `uid`, with a group of its own where that is allowed."""
    group = uid if uid != os.geteuid() else -1
    shutil.copytree(template, home, symlinks=True, dirs_exist_ok=True)
    for folder, folders, files in os.walk(home):
        for name in (*folders, *files):
            os.lchown(os.path.join(folder, name), uid, group)
    os.chown(home, uid, group)
    home.chmod(0o700)


def unmount(folder: Path) -> None:
    """Unmount, even while something still uses it; nothing where nothing is mounted."""
    if os.path.ismount(folder) and _libc.umount2(os.fsencode(folder), _MNT_DETACH) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def remove_folder(folder: Path) -> None:
    """Delete a folder with all in it; what is mounted in it must have been unmounted. Raises OSError."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # without a disk of its own a guest may have left what is locked or nested deeply
        try:
            for command in (["chmod", "-R", "u+rwx", "--"], ["rm", "-rf", "--"]):
                subprocess.run([*command, str(folder)], capture_output=True, check=False, timeout=REMOVE_S)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{folder} was not removed within {REMOVE_S:g} s") from error
        if folder.exists():
            raise


GONE_S = 10.0
BURY_S = 2.0
_LOOK_S = 0.005


class Sandbox:
    """What one desktop holds on this host."""

    def __init__(self, name: str, folder: Path, lease: UserLease) -> None:
        self.name = name
        self.folder, self.disk, self.plug = folder, folder / "disk", folder / "ssh"
        self.terminals, self.trial = folder / "pts", folder / "trial"
        self.lease = lease
        self.groups: dict[str, str] = {}
        self.warnings = ["no user of its own: it is this program's"] if lease.shared else []
        self.process: subprocess.Popen[bytes] | None = None
        self.outer: Watched | None = None
        self.init: Watched | None = None
        self.preparing: asyncio.Future[Any] | None = None
        self.lifeline = -1  # the first connection to the session, which ends with it

    @property
    def alive(self) -> bool:
        """Whether both run: the outer process ends first when the first one inside has given up."""
        return self.init is not None and self.init.alive and self.process is not None and self.process.poll() is None

    def limit(self, spec: abc.DesktopSpec, room: shares.Room) -> None:
        """Make its control groups. Blocks. Raises cgroups.Full where there is no `room` for another desktop now."""
        own = cgroups.GroupBounds(spec.memory_bytes, spec.processes)
        most = cgroups.GroupBounds(room.memory_mib << 20, room.processes)
        self.groups, warnings = cgroups.make(self.name, own, most)
        self.warnings += warnings

    def prepare(self, template: Path, host_key: bytes, authorized: bytes, spec: abc.DesktopSpec) -> None:
        """Folders and keys. Blocks for some milliseconds."""
        self.folder.mkdir()
        self.folder.chmod(0o711)  # whatever the umask is: the desktop's own user passes through it
        self.warnings += make_disk(self.disk, self.lease.uid, spec.disk_bytes)
        self.warnings += make_terminals(self.terminals, spec.terminals)
        fill_home(self.disk / "home", template, self.lease.uid)
        sshd = command.sshd(listens_at=f"127.0.0.1:{abc.PROXY_PORT}" if spec.network else "")
        for file, data in (("host_key", host_key), ("authorized_keys", authorized), ("sshd_config", sshd)):
            path = self.disk / "run" / file
            path.touch(mode=0o600)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
            os.chown(path, self.lease.uid, -1)

    def make_door(self) -> Path:
        """The folder in which the session makes its socket. Raises OSError."""
        door = self.folder / "d"
        door.mkdir()
        door.chmod(0o755)  # whatever the umask is
        os.chown(door, self.lease.uid, -1)
        return door

    def take_door(self, door: Path) -> None:
        """Take the session's socket out of its folder, where from here on the guest can put nothing. Raises OSError."""
        os.chown(door, os.geteuid(), -1)
        os.replace(door / PLUG, self.plug)
        if not stat.S_ISSOCK(os.lstat(self.plug).st_mode):
            raise OSError(errno.ENOTSOCK, "the session made no socket", str(self.plug))

    async def kill(self) -> None:
        """End all processes: the first one ends the others, and the outer one then buries it and ends by itself."""
        if self.init is not None:
            self.init.kill()
        elif self.outer is not None:
            self.outer.kill()
        cgroups.thaw(self.groups)  # a frozen process dies only when it runs again
        if self.init is not None:
            await self.init.ended(GONE_S)
            self.init.close()
        if self.outer is not None and self.process is not None:
            try:
                await self.outer.ended(BURY_S)
            except TimeoutError:
                self.outer.kill()
                await self.outer.ended(GONE_S)
            self.outer.close()
            await self._bury(self.process)

    async def _bury(self, outer: subprocess.Popen[bytes]) -> None:
        """Bury the outer process, which has ended, and end what it has left.

        One that was killed as it started has a child that is blocked for ever, in no control group: it still waits for
        a word of its parent, and has not yet asked to end with it. It is in its parent's process group.
        """
        if self.init is not None or outer.returncode is not None:  # buried before: its number may be another's
            outer.wait()
            return
        os.killpg(outer.pid, signal.SIGKILL)  # its number is still its own
        outer.wait()
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            async with asyncio.timeout(BURY_S):
                while True:  # what is killed is the guest's user's, whom another desktop may get next
                    os.killpg(outer.pid, 0)
                    await asyncio.sleep(_LOOK_S)

    def remove(self) -> None:
        """Delete what lay on this host. Blocks. Raises DesktopFault when a control group can't go."""
        for mounted in (self.disk, self.terminals, self.trial):  # first: what lies on the disk counts for the group
            unmount(mounted)
        left = cgroups.remove(self.groups)
        if self.folder.exists():
            remove_folder(self.folder)
        if left:
            raise fault(FaultCause.SANDBOX_REFUSED, f"control groups stay: {', '.join(left)}")

    def close(self) -> None:
        if self.lifeline >= 0:
            os.close(self.lifeline)
        self.lifeline = -1
        self.lease.release()

    def last_words(self) -> str:
        try:
            with (self.disk / LOG).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
                return log.read(2000).decode("utf-8", "replace").strip()[-300:]
        except OSError:
            return ""
