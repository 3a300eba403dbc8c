"""What the pages of a PDF say.

Invariant: pypdf reads it within the bounds below, starts no program and decodes no picture. For any bytes the answer is
a bounded value or RefusedError; its time is the kernel's to bound.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from apis.documents.read.bounds import Budget, RefusedError

if TYPE_CHECKING:
    from pypdf import PageObject

PAGES = 500
DRAWN_BYTES = 32 << 20  # of one stream, unpacked
OBJECTS = 20_000  # entries of a list or a table
FIELDS, PARENTS = 2000, 8  # notes and fields of a page, and what a field lies in
_FIELD, _NOTE = "/Widget", "/FreeText"  # what a page shows besides what it draws


def read(data: bytes, budget: Budget) -> dict[str, Any]:
    """The pages as `apis.tasks.verify.paper.Pdf` has them. Raises RefusedError."""
    from pypdf import PdfReader, apply_configuration  # it takes longer to load than other documents take to be read
    from pypdf.errors import FileNotDecryptedError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells of each flaw that it mends
    most = dict.fromkeys(("zlib", "lzw", "run_length", "array_based_stream"), DRAWN_BYTES)
    limits: dict[str, Any] = {f"{name}_maximum_output_length": value for name, value in most.items()}
    limits |= {f"{name}_maximum_element_count": OBJECTS for name in ("array", "dictionary")}
    try:
        with apply_configuration(**limits, page_tree_maximum_entries=OBJECTS, jbig2dec_binary=None):
            pages = PdfReader(io.BytesIO(data)).pages
            if len(pages) > PAGES:
                raise RefusedError("too_big")
            return {"pages": [_page(page, budget) for page in pages]}
    except (RefusedError, MemoryError):
        raise
    except FileNotDecryptedError:
        raise RefusedError("encrypted") from None
    except Exception:  # noqa: BLE001 - of a broken file pypdf raises nearly every error there is
        raise RefusedError("not_a_pdf") from None


def _page(page: PageObject, budget: Budget) -> dict[str, str]:
    text = "\n".join(filter(None, [page.extract_text(), *_filled(page)]))
    budget.spend("chars", len(text))
    return {"text": text, "drawn": _drawn(page, budget)}


def _filled(page: PageObject) -> Iterator[str]:
    """What is filled into a page's fields, and written on it."""
    for note in (_at(page, "/Annots") or [])[:FIELDS]:
        one = note.get_object()
        if (kind := _at(one, "/Subtype")) in (_FIELD, _NOTE):
            value = _at(one, "/Contents") if kind == _NOTE else _at(one, "/AS") or _inherited(one, "/V")
            yield str(value) if isinstance(value, str) else ""


def _at(found: Any, key: str) -> Any:
    """What stands at a key of a table, wherever in the file it lies; None where it has none, or is no table."""
    value = found.get(key) if isinstance(found, dict) else None
    return None if value is None else value.get_object()


def _inherited(field: Any, key: str) -> Any:
    for _ in range(PARENTS):
        if (value := _at(field, key)) is not None:
            return value
        field = _at(field, "/Parent")
    return None


def _drawn(page: PageObject, budget: Budget) -> str:
    """A digest of a page's size, what it draws, and the packed pictures that it names."""
    contents = page.get_contents()
    drawn = b"" if contents is None else contents.get_data()
    budget.spend("unpacked_bytes", len(drawn))
    found = hashlib.sha256(repr([float(side) for side in page.mediabox]).encode() + drawn)
    named = _at(_at(page, "/Resources"), "/XObject") or {}
    for name in sorted(named)[:FIELDS]:
        packed = bytes(getattr(named[name].get_object(), "_data", b""))
        budget.spend("unpacked_bytes", len(packed))
        found.update(packed)
    return found.hexdigest()
