"""Metrics of pictures.

Invariant: what the policy wrote was unpacked elsewhere. Here are sizes and pixels. Only copies of a byte a channel grow
with the picture: all wider numbers are of a tile or a band, or counts of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from apis.tasks.metrics.metric import (
    Declared,
    Options,
    Score,
    UnreadableResult,
    Value,
    document,
    gold,
    is_,
)
from apis.tasks.verify.picture import Raster

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    Pixels = np.ndarray[Any, np.dtype[Any]]

KIND = "picture"
SIDE = 7  # of a window, in pixels
LUMINANCE, CONTRAST = (0.01 * 255) ** 2, (0.03 * 255) ** 2  # constants of the index, of 8 bits
TILE, BAND = 512, 1 << 18  # windows of a side, and pixels
COLORS = 1 << 24
MIDDLE, LEFT = 0.05, 0.05  # of a side: how far from the middle, or from the left, still counts as there
DARK = 128


def _image(found: Raster) -> Image:
    """The picture for Pillow. Raises UnreadableResult for one whose pixels were too many."""
    from PIL import Image

    if not found.pixels:
        raise UnreadableResult(f"it has {found.width} by {found.height} pixels, which are too many to compare")
    return Image.frombytes("RGB", (found.width, found.height), found.pixels)


def _both(result: Value, expected: Value) -> tuple[Image, Image]:
    return _image(document(result, KIND)), _image(gold(expected, KIND))


def _sums(values: Pixels) -> Pixels:
    """The sum of each window of `SIDE` by `SIDE`."""
    import numpy as np

    whole = np.pad(values.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    return whole[SIDE:, SIDE:] - whole[:-SIDE, SIDE:] - whole[SIDE:, :-SIDE] + whole[:-SIDE, :-SIDE]


def likeness(one: Image, other: Image) -> float:
    """The mean structural similarity of two pictures of one size and mode, over windows and channels, at most 1.

    Wang et al. 2004, with uniform windows and unbiased variances. 0 for a picture smaller than a window.
    """
    import numpy as np

    if one.size != other.size or min(one.size) < SIDE:
        return 0.0
    total, count, window = 0.0, 0, SIDE * SIDE
    for pair in zip(one.split(), other.split(), strict=True):
        first, second = (np.asarray(channel) for channel in pair)
        for top, left in product(*(range(0, length - SIDE + 1, TILE) for length in first.shape)):
            tile = slice(top, top + TILE + SIDE - 1), slice(left, left + TILE + SIDE - 1)
            x, y = (channel[tile].astype(np.float64) for channel in (first, second))
            mean_x, mean_y = _sums(x) / window, _sums(y) / window
            unbiased = window / (window - 1)
            var_x = unbiased * (_sums(x * x) / window - mean_x * mean_x)
            var_y = unbiased * (_sums(y * y) / window - mean_y * mean_y)
            both = unbiased * (_sums(x * y) / window - mean_x * mean_y)
            above = (2 * mean_x * mean_y + LUMINANCE) * (2 * both + CONTRAST)
            below = (mean_x**2 + mean_y**2 + LUMINANCE) * (var_x + var_y + CONTRAST)
            total, count = total + float((above / below).sum()), count + above.size
    return min(1.0, total / count)


def compare_images(result: Value, expected: Value, options: Options) -> Score:
    """How alike both are in grey, at the smaller one's size; with `reference_base_result` from there on."""
    from PIL import Image

    found, right = document(result, KIND), gold(expected, KIND)
    if not (found.pixels and right.pixels) and (found.width, found.height, found.digest) == (
        right.width,
        right.height,
        right.digest,
    ):
        return Score(1.0, "they have the same pixels")
    if not right.pixels:
        raise LookupError(f"what is expected has {right.width} by {right.height} pixels, too many to compare")
    one, other = (picture.convert("L") for picture in _both(result, expected))
    size = min(one.size, other.size)
    one, other = (picture.resize(size, Image.Resampling.LANCZOS) for picture in (one, other))
    alike, base = max(0.0, likeness(one, other)), options.get("reference_base_result")
    score = alike
    if base is not None:
        score = (alike - base) / (1 - base) if alike >= base + 0.01 else 0.0
    return Score(score, f"they are alike to {alike:.3f}")


