"""The pixels of a picture.

Invariant: how many pixels there are is known before any is unpacked. Only formats whose decoders are small are read.
"""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import warnings
import zlib
from typing import Any

from apis.documents.read.bounds import RefusedError

FORMATS = ("PNG", "JPEG", "GIF", "BMP")
MOST, SENT = 28 << 20, 8 << 20  # pixels that are unpacked, and that are handed on
_BROKEN = (
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)


def read(data: bytes, sent: int = SENT) -> dict[str, Any]:
    """Size, mode, the size of what is not transparent, and the first frame's pixels in RGB. Raises RefusedError.

    Of more than `sent` pixels there is the digest alone.
    """
    from PIL import Image  # it takes longer to load than other documents take to be read

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound below is far lower
            picture = Image.open(io.BytesIO(data), formats=FORMATS)
        if picture.width * picture.height > MOST:
            raise RefusedError("too_big")
        picture.load()
        shown = (0, 0, picture.width, picture.height)
        if picture.has_transparency_data:
            shown = picture.convert("RGBA").getchannel("A").getbbox() or (0, 0, 0, 0)
        pixels = picture.convert("RGB").tobytes()
    except Image.DecompressionBombError:
        raise RefusedError("too_big") from None
    except _BROKEN:
        raise RefusedError("not_a_picture") from None
    return {
        "width": picture.width,
        "height": picture.height,
        "mode": picture.mode,
        "shown": [shown[2] - shown[0], shown[3] - shown[1]],
        "digest": hashlib.sha256(pixels).hexdigest(),
        "size_bytes": len(data),
        "pixels": base64.b64encode(pixels if picture.width * picture.height <= sent else b"").decode(),
    }
