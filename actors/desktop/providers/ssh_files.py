"""Reading the HOME of a session on an SSH machine.

Invariant: only regular files of HOME are read, within the limits, and no link is followed on the way. The session's
processes must have been stopped before, because a path is looked at and then opened.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import stat
from pathlib import Path, PurePosixPath

import asyncssh
import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.files import census
from actors.desktop.files.read_home import CensusLimits, FileSeen, ReadLimits, ReadRefusal
from apis.tasks.verify.manifest import MANIFEST, Manifest
from apis.tasks.verify.verify import WantedFile

READ_S = 30.0  # one file
MANIFEST_BYTES = 16 << 20
MANIFEST_S = 60.0
# The program comes on standard input, so that none of it lies where the session could change it.
_CENSUS = """
import json, os, sys
try:
    home = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
except OSError as error:
    print(json.dumps({"cut": f"HOME can't be opened: {error.strerror}"}))
else:
    print(json.dumps(take(home, *json.loads(sys.argv[2]))))
"""
PROGRAM = Path(census.__file__).read_bytes() + _CENSUS.encode()
_MISSING = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)


class _Refused(Exception):  # noqa: N818 - an answer, not a defect
    def __init__(self, refusal: ReadRefusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


async def read_home(
    connection: asyncssh.SSHClientConnection, python: str, folder: str, wanted: list[WantedFile], limits: ReadLimits
) -> list[FileSeen]:
    """Files, folders and manifest below `folder`, as `Provider.read_home` gives them; documents stay bytes.

    Raises OSError, asyncssh.Error, and DesktopFault for a manifest that is not understood.
    """
    if len(wanted) > limits.paths:
        raise ValueError(f"{len(wanted)} paths, at most {limits.paths}")
    manifests = [
        FileSeen(path=want.path, manifest=await _manifest(connection, python, folder, limits.census, want.sought))
        for want in wanted
        if want.as_ == MANIFEST
    ]
    paths = [want.path for want in wanted if want.as_ != MANIFEST]
    files = iter(await _files(connection, folder, paths, limits))
    return [manifests.pop(0) if want.as_ == MANIFEST else next(files) for want in wanted]


async def _manifest(
    connection: asyncssh.SSHClientConnection, python: str, folder: str, limits: CensusLimits, sought: tuple[str, ...]
) -> Manifest:
    bounds = json.dumps([msgspec.structs.asdict(limits), sought])
    command = shlex.join([python, "-I", "-S", "-c", "import sys; exec(sys.stdin.read())", folder, bounds])
    async with asyncio.timeout(MANIFEST_S):
        async with await connection.create_process(command, encoding=None) as process:
            process.stdin.write(PROGRAM)
            process.stdin.write_eof()
            output = b""
            while piece := await process.stdout.read(1 << 20):
                output += piece
                if len(output) > MANIFEST_BYTES:
                    raise fault(FaultCause.OUTSIDE_VIEW, f"a manifest of more than {MANIFEST_BYTES} bytes")
            troubles = (await process.stderr.read(2000)).decode("utf-8", "replace").strip()[-200:]
    try:
        return msgspec.json.decode(output, type=Manifest)
    except msgspec.DecodeError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"no manifest: {error}; {troubles}"[:300]) from error


async def _files(
    connection: asyncssh.SSHClientConnection, folder: str, paths: list[str], limits: ReadLimits
) -> list[FileSeen]:
    seen: list[FileSeen] = []
    left = limits.total_bytes
    async with connection.start_sftp_client() as sftp:
        for path in paths:
            try:
                file = await _read_one(sftp, folder, path, min(left, limits.file_bytes), limits.listing)
            except _Refused as refused:
                file = FileSeen(path=path, refusal=refused.refusal)
            except _MISSING:
                file = FileSeen(path=path, refusal=ReadRefusal.MISSING)
            except asyncssh.SFTPPermissionDenied:
                file = FileSeen(path=path, refusal=ReadRefusal.FORBIDDEN)
            left -= len(file.data or b"")
            seen.append(file)
    return seen


async def _read_one(sftp: asyncssh.SFTPClient, folder: str, path: str, most: int, listing: int) -> FileSeen:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise _Refused(ReadRefusal.BAD_PATH)
    at, kind, size = folder, stat.S_IFDIR, 0
    for part in pure.parts:
        if not stat.S_ISDIR(kind):
            raise _Refused(ReadRefusal.MISSING)
        at = f"{at}/{part}"
        attributes = await sftp.lstat(at)
        kind, size = attributes.permissions or 0, attributes.size or 0
        if stat.S_ISLNK(kind):
            raise _Refused(ReadRefusal.LINK)
    if stat.S_ISDIR(kind):
        return FileSeen(path=path, names=await _names(sftp, at, listing))
    if not stat.S_ISREG(kind):
        raise _Refused(ReadRefusal.NOT_REGULAR)
    if size > most:
        raise _Refused(ReadRefusal.TOO_BIG)
    async with asyncio.timeout(READ_S), sftp.open(at, "rb") as file:
        data = bytes(await file.read(most + 1))  # type: ignore[arg-type]
    if len(data) > most:
        raise _Refused(ReadRefusal.TOO_BIG)
    return FileSeen(path=path, data=data)


async def _names(sftp: asyncssh.SFTPClient, folder: str, most: int) -> list[str]:
    names: list[str] = []
    async for entry in sftp.scandir(folder.encode()):  # names as they are: not all are text
        name = entry.filename if isinstance(entry.filename, str) else entry.filename.decode("utf-8", "backslashreplace")
        if name in (".", ".."):
            continue
        if len(names) >= most:
            raise _Refused(ReadRefusal.TOO_BIG)
        names.append(name + "/" if stat.S_ISDIR(entry.attrs.permissions or 0) else name)
    return sorted(names)
