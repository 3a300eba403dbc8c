"""A small picture for checks that insert one.

Invariant: the same arguments give the same bytes. Form: PNG (ISO/IEC 15948), 8 bits, RGB.
"""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int, rgb: int) -> bytes:
    """A picture of `width` x `height` pixels in one colour, 0xRRGGBB."""
    row = b"\0" + rgb.to_bytes(3, "big") * width
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * height)),
        (b"IEND", b""),
    )
    made = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)
