"""What a picture shows. Invariant: values only."""

from __future__ import annotations

import msgspec


class Raster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Width and height in pixels, Pillow's mode, the size of what is not transparent, and pixels in RGB, row by row.

    `digest` is that of all pixels (SHA-256); of a large picture `pixels` is empty.
    """

    width: int
    height: int
    mode: str
    shown: tuple[int, int]
    digest: str
    pixels: bytes
    size_bytes: int  # of the file
