"""VS Code's own list of extensions, and files compared by their bytes."""

from __future__ import annotations

import json

import pytest

from apis.tasks.families.code_extension import _is_object
from apis.tasks.verify.media import LIST_BYTES, extensions_are, listed_extension
from apis.tasks.verify.verify import GUEST_HOME, FileView, digest_of, file_bytes_are


def of(*extensions: str, home: str = GUEST_HOME) -> bytes:
    """A list as the editor writes it."""
    parts = (extension.split("@") for extension in extensions)
    return json.dumps([listed_extension(name, version, home) for name, version in parts]).encode()


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (of("A.fox@1.0.0", "b.hen@1.0.0"), True),
        (of("b.hen@1.0.0", "a.fox@1.0.0"), True),
        (of("a.fox@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.1"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", "c.cow@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", "b.hen@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", home="/tmp"), False),
        (b'[{"identifier": "a.fox", "version": 1}]', False),
        (b'[{"identifier":{"id":"a.fox"},"version":"1.0.0"},{"identifier":{"id":"b.hen"},"version":"1.0.0"}]', False),
        (b"[" * 5000, False),
        (of("a.fox@1.0.0", "b.hen@1.0.0") + b" " * LIST_BYTES, False),
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


def test_a_file_that_is_nested_without_end_is_no_object() -> None:
    assert not _is_object(FileView(kind="file", data=b'{"a": ' * 2000))
