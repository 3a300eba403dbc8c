"""Screenshots, read from the frame buffer file that Xvfb keeps: no X call, pointer included.

Invariant: pixels come from the mapped file as they are at that moment; a damaged header is an error, not a picture.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import zlib
from pathlib import Path

from guest.errors import Refused

FORMATS = ("png", "jpeg", "raw")
_HEADER = struct.Struct(">25I")  # X window dump, version 7


class Pixels:
    """The desktop's frame buffer."""

    def __init__(self) -> None:
        path = Path(os.environ["XDG_RUNTIME_DIR"]) / "fb" / "Xvfb_screen0"
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = _HEADER.unpack(self._map[: _HEADER.size])
        self.width, self.height, self._stride = header[4], header[5], header[12]
        self._start = header[0] + 12 * header[19]
        if self._start + self._stride * self.height > len(self._map):
            raise Refused("failed", "the frame buffer file is damaged")

    def raw(self) -> bytes:
        """All pixels, BGRX."""
        return self._map[self._start : self._start + self._stride * self.height]

    def checksum(self) -> int:
        """A number that changes with the picture."""
        return zlib.crc32(self.raw())

    def picture(self, format: str = "jpeg", quality: int = 80, scale: float = 1.0) -> bytes:  # noqa: A002 - the wire's name
        """The screen as `png`, `jpeg` or `raw` (BGRX); `quality` is JPEG's, `scale` shrinks (0.1 to 1)."""
        if format not in FORMATS or not 0.1 <= scale <= 1.0 or not 1 <= quality <= 95:
            raise Refused("bad_request", f"one of {FORMATS}, scale 0.1 to 1, quality 1 to 95")
        if format == "raw":
            return self.raw()
        from PIL import Image

        image = Image.frombuffer("RGB", (self.width, self.height), self.raw(), "raw", "BGRX", self._stride, 1)
        if scale != 1.0:
            image = image.resize((int(self.width * scale), int(self.height * scale)), Image.BILINEAR)
        out = io.BytesIO()
        if format == "png":
            image.save(out, "PNG", compress_level=1)
        else:
            image.save(out, "JPEG", quality=quality)
        return out.getvalue()
