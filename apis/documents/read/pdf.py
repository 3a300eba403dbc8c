"""What the pages of a PDF say.

Invariant: pypdf reads it within the bounds below, starts no program and decodes no picture. For any bytes the answer is
a bounded value or RefusedError; its time is the kernel's to bound. A pypdf that is missing, or that no longer reads
what it has to, is an ImportError: no refusal of the file.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from apis.documents.read.bounds import Bounds, Budget, RefusedError

if TYPE_CHECKING:
    from hashlib import _Hash

    from pypdf import PageObject

PAGES = 500
DRAWN_BYTES = 32 << 20  # of one stream, unpacked
OBJECTS = 20_000  # entries of a list or a table
FIELDS, PARENTS = 2000, 8  # notes and fields of a page, and what a field lies in
DEPTH = 64  # of what a page draws within what it draws
_FIELD, _NOTE = "/Widget", "/FreeText"  # what a page shows besides what it draws
_DRAWS = ("/XObject", "/Pattern", "/Shading", "/ColorSpace", "/ExtGState")  # of what a page names
# Of what is drawn: what leads elsewhere, tells of its making, or is of texts, which are compared as texts.
_SAYS_NOTHING = {
    "/Font",
    "/LastModified",
    "/Length",
    "/Metadata",
    "/Parent",
    "/PieceInfo",
    "/StructParent",
    "/StructParents",
}
# What has to be read: a page with a text, a field and a form.
_KNOWN = b"""%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj
3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Annots [<< /Subtype /Widget /V (y) >>]
/Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> /XObject << /A 5 0 R >> >> >> endobj
4 0 obj << /Length 33 >> stream
BT /F 9 Tf 9 9 Td (x) Tj ET /A Do
endstream endobj
5 0 obj << /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Length 9 >> stream
0 0 m 9 9
endstream endobj
trailer << /Size 6 /Root 1 0 R >>
startxref
0
%%EOF
"""


def read(data: bytes, budget: Budget) -> dict[str, Any]:
    """The pages as `apis.tasks.verify.paper.Pdf` has them. Raises RefusedError, and ImportError for no such pypdf."""
    from pypdf.errors import FileNotDecryptedError  # it takes longer to load than other documents take to be read

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells of each flaw that it mends
    try:
        return _read(data, budget)
    except (ImportError, RefusedError, MemoryError):
        raise
    except FileNotDecryptedError:
        raise RefusedError("encrypted") from None
    except Exception:  # noqa: BLE001 - of a broken file pypdf raises nearly every error there is
        _refuse_another_pypdf()
        raise RefusedError("not_a_pdf") from None


def _refuse_another_pypdf() -> None:
    """Raise ImportError where a PDF that is known to be good is not read either."""
    try:
        said = [page["text"].split() for page in _read(_KNOWN, Budget(Bounds()))["pages"]]
    except Exception as error:
        raise ImportError(f"pypdf does not read what it has to: {type(error).__name__}: {error}") from error
    if said != [["x", "y"]]:
        raise ImportError(f"pypdf does not read what it has to: {said}")


def _read(data: bytes, budget: Budget) -> dict[str, Any]:
    from pypdf import PdfReader, apply_configuration

    most = dict.fromkeys(("zlib", "lzw", "run_length", "array_based_stream"), DRAWN_BYTES)
    limits: dict[str, Any] = {f"{name}_maximum_output_length": value for name, value in most.items()}
    limits |= {f"{name}_maximum_element_count": OBJECTS for name in ("array", "dictionary")}
    with apply_configuration(**limits, page_tree_maximum_entries=OBJECTS, jbig2dec_binary=None):
        pages = PdfReader(io.BytesIO(data)).pages
        if len(pages) > PAGES:
            raise RefusedError("too_big")
        return {"pages": [_page(page, budget) for page in pages]}


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
    """A digest of a page's size, what it draws, and all that it names for that, at any depth, packed as it is."""
    contents = page.get_contents()
    drawn = b"" if contents is None else contents.get_data()
    budget.spend("unpacked_bytes", len(drawn))
    found = hashlib.sha256(repr([float(side) for side in page.mediabox]).encode() + drawn)
    resources, seen = _at(page, "/Resources"), dict[tuple[int, int], int]()
    for kind in _DRAWS:
        _add(found, _at(resources, kind), seen, budget)
    return found.hexdigest()


def _add(found: _Hash, value: Any, seen: dict[tuple[int, int], int], budget: Budget, depth: int = 0) -> None:
    """Add a value with all within it, each object once; the numbers that a file gives its objects say nothing."""
    if (number := getattr(value, "idnum", None)) is not None:
        place = (number, value.generation)
        if place in seen:
            found.update(b"again %d\n" % seen[place])
            return
        seen[place] = len(seen)
        value = value.get_object()
    budget.spend("elements")
    if depth > DEPTH:
        raise RefusedError("too_big")
    if isinstance(value, dict):
        packed = bytes(getattr(value, "_data", b""))
        budget.spend("unpacked_bytes", len(packed))
        names = sorted(set(value) - _SAYS_NOTHING)
        found.update(b"table %d %d\n" % (len(names), len(packed)) + packed)
        for name in names:
            found.update(repr(name).encode())
            _add(found, dict.__getitem__(value, name), seen, budget, depth + 1)
    elif isinstance(value, list):
        found.update(b"list %d\n" % len(value))
        for one in list.__iter__(value):
            _add(found, one, seen, budget, depth + 1)
    else:
        found.update(repr(value).encode() + b"\n")
