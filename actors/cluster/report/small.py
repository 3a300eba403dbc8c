"""Makes screenshots small.

Invariant: what a guest drew is decoded by its own rules alone. A picture of another kind or of too many pixels is none.
"""

from __future__ import annotations

from io import BytesIO

from PIL import Image

WIDTH = 320  # pixels
MOST_PIXELS = 8192 * 8192


def small(picture: bytes) -> bytes | None:
    """A JPEG of at most `WIDTH` pixels each way; None where `picture` is no JPEG or PNG of sane size."""
    try:
        with Image.open(BytesIO(picture), formats=("JPEG", "PNG")) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                return None
            opened.draft("RGB", (WIDTH, WIDTH))
            opened.thumbnail((WIDTH, WIDTH))
            out = BytesIO()
            opened.convert("RGB").save(out, "JPEG", quality=60)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # a broken PNG is a SyntaxError
        return None
    return out.getvalue()
