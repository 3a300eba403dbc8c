"""What one sandbox holds on this host.

Invariant: everything is reachable from here, however far the boot has come. So one call each ends its processes,
removes its folders, and gives back its descriptors and its user.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

from actors.desktop import provider as abc
from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers.sandbox import cgroups, command, disk, grouping, leftovers, shares
from actors.desktop.providers.sandbox.process import Watched
from actors.desktop.users import UserLease

GONE_S = 10.0
BURY_S = 2.0


class Sandbox:
    """What one desktop holds on this host."""

    def __init__(self, name: str, folder: Path, lease: UserLease) -> None:
        self.name = name
        self.folder = folder
        self.lease = lease
        self.groups: dict[str, str] = {}
        self.warnings = ["no user of its own: it is this program's"] if lease.shared else []
        self.process: subprocess.Popen[bytes] | None = None
        self.outer: Watched | None = None
        self.init: Watched | None = None
        self.preparing: asyncio.Future[None] | None = None
        self.listener: socket.socket | None = None
        self.lifeline = -1  # the session ends when no process holds it any more
        self.says = -1  # what bwrap reports to

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def plug(self) -> Path:
        return self.folder / "ssh"

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        return self.init is not None and self.init.alive

    @property
    def terminals(self) -> Path:
        return self.folder / "pts"

    @property
    def trial(self) -> Path:
        return self.folder / "trial"

    def limit(self, spec: abc.DesktopSpec, room: shares.Room) -> None:
        """Make its control groups. Blocks. Raises grouping.Full where there is no `room` for another desktop now."""
        own = grouping.GroupBounds(spec.memory_bytes, spec.processes)
        most = grouping.GroupBounds(room.memory_mib << 20, room.processes)
        self.groups, warnings = grouping.make(self.name, own, most)
        self.warnings += warnings

    def prepare(self, template: Path, host_key: bytes, authorized: bytes, spec: abc.DesktopSpec) -> None:
        """Folders, keys and the listening socket. Blocks for some milliseconds."""
        self.folder.mkdir()
        self.folder.chmod(0o711)  # whatever the umask is: the desktop's own user passes through it
        self.warnings += disk.make(self.disk, self.lease.uid, spec.disk_bytes)
        self.warnings += disk.make_terminals(self.terminals, spec.terminals)
        disk.fill_home(self.disk / "home", template, self.lease.uid)
        for file, data in (("host_key", host_key), ("authorized_keys", authorized), ("sshd_config", command.SSHD)):
            path = self.disk / "run" / file
            path.touch(mode=0o600)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
            os.chown(path, self.lease.uid, -1)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.plug))
        self.plug.chmod(0o600)  # whatever the umask is
        self.listener.listen(16)

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
            self.process.wait()  # it has ended

    def remove(self) -> None:
        """Delete what lay on this host. Blocks. Raises DesktopFault when a control group can't go."""
        for mounted in (self.disk, self.terminals, self.trial):  # first: what lies on the disk counts for the group
            disk.unmount(mounted)
        left = grouping.remove(self.groups)
        if self.folder.exists():
            disk.remove(self.folder)
        if left:
            raise fault(FaultCause.SANDBOX_REFUSED, f"control groups stay: {', '.join(left)}")

    def close(self) -> None:
        """Give back descriptors and the user."""
        if self.listener is not None:
            self.listener.close()
        for fd in (self.says, self.lifeline):
            if fd >= 0:
                os.close(fd)
        self.says = self.lifeline = -1
        self.lease.release()

    def last_words(self) -> str:
        """The end of what the sandbox said."""
        try:
            with (self.disk / leftovers.LOG).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
                return log.read(2000).decode("utf-8", "replace").strip()[-300:]
        except OSError:
            return ""
