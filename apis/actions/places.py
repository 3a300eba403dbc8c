"""Places on the screen in the unit that a model counts in.

A typed action holds pixels. What a prompt lists and an answer names are of one unit, so both are
converted here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Unit = Literal["pixels", "thousandths"]
WHOLE = 1000  # thousandths of a side of the screen
MEANING: Mapping[Unit, str] = {
    "pixels": "in screen pixels",
    "thousandths": f"from 0 to {WHOLE} across and down the screen",
}


def pixel(thousandths: int, side: int) -> int:
    """The pixel of a side of `side` pixels that 0 to `WHOLE` thousandths of it mean; both ends are on the screen."""
    return (thousandths * (side - 1) + WHOLE // 2) // WHOLE


def counted(pixels: int, side: int, unit: Unit) -> int:
    """`pixels` along a side of `side` pixels in `unit`, as a model reads it; what lies outside is put at the edge."""
    if unit == "pixels":
        return pixels
    return min(max((pixels * WHOLE + (side - 1) // 2) // (side - 1), 0), WHOLE)
