"""The files of an archive: zip, or tar as it is or packed by gzip, bzip2 or xz.

Invariant: no more is unpacked than the bounds allow, whatever the headers claim, and nothing is written anywhere.
Links, devices, sparse files and paths that lead outside refuse the archive. An archive within it is not unpacked.
"""

from __future__ import annotations

import base64
import bz2
import io
import lzma
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from apis.documents.read import pdf, picture
from apis.documents.read.archive import PIECE, Archive
from apis.documents.read.bounds import Budget, RefusedError

XZ_BYTES = 128 << 20  # what its decoder may take for its window
PIXELS = 6 << 20  # of all its pictures together that are handed on; of further pictures there is the digest alone
_TAR = "tar"
_PICTURES, _LENGTH = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), struct.Struct("<L")
# Form, its first bytes, and what unpacks a piece of at most so many bytes; a decoder says by `eof` that it is done.
_PACKERS: tuple[tuple[str, bytes, Callable[[], Any]], ...] = (
    ("tar.gz", b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    ("tar.bz2", b"BZh", bz2.BZ2Decompressor),
    ("tar.xz", b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_BYTES)),
)


def read(data: bytes, budget: Budget) -> dict[str, Any]:
    """The archive as `apis.tasks.verify.paper.PackedFiles` has it. Raises RefusedError."""
    form, entries = _opened(data, budget)
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    for count, (name, content) in enumerate(entries):
        path = _inside(name)
        if count >= budget.bounds.members or len(path) > budget.bounds.cell_chars:
            raise RefusedError("too_big")
        if not path:
            continue  # "." itself
        if path in files or (content is None and path in folders):
            raise RefusedError("not_an_archive")
        if content is None:
            folders.add(path)
        else:
            files[path] = content
    if any(str(above) in files for path in files for above in PurePosixPath(path).parents):
        raise RefusedError("not_an_archive")
    left, shown = PIXELS, dict[str, dict[str, Any]]()
    for path in sorted(files):  # so that equal archives hand on the same pictures' pixels
        shown[path] = _file(files[path], budget, left)
        left -= len(shown[path].get("picture", {}).get("pixels", "")) // 4  # four letters a pixel
    return {
        "form": form,
        "files": shown,
        "folders": sorted(path for path in folders if not any(other.startswith(f"{path}/") for other in files)),
    }


def _file(content: bytes, budget: Budget, pixels: int) -> dict[str, Any]:
    """A file's bytes, and what it shows where its first bytes say that it is a PDF or a picture."""
    found: dict[str, Any] = {"data": base64.b64encode(content).decode()}
    try:
        if content.startswith(b"%PDF-"):
            found["pdf"] = pdf.read(content, budget)
        elif content.startswith(_PICTURES) or (
            content[:2] == b"BM" and _LENGTH.unpack(content[2:6].ljust(4))[0] == len(content)
        ):
            found["picture"] = picture.read(content, pixels)
    except RefusedError as refused:
        found["refusal"] = str(refused)
    return found


def _inside(name: str) -> str:
    """A path in the archive without what says nothing. Raises RefusedError for a path that leads outside."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise RefusedError("not_an_archive")
    return "/".join(parts)


def _opened(data: bytes, budget: Budget) -> tuple[str, Iterator[tuple[str, bytes | None]]]:
    """The form, and names with their bytes, of a folder None."""
    if data.startswith(b"PK"):
        return "zip", _zip(data, budget)
    for form, magic, decoder in _PACKERS:
        if data.startswith(magic):
            return form, _tar(_unpacked(data, decoder, budget), budget)
    return _TAR, _tar(data, budget)


def _zip(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes | None]]:
    try:
        archive = Archive(data, budget)
        for name in archive.names:
            yield name, None if name.endswith("/") else archive.read(name, budget.bounds.member_bytes)
    except RefusedError as refused:
        raise RefusedError("not_an_archive" if str(refused) == "not_a_workbook" else str(refused)) from None


def _unpacked(data: bytes, decoder: Callable[[], Any], budget: Budget) -> bytes:
    """The one stream of a packed tar; what stands behind its end refuses it."""
    unpacks, found, bounds, fed, rest = decoder(), bytearray(), budget.bounds, 0, b""
    try:
        while not unpacks.eof:
            if not rest:
                rest = data[fed : fed + PIECE]
                fed += len(rest)
            given = rest if getattr(unpacks, "needs_input", True) else b""
            piece = unpacks.decompress(given, PIECE)
            if not piece and not given:
                raise RefusedError("not_an_archive")  # cut off
            rest = getattr(unpacks, "unconsumed_tail", b"" if given else rest)
            found += piece
            budget.spend("unpacked_bytes", len(piece))
            if len(found) > bounds.ratio_from + bounds.ratio * fed:
                raise RefusedError("zip_bomb")
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        raise RefusedError("not_an_archive") from None
    if unpacks.unused_data.strip(b"\0") or data[fed:].strip(b"\0"):
        raise RefusedError("not_an_archive")
    return bytes(found)


def _tar(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes | None]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            while (entry := archive.next()) is not None:
                if entry.isdir():
                    yield entry.name, None
                    continue
                if not entry.isreg() or entry.issparse():
                    raise RefusedError("not_an_archive")
                if entry.size > min(budget.bounds.member_bytes, len(data)):
                    raise RefusedError("too_big")
                budget.spend("unpacked_bytes", entry.size)
                held = archive.extractfile(entry)
                content = b"" if held is None else held.read(entry.size)
                if len(content) != entry.size:
                    raise RefusedError("not_an_archive")
                yield entry.name, content
    except (RefusedError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - of a broken archive tarfile raises more than its own errors
        raise RefusedError("not_an_archive") from None
