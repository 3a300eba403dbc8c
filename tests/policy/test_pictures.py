"""Pictures of a model that sees: what transformers' processor makes of them, to the bit, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from policy.errors import PictureError
from policy.pictures import (
    MOST_BYTES,
    PictureStyle,
    patches,
    picture_size,
    style_of,
    tokens_of,
)
from runtime.errors import ConfigError
from tests.policy.vision_model import png_of

CONFIG = {
    "model_type": "qwen2_5_vl",
    "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
    "image_token_id": 12,
    "vision_start_token_id": 10,
    "vision_end_token_id": 11,
}
PROCESSOR = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
}  # as the published folders have it


def folder_of(path: Path, config: object = CONFIG, processor: object = PROCESSOR) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


@pytest.fixture(scope="module")
def style(tmp_path_factory: pytest.TempPathFactory) -> PictureStyle:
    read = style_of(folder_of(tmp_path_factory.mktemp("seeing")))
    assert read is not None
    return read


SIZES = [(224, 224), (448, 252), (640, 360), (30, 17), (1, 1), (1, 150), (333, 1024), (29, 31)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_patches_are_those_of_transformers(width: int, height: int, mode: str, style: PictureStyle) -> None:
    png = png_of(width, height, mode)
    theirs = Qwen2VLImageProcessorPil(size={"shortest_edge": style.least_pixels, "longest_edge": style.most_pixels})
    wanted = theirs(Image.open(io.BytesIO(png)), return_tensors="np")
    rows, grid = patches(png, style)
    assert list(grid) == wanted["image_grid_thw"][0].tolist()
    assert rows.dtype == np.float32
    assert np.array_equal(rows, wanted["pixel_values"])
    assert tokens_of(width, height, style) * style.merge**2 == len(rows)


@pytest.mark.parametrize("bounds", [(3136, 50_000), (400_000, 12_845_056), (3136, 3136)])
def test_a_picture_is_shrunk_and_grown_as_transformers_does(bounds: tuple[int, int], style: PictureStyle) -> None:
    style = msgspec.structs.replace(style, least_pixels=bounds[0], most_pixels=bounds[1])
    theirs = Qwen2VLImageProcessorPil(size={"shortest_edge": bounds[0], "longest_edge": bounds[1]})
    for size in [(640, 360), (37, 900), (100, 100)]:
        png = png_of(*size)
        wanted = theirs(Image.open(io.BytesIO(png)), return_tensors="np")
        assert np.array_equal(patches(png, style)[0], wanted["pixel_values"])


DIGESTS = {
    (224, 224): "0f6d5aa6909a1900",
    (448, 252): "3d755748477c3ded",
    (31, 77): "45fd91f3f8f97d35",
}


def test_patches_have_their_digests(style: PictureStyle) -> None:
    """Another Pillow must not change what a model was trained on."""
    shades = {size: hashlib.sha256(patches(png_of(*size), style)[0].tobytes()).hexdigest()[:16] for size in DIGESTS}
    assert shades == DIGESTS


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(
    width: int, height: int, *, depth: int = 8, colour: int = 2, data: bytes = b"", extra: bytes = b""
) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def saved(kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (30, 30)).save(file, kind, **options)
    return file.getvalue()


def moving() -> bytes:
    return saved(save_all=True, append_images=[Image.new("RGB", (30, 30), "red")])


def stuffed() -> bytes:
    """A text chunk that unpacks to 64 MB."""
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "a" * (64 << 20), zip=True)
    return saved(pnginfo=text)


HOSTILE = {
    "nothing": b"",
    "text": b"hello",
    "a head alone": raw_png(30, 30)[:33],
    "a bomb": raw_png(100_000, 100_000, data=b"\0" * 1_000_000),
    "too wide": raw_png(4097, 10),
    "too many bytes": png_of(30, 30) + bytes(MOST_BYTES),
    "no width": raw_png(0, 30),
    "sixteen bits": raw_png(30, 30, depth=16, colour=0, data=bytes(61 * 30)),
    "see-through": png_of(30, 30, "LA"),
    "moving": moving(),
    "a JPEG": saved("JPEG"),
    "a GIF": saved("GIF"),
    "a TIFF": saved("TIFF"),
    "a long comment": stuffed(),
    "a broken checksum": png_of(30, 30).replace(b"IHDR\0\0\0\x1e", b"IHDR\0\0\0\x1f"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name: str, style: PictureStyle) -> None:
    with pytest.raises(PictureError):
        picture_size(HOSTILE[name])
    with pytest.raises(PictureError):
        patches(HOSTILE[name], style)


def test_a_cut_picture_is_refused(style: PictureStyle) -> None:
    png = png_of(60, 60)
    for length in range(0, len(png) - 20, 997):
        with pytest.raises(PictureError):
            patches(png[:length], style)


@pytest.mark.parametrize("size", [(0, 10), (4097, 10), (4096, 20), (-1, 5)])
def test_a_size_that_no_model_is_shown(size: tuple[int, int], style: PictureStyle) -> None:
    with pytest.raises(PictureError):
        tokens_of(*size, style)


@pytest.mark.parametrize(
    ("config", "processor", "named"),
    [
        ({"model_type": "qwen3_vl"}, {}, "deepstack"),
        ({"image_token_id": -1}, {}, "image_token_id"),
        ({"image_token_id": None}, {}, "image_token_id"),
        ({"vision_config": {"patch_size": 0}}, {}, "patch_size"),
        ({"vision_config": []}, {}, "vision_config"),
        ({}, {"patch_size": 16}, "patch_size"),
        ({}, {"merge_size": 4}, "merge_size"),
        ({}, {"resample": 2}, "resample"),
        ({}, {"do_resize": False}, "do_resize"),
        ({}, {"image_std": [0, 1, 1]}, "image_std"),
        ({}, {"image_mean": [0.5]}, "image_mean"),
        ({}, {"min_pixels": 1 << 30}, "min_pixels"),
        ({}, {"min_pixels": 5000, "max_pixels": 4000}, "max_pixels"),
        ({}, {"size": {"height": 3}}, "size"),
    ],
)
def test_a_folder_is_refused_by_its_key(
    config: dict[str, object], processor: dict[str, object], named: str, tmp_path: Path
) -> None:
    changed = CONFIG | config
    for key in [key for key, value in config.items() if value is None]:
        del changed[key]
    with pytest.raises(ConfigError, match=named):
        style_of(folder_of(tmp_path, changed, PROCESSOR | processor))


def test_a_folder_without_processor_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ConfigError, match="preprocessor_config"):
        style_of(tmp_path)


def test_newer_folders_have_one_file(tmp_path: Path, style: PictureStyle) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    edges = {"shortest_edge": 3136, "longest_edge": 12845056}
    nested = {"image_processor": {key: value for key, value in PROCESSOR.items() if "pixels" not in key}}
    nested["image_processor"]["size"] = edges
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    assert style_of(tmp_path) == style
