"""The guest's code and HOME on SSH machines: one archive, which a machine is sent once.

Invariant: a session runs only code whose digest was checked when it was unpacked. Boots that begin together on one
machine send the archive once.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import io
import shlex
import tarfile
from pathlib import Path, PurePosixPath

import asyncssh
import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers import home, ssh_place
from apis import guest_source

PYTHON = "/usr/bin/python3"
PROGRAM = Path(ssh_place.__file__).read_text()


class GuestArchive(msgspec.Struct, frozen=True):
    """A compressed tar file with the folders guest, home and run, and its SHA-256 in hexadecimal digits."""

    data: bytes
    digest: str

    def command(self, verb: str, folder: str, *words: str) -> str:
        """The shell line that runs `verb` of `ssh_place` on a machine."""
        return shlex.join([PYTHON, "-I", "-S", "-c", PROGRAM, verb, folder, self.digest, str(len(self.data)), *words])


@functools.cache
def archive() -> GuestArchive:
    """What this build gives to sessions: equal files make equal bytes. Raises ConfigError."""
    files = {f"guest/{name}": path.read_bytes() for name, path in guest_source.files().items()}
    found = home.load()
    files |= {f"home/{path}": content.encode() for path, content in found.files.items()}
    folders = {"run", "home", *(f"home/{path}" for path in found.folders)}
    for path in (*files, *folders):
        folders.update(str(parent) for parent in PurePosixPath(path).parents if str(parent) != ".")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(folders):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o700
            tar.addfile(entry)
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    data = gzip.compress(packed.getvalue(), mtime=0)
    return GuestArchive(data, hashlib.sha256(data).hexdigest())


class CodeOnMachine:
    """What this process knows of the archive on one machine."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sending = asyncio.Lock()
        self.there = False  # when the machine was last asked

    async def ensure(self, connection: asyncssh.SSHClientConnection) -> None:
        """Send the archive unless it is there. Raises DesktopFault, OSError, asyncssh.Error."""
        async with self._sending:
            if not self.there:
                await _keep(connection, self._folder)
                self.there = True


async def _keep(connection: asyncssh.SSHClientConnection, folder: str) -> None:
    code = await asyncio.to_thread(archive)
    async with await connection.create_process(code.command("keep", folder), encoding=None) as process:
        said = await process.stdout.readline()
        if said.decode().strip() == ssh_place.SEND:
            process.stdin.write(code.data)
            said = await process.stdout.readline()
        if said.decode().strip() != ssh_place.HELD:
            troubles = (await process.stderr.read(2000)).decode("utf-8", "replace").strip().splitlines()[-1:]
            why = "".join(troubles)[:200] or "it said nothing"
            raise fault(FaultCause.BOOT_FAILED, f"{folder}: the guest's code is not kept: {why}")
