"""Twins of metrics of pictures."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from PIL import Image

from apis.tasks.verify.verify import FileView
from tests.apis.twins.twin import Twin, file

SIZE = (48, 40)
Color = tuple[int, int, int]


def drawn(color: Callable[[int, int], Color], size: tuple[int, int] = SIZE) -> Image.Image:
    """A picture whose pixel at x, y has `color(x, y)`."""
    made = Image.new("RGB", size)
    made.putdata([color(x, y) for y in range(size[1]) for x in range(size[0])])
    return made


def saved(image: Image.Image, kind: str = "PNG") -> FileView:
    """A picture as a file of this kind."""
    out = io.BytesIO()
    image.save(out, kind)
    return file(out.getvalue())


def scene(x: int, y: int) -> Color:
    """Colours of a picture that is like none of its mirror images."""
    return (60 + x * 3) % 200, (40 + y * 4 + x // 8 * 9) % 180, (x * y) % 160


def triangle(at: int) -> FileView:
    """A yellow triangle around column `at` of the middle rows, with one pixel of another colour at its edge."""

    def color(x: int, y: int) -> Color:
        if (x, y) == (at, 25):
            return 240, 230, 120
        return (250, 220, 0) if abs(x - at) < (y - 9) // 2 and y < 25 else (240, 240, 240)

    return saved(drawn(color))


def dark(at: int) -> FileView:
    """A white picture with a dark line in column `at`."""
    return saved(drawn(lambda x, y: (0, 0, 0) if x == at and y < 9 else (255, 255, 255)))


def cornered(size: int) -> FileView:
    """A transparent picture with something of this size in it."""
    made = Image.new("RGBA", SIZE)
    made.paste((9, 9, 9, 255), (3, 4, 3 + size, 4 + size))
    return saved(made)


PLAIN = drawn(scene)
GOLD, MIRROR = saved(PLAIN), saved(PLAIN.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
OTHER = saved(drawn(lambda x, y: scene(y, x)))
HALVED, BLANK = saved(PLAIN.resize((24, 20))), saved(drawn(lambda _x, _y: (0, 0, 0)))
SPECK = saved(drawn(lambda x, y: (255, 255, 255) if (x, y) == (9, 9) else scene(x, y)))
TURNED = saved(PLAIN.transpose(Image.Transpose.ROTATE_90))


def _twin(name: str, expected: Any, right: FileView, *wrong: FileView, **options: Any) -> Twin:
    return Twin(name, expected, options, right, list(wrong))


TWINS = [
    _twin("compare_images", GOLD, saved(PLAIN, "BMP"), SPECK, OTHER, BLANK),
    _twin("compare_images", GOLD, GOLD, MIRROR, OTHER, BLANK, reference_base_result=0.5),
    _twin("compare_image_list", GOLD, saved(PLAIN, "BMP"), SPECK, OTHER, HALVED, MIRROR),
    Twin("compare_image_list", [GOLD, MIRROR], {}, [GOLD, MIRROR], [[MIRROR, GOLD], [GOLD, SPECK], [GOLD, GOLD]]),
    _twin("check_triangle_position", None, triangle(24), triangle(10), triangle(38), BLANK),
    _twin(
        "check_textbox_on_leftside",
        None,
        *map(dark, (1, 3, 40)),
        saved(Image.new("RGB", SIZE, "white")),
    ),
    _twin("check_image_size", {"width": 48, "height": 40}, GOLD, HALVED, saved(PLAIN.resize((48, 41))), TURNED),
    _twin("check_image_size", {"height": 9, "ignore_transparent": True}, cornered(9), cornered(8), cornered(10), GOLD),
    _twin(
        "check_image_file_size",
        {"max_size": len(GOLD.data) + 1},
        GOLD,
        *(file(GOLD.data + bytes(more)) for more in (1, 9, 99)),
    ),
]
