"""Pictures of a hostile guest: what is read of good ones, and that every other file is refused by name."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from actors.desktop.files import fork as forked
from actors.desktop.files.read_home import FileSeen, ReadLimits, as_wanted
from actors.desktop.pool.leased import view_of
from apis.documents.read import picture
from apis.documents.read.bounds import Bounds, RefusedError
from apis.tasks.verify.picture import Raster
from apis.tasks.verify.verify import GUEST_HOME, WantedFile


def saved(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


RED = saved(Image.new("RGB", (3, 2), (255, 0, 0)), "PNG")
KINDS = [saved(Image.new("RGB", (20, 9), "red"), kind) for kind in ("PNG", "JPEG", "GIF", "BMP")]


async def test_the_worker_reads_pixels_and_refuses_other_files() -> None:
    wanted = [WantedFile(name, "picture") for name in ("a", "b")]
    seen = [FileSeen(path=want.path, data=data) for want, data in zip(wanted, (RED, b"x"), strict=True)]
    read, refused = (view_of(one, GUEST_HOME) for one in await as_wanted(wanted, seen, ReadLimits()))
    pixels = b"\xff\0\0" * 6
    assert read.picture == Raster(3, 2, "RGB", (3, 2), hashlib.sha256(pixels).hexdigest(), pixels, len(RED))
    assert (refused.kind, refused.reason) == ("refused", "not_a_picture")


def test_what_is_too_much_is_refused_unread_or_known_by_its_digest() -> None:
    head = b"IHDR" + struct.pack(">2L", 30_000, 30_000) + RED[24:29]
    wide = RED[:12] + head + struct.pack(">L", zlib.crc32(head)) + RED[33:]
    with pytest.raises(RefusedError, match="too_big"):
        forked.parsed(wide, Bounds(), "picture")
    assert picture.read(RED, sent=5)["pixels"] == ""


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 200), st.binary(max_size=20))
def test_any_bytes_get_an_answer_or_a_refusal(data: bytes, at: int, other: bytes) -> None:
    for made in (data[:at] + other, data[:at] + other + data[at + len(other) :]):
        refusal, found = "", {"width": 0, "height": 0}
        try:
            found = picture.read(made)
        except RefusedError as refused:
            refusal = str(refused)
        assert refusal in ("", "not_a_picture", "too_big")
        assert found["width"] * found["height"] <= picture.MOST
