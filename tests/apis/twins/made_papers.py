"""Makes small PDFs and archives whose every text, field and drawing is known."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Mapping, Sequence

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": lambda data: gzip.compress(data, mtime=0),
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
}


def make_pdf(*pages: str, fields: Sequence[str] = (), drawn: str = "") -> bytes:
    """A PDF with these texts, a line each; the first page has fields that hold `fields`, and draws `drawn` besides."""
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for number, text in enumerate(pages):
        lines = "".join(f"({line}) Tj 0 -20 Td " for line in text.splitlines())
        content = f"{drawn if not number else ''} BT /F 12 Tf 72 700 Td {lines}ET".encode("latin-1")
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        notes = "".join(_field(name, value) for name, value in enumerate(() if number else fields))
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
            f"/Resources << /Font << /F 3 0 R >> >> /Annots [{notes}] >>".encode("latin-1")
        )
        kids.append(f"{len(objects)} 0 R")
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    return joined(objects)


def _field(name: int, value: str) -> str:
    place = f"/Rect [9 {name * 20} 99 {name * 20 + 9}]"
    return f"<< /Type /Annot /Subtype /Widget /FT /Tx /T (f{name}) /V ({value}) {place} >> "


def joined(objects: Sequence[bytes]) -> bytes:
    """A file of these objects, numbered from 1; the first is its root."""
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start, count = len(out), len(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n" % count + b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(out + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, start))


def make_tar(files: Mapping[str, bytes], form: str = "tar.gz") -> bytes:
    """An archive of one of `PACKERS`; a name that ends in "/" is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            archive.addfile(entry, io.BytesIO(data))
    return PACKERS[form](out.getvalue())
