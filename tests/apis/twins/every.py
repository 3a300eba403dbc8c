"""All twins, and what no metric may take for a result.

Invariant: a twin's right result scores 1 and every other one less.
"""

from __future__ import annotations

from tests.apis.twins import (
    browsers,
    combined,
    documents,
    forms,
    general,
    papers,
    pictures,
    slide_options,
    slides,
    table_options,
    tables,
    text_options,
    words,
)

FILES = (
    browsers, general, slides, tables, documents, words, pictures, slide_options, table_options, text_options, combined,
    papers, forms,
)  # fmt: skip
TWINS = [twin for one in FILES for twin in one.TWINS]
GARBAGE = [
    b"",
    b"\0" * 99,
    b"\xff\xfe\x00x",
    b"PK\x03\x04" + b"x" * 50,
    b"[" * 50_000,
    b"{" * 50_000,
    b"<a>" * 9,
    b"a: " * 999,
    "\u202e\x1b]0;x\x07".encode(),
    b"1e999",
    b'{"a": NaN}',
    b"9" * 9999,
]
