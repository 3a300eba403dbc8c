"""Files of a machine that is reached by SSH: the upload of a session, and reading its HOME.

Invariant: of HOME only regular files are read, within the limits, and no link is followed on the way; the session's
processes must have been stopped before, because a path is looked at and then opened.
"""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path, PurePosixPath

import asyncssh

from actors.desktop.providers import home
from actors.desktop.providers.outside import FileSeen, ReadLimits, Refusal

GUEST_SOURCE = Path(__file__).resolve().parents[3] / "apis" / "guest"
_PRIVATE = 0o700
READ_S = 30.0  # one file
_MISSING = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)


class _Refused(Exception):  # noqa: N818 - an answer, not a defect
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


async def upload(connection: asyncssh.SSHClientConnection, folder: str) -> None:
    """Make `folder` with guest, home and run in it. Raises OSError, asyncssh.Error."""
    sources = [path for kind in ("*.py", "*.json") for path in GUEST_SOURCE.rglob(kind)]
    files = {f"guest/{path.relative_to(GUEST_SOURCE)}": path.read_bytes() for path in sources}
    found = home.load()
    files |= {f"home/{path}": content.encode() for path, content in found.files.items()}
    folders = {"run", "home", *(f"home/{path}" for path in found.folders)}
    for path in (*files, *folders):
        folders.update(str(parent) for parent in PurePosixPath(path).parents if str(parent) != ".")
    async with connection.start_sftp_client() as sftp:
        await sftp.mkdir(folder, asyncssh.SFTPAttrs(permissions=_PRIVATE))
        for path in sorted(folders):
            await sftp.mkdir(f"{folder}/{path}", asyncssh.SFTPAttrs(permissions=_PRIVATE))
        await asyncio.gather(*(_put(sftp, f"{folder}/{path}", data) for path, data in files.items()))


async def _put(sftp: asyncssh.SFTPClient, path: str, data: bytes) -> None:
    async with sftp.open(path, "wb") as file:
        await file.write(data)


async def read_home(
    connection: asyncssh.SSHClientConnection, folder: str, paths: list[str], limits: ReadLimits
) -> list[FileSeen]:
    """Regular files and folder listings below `folder`, as `outside.read_home`. Raises OSError, asyncssh.Error."""
    if len(paths) > limits.paths:
        raise ValueError(f"{len(paths)} paths, at most {limits.paths}")
    seen: list[FileSeen] = []
    left = limits.total_bytes
    async with connection.start_sftp_client() as sftp:
        for path in paths:
            try:
                one = await _read_one(sftp, folder, path, min(left, limits.file_bytes), limits.listing)
            except _Refused as refused:
                one = FileSeen(path=path, refusal=refused.refusal)
            except _MISSING:
                one = FileSeen(path=path, refusal=Refusal.MISSING)
            except asyncssh.SFTPPermissionDenied:
                one = FileSeen(path=path, refusal=Refusal.FORBIDDEN)
            left -= len(one.data or b"")
            seen.append(one)
    return seen


async def _read_one(sftp: asyncssh.SFTPClient, folder: str, path: str, most: int, listing: int) -> FileSeen:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise _Refused(Refusal.BAD_PATH)
    at, kind, size = folder, stat.S_IFDIR, 0
    for part in pure.parts:
        if not stat.S_ISDIR(kind):
            raise _Refused(Refusal.MISSING)
        at = f"{at}/{part}"
        found = await sftp.lstat(at)
        kind, size = found.permissions or 0, found.size or 0
        if stat.S_ISLNK(kind):
            raise _Refused(Refusal.LINK)
    if stat.S_ISDIR(kind):
        return FileSeen(path=path, names=await _names(sftp, at, listing))
    if not stat.S_ISREG(kind):
        raise _Refused(Refusal.NOT_REGULAR)
    if size > most:
        raise _Refused(Refusal.TOO_BIG)
    async with asyncio.timeout(READ_S), sftp.open(at, "rb") as file:
        data = bytes(await file.read(most + 1))  # type: ignore[arg-type]
    if len(data) > most:
        raise _Refused(Refusal.TOO_BIG)
    return FileSeen(path=path, data=data)


async def _names(sftp: asyncssh.SFTPClient, folder: str, most: int) -> list[str]:
    names: list[str] = []
    async for entry in sftp.scandir(folder.encode()):  # names as they are: not all are text
        name = entry.filename if isinstance(entry.filename, str) else entry.filename.decode("utf-8", "backslashreplace")
        if name in (".", ".."):
            continue
        if len(names) >= most:
            raise _Refused(Refusal.TOO_BIG)
        names.append(name + "/" if stat.S_ISDIR(entry.attrs.permissions or 0) else name)
    return sorted(names)
