"""A ZIP archive's members, unpacked piece by piece.

Invariant: whatever the headers claim, no more is unpacked than the bounds allow. No byte of the archive belongs to two
members. For any bytes, RefusedError is the only error raised. ZIP64, encryption, several disks and methods other than
"stored" and "deflated" are refused, because no office program needs them for files of this size.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from apis.documents.read.bounds import Budget, RefusedError

_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_END_MAGIC, _ENTRY_MAGIC, _LOCAL_MAGIC = b"PK\x05\x06", b"PK\x01\x02", b"PK\x03\x04"
_COMMENT_MAX = 0xFFFF
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _STRONG = 0x1, 0x40
_UNIX = 3
_IN_64 = 0xFFFFFFFF
PIECE = 1 << 16


@dataclass(frozen=True)
class _Member:
    start: int  # of its packed bytes
    packed: int
    unpacked: int
    crc: int
    method: int


class Archive:
    """The members of a ZIP file by name."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self._data = data
        self._budget = budget
        self.spans: list[tuple[int, int]] = []  # of all members and the directory, from where to where
        self._members = self._directory()

    @property
    def names(self) -> list[str]:
        """The members' names."""
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return self._member(name) is not None

    def _member(self, name: str) -> _Member | None:
        """The member of that name, in capitals or small letters, as formats that name their parts have it."""
        alike = [name] if name in self._members else [one for one in self._members if one.lower() == name.lower()]
        return self._members[alike[0]] if len(alike) == 1 else None

    def _directory(self) -> dict[str, _Member]:
        data = self._data
        at = data.rfind(_END_MAGIC, max(0, len(data) - _COMMENT_MAX - _END.size))
        if at < 0 or at + _END.size > len(data):
            raise RefusedError("not_a_workbook")
        _, disk, first_disk, here, count, size, start, _ = _END.unpack_from(data, at)
        if disk or first_disk or here != count or start + size > at or _IN_64 in (size, start):
            raise RefusedError("not_a_workbook")
        if count > self._budget.bounds.members:
            raise RefusedError("too_big")
        members: dict[str, _Member] = {}
        spans = [(start, at)]
        place = start
        for _ in range(count):
            if place + _ENTRY.size > start + size:
                raise RefusedError("not_a_workbook")
            name, member, local, place = self._entry(place)
            if name in members:
                raise RefusedError("not_a_workbook")
            members[name] = member
            spans.append((local, member.start + member.packed))
        spans.sort()
        for (_, end), (begin, _) in pairwise(spans):
            if begin < end:
                raise RefusedError("zip_bomb")  # one stretch of packed bytes, counted as many members
        self.spans = spans
        return members

    def _entry(self, place: int) -> tuple[str, _Member, int, int]:
        """The name, the member, where its own header lies, and where the next entry does."""
        (
            magic, made, _, flags, method, _, _, crc, packed, unpacked,
            name_size, extra_size, comment_size, _, _, mode, local,
        ) = _ENTRY.unpack_from(self._data, place)  # fmt: skip
        if magic != _ENTRY_MAGIC or _IN_64 in (packed, unpacked, local):
            raise RefusedError("not_a_workbook")
        if flags & (_ENCRYPTED | _STRONG):
            raise RefusedError("encrypted")
        if made >> 8 == _UNIX and stat.S_ISLNK(mode >> 16):
            raise RefusedError("not_a_workbook")
        text = place + _ENTRY.size
        name = self._data[text : text + name_size].decode("utf-8", "backslashreplace")
        if name.startswith("/") or ".." in name.replace("\\", "/").split("/") or "\0" in name:
            raise RefusedError("not_a_workbook")
        if local + _LOCAL.size > len(self._data):
            raise RefusedError("not_a_workbook")
        own = _LOCAL.unpack_from(self._data, local)
        begin = local + _LOCAL.size + own[9] + own[10]
        if own[0] != _LOCAL_MAGIC or begin + packed > len(self._data):
            raise RefusedError("not_a_workbook")
        return name, _Member(begin, packed, unpacked, crc, method), local, text + name_size + extra_size + comment_size

    def pieces(self, name: str) -> Iterator[bytes]:
        """The unpacked bytes of a member, in pieces of at most 64 KiB. A name that is not there is refused."""
        member = self._member(name)
        if member is None or member.method not in (_STORED, _DEFLATED):
            raise RefusedError("not_a_workbook")
        bounds, done, crc = self._budget.bounds, 0, 0
        packed = memoryview(self._data)[member.start : member.start + member.packed]
        for piece in _stored(packed) if member.method == _STORED else _inflated(packed):
            done += len(piece)
            self._budget.spend("unpacked_bytes", len(piece))
            if done > bounds.member_bytes or done > bounds.ratio_from + bounds.ratio * member.packed:
                raise RefusedError("zip_bomb")
            if done > member.unpacked:
                raise RefusedError("not_a_workbook")
            crc = zlib.crc32(piece, crc)
            yield piece
        if done != member.unpacked or crc != member.crc:
            raise RefusedError("not_a_workbook")

    def read(self, name: str, most: int) -> bytes:
        """All of a small member. Raises RefusedError when it has more than `most` bytes."""
        data = bytearray()
        for piece in self.pieces(name):
            data += piece
            if len(data) > most:
                raise RefusedError("too_big")
        return bytes(data)


def _stored(packed: memoryview) -> Iterator[bytes]:
    for at in range(0, len(packed), PIECE):
        yield bytes(packed[at : at + PIECE])


def _inflated(packed: memoryview) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    fed, rest = 0, b""
    while not inflate.eof:
        if not rest and fed < len(packed):
            rest = bytes(packed[fed : fed + PIECE])
            fed += len(rest)
        had = len(rest)
        try:
            piece = inflate.decompress(rest, PIECE)
        except zlib.error:
            raise RefusedError("not_a_workbook") from None
        rest = inflate.unconsumed_tail
        if piece:
            yield piece
        elif len(rest) == had and fed >= len(packed):
            raise RefusedError("not_a_workbook")  # cut off
