"""How large an image file is, without drawing it.

Invariant: only a file's head is read, and a file that is no image is none, never an error. One that is too large to be
drawn is refused before any application reads it.
"""

from __future__ import annotations

import os
import re

from guest.paths import wrong
from PIL import Image, UnidentifiedImageError

HEAD_BYTES = 4096
MAX_BYTES = 64 << 20
MAX_PIXELS = 50_000_000  # four bytes each once it is drawn
DRAWN = (400, 300)  # pixels of a drawing that doesn't say its size
_WIDTH, _HEIGHT = (re.compile(rb'\s%s="(\d+(?:\.\d+)?)(?:px)?"' % name) for name in (b"width", b"height"))
_BOX = re.compile(rb'\sviewBox="[-\d.]+[ ,]+[-\d.]+[ ,]+(\d+(?:\.\d+)?)[ ,]+(\d+(?:\.\d+)?)"')


def size_of(path: str) -> tuple[int, int] | None:
    """Width and height in pixels; None for a file that is no image."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    if b"<svg" in head:
        return _of_drawing(head)
    try:
        with Image.open(path) as image:
            wide, high = image.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        return None
    return (wide, high) if wide > 0 and high > 0 else None


def refuse_large(path: str, argument: str) -> None:
    """Raise Refused for a file that is too large to be drawn into a document."""
    name = os.path.basename(path)[:80]
    if os.path.getsize(path) > MAX_BYTES:
        raise wrong(f"{argument}: at most {MAX_BYTES >> 20} MiB, and {name} is larger")
    if _too_large(path):
        raise wrong(f"{argument}: {name} has more than {MAX_PIXELS} pixels")


def _too_large(path: str) -> bool:
    """Whether an image has more than `MAX_PIXELS`, as far as its head can be read here; small files can."""
    try:
        with Image.open(path) as image:
            return image.size[0] * image.size[1] > MAX_PIXELS
    except Image.DecompressionBombError:
        return True
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        return False


def _of_drawing(head: bytes) -> tuple[int, int]:
    start = head[head.index(b"<svg") :].partition(b">")[0] + b">"
    width, height = _WIDTH.search(start), _HEIGHT.search(start)
    box = _BOX.search(start)
    found = (width[1], height[1]) if width and height else box.groups() if box else ()
    wide, high = (round(float(part)) for part in found) if found else DRAWN
    return (wide, high) if wide > 0 and high > 0 else DRAWN