def compare_image_list(result: Value, expected: Value, _: Options) -> Score:
    """Each picture has the pixels of the one that is expected in its place."""
    there, wanted = (value if isinstance(value, list) else [value] for value in (result, expected))
    if len(there) != len(wanted):
        return Score(0.0, f"there are {len(there)} pictures and not {len(wanted)}")
    for at, (one, other) in enumerate(zip(there, wanted, strict=True), 1):
        right: Raster = gold(other, KIND)
        found: Raster = document(one, KIND)
        if (found.width, found.height, found.digest) != (right.width, right.height, right.digest):
            return Score(0.0, f"picture {at} is another")
    return is_(bool(wanted), "the pictures agree", "nothing is expected")


def _colors(pixels: Pixels) -> Iterator[tuple[int, Pixels]]:
    """The colours of pixels (n, 3) as numbers, in bands, each behind the place of its first."""
    import numpy as np

    for start in range(0, len(pixels), BAND):
        red, green, blue = pixels[start : start + BAND].T.astype(np.uint32)
        yield start, (red << 16) | (green << 8) | blue


def check_triangle_position(result: Value, _: Value, __: Options) -> Score:
    """What has the second most common colour stands in the middle."""
    import numpy as np

    image = _image(document(result, KIND))
    pixels, total = np.asarray(image).reshape(-1, 3), np.zeros(COLORS, np.uint32)
    for _start, colors in _colors(pixels):
        named, counts = np.unique(colors, return_counts=True)
        total[named] += counts.astype(np.uint32)
    total[total.argmax()] = 0
    second = total.argmax()
    if not (many := int(total[second])):
        return Score(0.0, "it has one colour")
    x = y = 0.0
    for start, colors in _colors(pixels):
        at = start + np.flatnonzero(colors == second)
        x, y = x + float((at % image.width).sum()) / many, y + float((at // image.width).sum()) / many
    off = abs(x / image.width - 0.5), abs(y / image.height - 0.5)
    return is_(max(off) < MIDDLE, "it stands in the middle", f"it stands at {x:.0f}, {y:.0f}")


def check_textbox_on_leftside(result: Value, _: Value, __: Options) -> Score:
    """Something dark stands at the left side."""
    import numpy as np

    grey = np.asarray(_image(document(result, KIND)).convert("L"))
    columns = np.flatnonzero((grey < DARK).any(axis=0))
    near = columns.size > 0 and columns[0] < grey.shape[1] * LEFT
    return is_(bool(near), "it stands at the left", f"the first dark column is {columns[:1]}")


def check_image_size(result: Value, expected: Value, _: Options) -> Score:
    """The picture, or with `ignore_transparent` what shows of it, has this `width` and `height`."""
    found: Raster = document(result, KIND)
    size = found.shown if expected.get("ignore_transparent") else (found.width, found.height)
    wanted = expected.get("width"), expected.get("height")
    same = all(want in (None, there) for want, there in zip(wanted, size, strict=True))
    return is_(same and wanted != (None, None), "it has the size", f"it is {size[0]} by {size[1]}")


def check_image_file_size(result: Value, expected: Value, _: Options) -> Score:
    """The picture's file is smaller than `max_size` bytes."""
    size = document(result, KIND).size_bytes
    return is_(size < expected["max_size"], f"it has {size} bytes", f"it has {size} bytes")


_START = "the picture has to be like one that the task starts with, where that can be read"
DECLARED = (
    Declared("compare_images", compare_images, reads=KIND),
    Declared("compare_image_list", compare_image_list, "a picture of another size is another", reads=KIND),
    Declared(
        "check_triangle_position",
        check_triangle_position,
        f"the second most common colour counts, not the second rarest; {_START}",
        reads=KIND,
        of_start=lambda _: True,
    ),
    Declared("check_textbox_on_leftside", check_textbox_on_leftside, _START, reads=KIND, of_start=lambda _: True),
    Declared(
        "check_image_size",
        check_image_size,
        _START,
        reads=KIND,
        of_start=lambda rule: not rule.get("ignore_transparent"),
    ),
    Declared(
        "check_image_file_size",
        check_image_file_size,
        f"what is no picture scores 0; {_START}",
        reads=KIND,
        of_start=lambda _: True,
    ),
)
