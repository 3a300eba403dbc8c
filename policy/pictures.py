"""Pictures for a model that sees: a PNG's bytes become patches, and its size alone becomes token ids. No torch here."""

from __future__ import annotations

import hashlib
import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from policy.architecture import NOT_SEEN, GlmVisionShape, VisionShape, read_json
from policy.errors import PictureError
from runtime.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

MOST_BYTES = 4 << 20  # of a PNG
MOST_SIDE = 4096  # pixels
_SQUARE = 8  # pixels of a side in noise
_NARROWEST = 200  # the longer side in shorter ones
_MODES = ("1", "L", "P", "RGB")  # eight bits a channel at most, and nothing to look through: engines differ in that
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, zlib.error, struct.error, MemoryError)

_Id = Annotated[int, Meta(ge=0, le=1 << 24)]
_Pixels = Annotated[int, Meta(ge=1, le=1 << 28)]
_Channels = tuple[float, float, float]


class PictureStyle(msgspec.Struct, frozen=True):
    """How a model takes a picture: sizes in pixels, `merge` x `merge` patches a token, ids around its pads."""

    model_type: str
    patch: int
    merge: int
    temporal: int  # a patch holds the picture so many times
    mean: _Channels  # of red, green and blue from 0 to 1
    std: _Channels
    least_pixels: int
    most_pixels: int
    start_id: int
    pad_id: int
    end_id: int

    @property
    def side(self) -> int:
        """Pixels of a token's square."""
        return self.patch * self.merge


class _Qwen25(msgspec.Struct):
    """What is read of Qwen2.5-VL's config.json."""

    vision_config: VisionShape
    image_token_id: _Id
    vision_start_token_id: _Id
    vision_end_token_id: _Id

    @property
    def around(self) -> tuple[int, int]:
        return self.vision_start_token_id, self.vision_end_token_id


class _Glm(msgspec.Struct):
    """What is read of GLM-4.1V's."""

    vision_config: GlmVisionShape
    image_token_id: _Id
    image_start_token_id: _Id
    image_end_token_id: _Id

    @property
    def around(self) -> tuple[int, int]:
        return self.image_start_token_id, self.image_end_token_id


class _Edges(msgspec.Struct):
    shortest_edge: _Pixels
    longest_edge: _Pixels


# What is read of config.json, and the bounds of a processor that names none.
SEEING: dict[str, tuple[type[_Qwen25 | _Glm], _Edges]] = {
    "qwen2_5_vl": (_Qwen25, _Edges(56 * 56, 28 * 28 * 1280)),
    "glm4v": (_Glm, _Edges(112 * 112, 28 * 28 * 15000)),
}


class _Processor(msgspec.Struct):
    """What is read of preprocessor_config.json, with the defaults of Qwen2-VL's processor."""

    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    image_mean: _Channels = (0.48145466, 0.4578275, 0.40821073)
    image_std: _Channels = (0.26862954, 0.26130258, 0.27577711)
    min_pixels: _Pixels | None = None
    max_pixels: _Pixels | None = None
    size: _Edges | None = None
    do_resize: bool = True
    do_rescale: bool = True
    do_normalize: bool = True
    do_convert_rgb: bool | None = True
    resample: int = 3
    rescale_factor: float = 1 / 255


def style_of(folder: Path) -> PictureStyle | None:
    """How the model in `folder` takes pictures; None for one that reads text alone.

    Raises ConfigError that names the file and the key.
    """
    file = folder / "config.json"
    config = read_json(file)
    kind = config.get("model_type", "")
    if why := NOT_SEEN.get(str(kind)):
        raise ConfigError(f"{file}: model_type {kind!r}: {why}")
    if kind not in SEEING:
        return None
    kind_of, edges = SEEING[kind]
    model = _typed(file, config, kind_of)
    file, seen = _processor(folder)
    vision = model.vision_config
    for key, ours, wanted in (
        ("patch_size", seen.patch_size, vision.patch_size),
        ("merge_size", seen.merge_size, vision.spatial_merge_size),
        ("temporal_patch_size", seen.temporal_patch_size, vision.temporal_patch_size),
        ("resample", seen.resample, 3),
        *((name, getattr(seen, name), True) for name in ("do_resize", "do_rescale", "do_normalize")),
        ("rescale_factor", round(seen.rescale_factor, 12), round(1 / 255, 12)),
    ):
        if ours != wanted:
            raise ConfigError(f"{file}: {key} is {ours!r}: this model's is {wanted!r}")
    if not all(0 < value < math.inf for value in seen.image_std) or not all(map(math.isfinite, seen.image_mean)):
        raise ConfigError(f"{file}: image_std is {list(seen.image_std)}: it is above 0, and the mean finite")
    edges = seen.size or edges
    least, most = seen.min_pixels or edges.shortest_edge, seen.max_pixels or edges.longest_edge
    if least > most:
        raise ConfigError(f"{file}: min_pixels is {least}, more than max_pixels, {most}")
    if kind == "glm4v":  # which counts a picture as often as a patch holds it
        least, most = least // vision.temporal_patch_size, most // vision.temporal_patch_size
    start, end = model.around
    return PictureStyle(
        model_type=kind,
        patch=vision.patch_size,
        merge=vision.spatial_merge_size,
        temporal=vision.temporal_patch_size,
        mean=seen.image_mean,
        std=seen.image_std,
        least_pixels=least,
        most_pixels=most,
        start_id=start,
        pad_id=model.image_token_id,
        end_id=end,
    )


