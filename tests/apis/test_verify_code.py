"""VS Code's own list of extensions, and files compared by their bytes."""

from __future__ import annotations

import json

import pytest

from apis.tasks.verify import FileView
from apis.tasks.verify_code import MOST_BYTES, extensions_are
from apis.tasks.verify_files import digest_of, file_bytes_are


def of(*extensions: str) -> bytes:
    """A list as the editor writes it."""
    parts = (extension.split("@") for extension in extensions)
    rows = [{"identifier": {"id": name}, "version": version, "location": {"$mid": 1}} for name, version in parts]
    return json.dumps(rows).encode()


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (of("A.fox@1.0.0", "b.hen@1.0.0"), True),
        (of("b.hen@1.0.0", "a.fox@1.0.0"), True),
        (of("a.fox@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.1"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", "c.cow@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", "b.hen@1.0.0"), False),
        (b'[{"identifier": "a.fox", "version": 1}]', False),
        (b"[" * 5000, False),
        (of("a.fox@1.0.0", "b.hen@1.0.0") + b" " * MOST_BYTES, False),
    ],
)
def test_exactly_the_extensions_that_are_wanted(data: bytes, good: bool) -> None:
    expected = {"expected": ["a.fox@1.0.0", "b.hen@1.0.0"]}
    assert extensions_are(FileView("file", data), expected, {}).success is good


def test_one_byte_more_is_another_file() -> None:
    expected = {"expected": digest_of(b"\xff\0")}
    assert file_bytes_are(FileView("file", b"\xff\0"), expected, {}).success
    assert not file_bytes_are(FileView("file", b"\xff\0\0"), expected, {}).success
    assert not file_bytes_are(FileView("missing"), expected, {}).success
