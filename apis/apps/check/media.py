"""Makes small media files for checks and tasks: sound (.wav) and moving pictures (.y4m), by the standard library alone.

Invariant: the same arguments always give the same bytes.
"""

from __future__ import annotations

import io
import math
import wave

SOUND_HZ = 4000  # samples per second, 8 bits each, one channel
PICTURES_HZ = 2


def sound(seconds: int, hz: int = 440) -> bytes:
    """A tone (RIFF WAVE, PCM)."""
    turn = [round(128 + 60 * math.sin(2 * math.pi * hz * n / SOUND_HZ)) for n in range(SOUND_HZ)]
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(SOUND_HZ)
        file.writeframes(bytes(turn) * seconds)
    return out.getvalue()


def pictures(seconds: int, width: int = 64, height: int = 48) -> bytes:
    """Grey pictures that grow brighter (YUV4MPEG2, 4:2:0)."""
    colour = bytes([128]) * (width * height // 2)
    frames = (b"FRAME\n" + bytes([16 + n * 4 % 200]) * (width * height) + colour for n in range(PICTURES_HZ * seconds))
    return f"YUV4MPEG2 W{width} H{height} F{PICTURES_HZ}:1 Ip A1:1 C420jpeg\n".encode() + b"".join(frames)