def _processor(folder: Path) -> tuple[Path, _Processor]:
    """What resizes and normalises; newer folders have it within processor_config.json."""
    file = folder / "preprocessor_config.json"
    if file.exists():
        return file, _typed(file, read_json(file), _Processor)
    newer = folder / "processor_config.json"
    if newer.exists() and isinstance(inner := read_json(newer).get("image_processor"), dict):
        return newer, _typed(newer, inner, _Processor)
    raise ConfigError(f"{file} is missing: it says how a picture is resized and normalised")


T = TypeVar("T")


def _typed(file: Path, config: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(config, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}") from error


def resized(width: int, height: int, style: PictureStyle) -> tuple[int, int]:
    """Width and height that the model sees: multiples of a token's side within its bounds, of nearly that ratio.

    Raises PictureError for a picture that is too large, or far longer than wide.
    """
    if not (1 <= width <= MOST_SIDE and 1 <= height <= MOST_SIDE):
        raise PictureError(f"a picture of {width} x {height} pixels: each side has 1 to {MOST_SIDE}")
    if max(width, height) > _NARROWEST * min(width, height):
        raise PictureError(f"a picture of {width} x {height} pixels: one side is over {_NARROWEST} times the other")
    side = style.side
    if style.model_type == "glm4v" and min(width, height) < side:
        grow = max(side / width, side / height)
        width, height = int(width * grow), int(height * grow)
    wide, high = round(width / side) * side, round(height / side) * side
    if wide * high > style.most_pixels:
        shrink = math.sqrt(width * height / style.most_pixels)
        wide, high = (max(side, math.floor(length / shrink / side) * side) for length in (width, height))
    elif wide * high < style.least_pixels:
        grow = math.sqrt(style.least_pixels / (width * height))
        wide, high = (math.ceil(length * grow / side) * side for length in (width, height))
    return wide, high


def grid_of(width: int, height: int, style: PictureStyle) -> tuple[int, int, int]:
    """Patches of a picture in time, from top to bottom and from left to right. Raises PictureError as `resized`."""
    wide, high = resized(width, height, style)
    return 1, high // style.patch, wide // style.patch


def tokens_of(width: int, height: int, style: PictureStyle) -> int:
    """Pad tokens of a picture of this size. Raises PictureError as `resized`."""
    wide, high = resized(width, height, style)
    return wide * high // style.side**2


def picture_ids(width: int, height: int, style: PictureStyle) -> list[int]:
    """The ids of a picture in a prompt. Raises PictureError as `resized`."""
    return [style.start_id, *[style.pad_id] * tokens_of(width, height, style), style.end_id]


class PicturePlace(msgspec.Struct, frozen=True):
    """A picture within a sequence: its pads begin at `at`, and lie in `rows` of `columns`, row by row."""

    at: int
    rows: int
    columns: int
    digest: str  # SHA-256 of `png`, hex
    png: bytes

    @property
    def tokens(self) -> int:
        return self.rows * self.columns


def placed(at: int, digest: str, png: bytes, style: PictureStyle) -> PicturePlace:
    """The picture of `digest` whose first pad is `at`. Raises PictureError, also where a picture has other bytes."""
    _, down, across = grid_of(*picture_size(png), style)
    return PicturePlace(at, down // style.merge, across // style.merge, digest, png)


def placed_in(ids: Sequence[int], pngs: Sequence[bytes], style: PictureStyle) -> tuple[PicturePlace, ...]:
    """The pictures by the order of their pads, which are all of `ids`. Raises PictureError."""
    pictures: list[PicturePlace] = []
    at = -1
    for png in pngs:
        try:
            at = ids.index(style.pad_id, at + 1)
        except ValueError:
            raise PictureError(f"{len(pngs)} pictures, and pads for {len(pictures)}") from None
        picture = placed(at, hashlib.sha256(png).hexdigest(), png, style)
        at += picture.tokens
        if ids[picture.at - 1 : at + 1] != [style.start_id, *[style.pad_id] * picture.tokens, style.end_id]:
            raise PictureError(f"picture {len(pictures)} has {picture.tokens} pads, between its start and end")
        pictures.append(picture)
    if style.pad_id in ids[at + 1 :]:
        raise PictureError(f"{len(pngs)} pictures, and pads for more")
    return tuple(pictures)


def collapsed(ids: Sequence[int], pictures: Sequence[PicturePlace]) -> list[int]:
    """`ids` with one pad a picture, as SGLang takes them."""
    kept: list[int] = []
    end = 0
    for picture in pictures:
        kept += ids[end : picture.at + 1]
        end = picture.at + picture.tokens
    return [*kept, *ids[end:]]


def turned_positions(length: int, pictures: Sequence[PicturePlace]) -> list[list[int]]:
    """Positions in time, height and width of each of `length` tokens, as Qwen2-VL counts them.

    A text's token has three equal numbers. A picture takes as many positions as its longer side has tokens.
    """
    time, height, width = places = [list[int]() for _ in range(3)]
    here = 0

    def text(until: int) -> int:
        count = until - len(time)
        for axis in places:
            axis.extend(range(here, here + count))
        return here + count

    for picture in pictures:
        here = text(picture.at)
        time.extend([here] * picture.tokens)
        height.extend(here + row for row in range(picture.rows) for _ in range(picture.columns))
        width.extend(here + column for _ in range(picture.rows) for column in range(picture.columns))
        here += max(picture.rows, picture.columns)
    text(length)
    return places


def picture_size(png: bytes, *, whole: bool = False) -> tuple[int, int]:
    """Width and height in pixels, by the head alone; `whole` decodes the rest, too.

    Raises PictureError for what is no bounded, still PNG.
    """
    with _opened(png) as image:
        if whole:
            image.load()
        return image.size


def noise(size: tuple[int, int], seed: str) -> bytes:
    """A PNG of this size (pixels) that shows nothing: squares of random colours, a few kilobytes."""
    from PIL import Image
    from PIL.Image import Resampling

    squares = -(-size[0] // _SQUARE), -(-size[1] // _SQUARE)
    shades = Random(seed).randbytes(3 * math.prod(squares))  # noqa: S311 - nothing secret
    out = io.BytesIO()
    Image.frombytes("RGB", squares, shades).resize(size, Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()


def refuse_damaged(png: bytes) -> None:
    """Raise PictureError for what is no bounded, still PNG, or can't be decoded to its end."""
    with _opened(png) as image:
        image.load()


def patches(png: bytes, style: PictureStyle) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The picture as float32 rows [patches, channels * temporal * patch * patch], and their grid (time, height, width).

    Patches of one token follow each other. Takes some 10 ms a megapixel. Raises PictureError.
    """
    import numpy as np
    from PIL.Image import Resampling

    with _opened(png) as image:
        wide, high = resized(*image.size, style)
        pixels = np.asarray(image.convert("RGB").resize((wide, high), Resampling.BICUBIC))
    shades = (np.arange(256) * (1 / 255)).astype(np.float32)[:, None]
    table = ((shades - np.array(style.mean, np.float32)) / np.array(style.std, np.float32)).T  # [channel, shade]
    down, across, merge, patch = high // style.patch, wide // style.patch, style.merge, style.patch
    cut = pixels.reshape(down // merge, merge, patch, across // merge, merge, patch, 3)
    cut = cut.transpose(6, 0, 3, 1, 4, 2, 5).reshape(3, down * across, patch * patch)
    rows = np.empty((down * across, 3, style.temporal, patch * patch), np.float32)
    for channel in range(3):
        rows[:, channel] = table[channel][cut[channel]][:, None]
    return rows.reshape(down * across, -1), (1, down, across)


@contextmanager
def _opened(png: bytes) -> Iterator[Image]:
    """The picture in `png`, decoded no further than its head; what fails within the block is damaged, too."""
    from PIL import Image

    if len(png) > MOST_BYTES:
        raise PictureError(f"a picture of {len(png)} bytes: it has at most {MOST_BYTES}")
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            if max(image.size) > MOST_SIDE:
                raise PictureError(
                    f"a picture of {image.width} x {image.height} pixels: a side has at most {MOST_SIDE}"
                )
            if image.mode not in _MODES or "transparency" in image.info:
                raise PictureError(f"a picture in mode {image.mode}: it is one of {', '.join(_MODES)}, and opaque")
            if getattr(image, "is_animated", False):
                raise PictureError("a picture that moves: it is a still PNG")
            yield image
    except (*_DAMAGED, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError(f"no PNG that can be read: {error}") from error
