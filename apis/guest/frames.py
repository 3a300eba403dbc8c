"""Frames between host and agent: a 4-byte big-endian length, then one MessagePack map.

Invariant: neither side ever holds more than `MAX_FRAME_BYTES` of a frame. A longer frame is an error before it is read.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgpack

MAX_FRAME_BYTES = 8 << 20
_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """The peer sent something that is no frame."""


def read(stream: BinaryIO) -> dict | None:
    """The next frame, or None at the end of the stream. Raises FrameError."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes")
    body = stream.read(size)
    if len(body) < size:
        return None
    value = msgpack.unpackb(body, max_str_len=size, max_bin_len=size)
    if not isinstance(value, dict):
        raise FrameError("a frame is a map")
    return value


def pack(value: dict) -> bytes:
    """`value` as a frame. Raises FrameError when it is too long."""
    body = msgpack.packb(value, unicode_errors="replace")
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a reply of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body
