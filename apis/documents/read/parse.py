"""Reads workbooks of either format, text documents, presentations, databases, pictures, PDF and archives.

Invariant: for any bytes the answer is a bounded value or RefusedError. Where memory is bounded it may be MemoryError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apis.documents.read import database as sqlite_file
from apis.documents.read import docx, ods, odt, office, packed, pptx, xlsx, xlsx_looks
from apis.documents.read import pdf as pdf_file
from apis.documents.read import picture as pixels
from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Bounds, Budget, RefusedError

_COMPOUND = bytes.fromhex("d0cf11e0a1b11ae1")  # what an encrypted xlsx is wrapped into, and what old formats are


def workbook(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The workbook as `apis.tasks.verify.verify.Workbook` has it. Raises RefusedError."""
    if data.startswith(_COMPOUND):
        raise RefusedError("encrypted" if "EncryptedPackage".encode("utf-16-le") in data else "not_a_workbook")
    budget = Budget(bounds)
    archive = Archive(data, budget)
    is_ods = "mimetype" in archive and archive.read("mimetype", len(ods.MIME) + 2).strip() == ods.MIME
    grids = ods.read(archive, budget) if is_ods else xlsx.read(archive, budget)
    return {"sheets": [grid.answer() for grid in grids]}


def styled_workbook(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The workbook as `apis.tasks.verify.looks.StyledWorkbook` has it. Raises RefusedError."""
    found, archive = workbook(data, bounds), Archive(data, Budget(bounds))
    is_ods = "mimetype" in archive
    return {**found, "looks": [] if is_ods else xlsx_looks.read(archive, Budget(bounds))}


def text_document(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The text document as `apis.tasks.verify.verify.TextDocument` has it. Raises RefusedError."""
    budget = Budget(bounds)
    try:
        if data.startswith(_COMPOUND):
            raise RefusedError("encrypted" if "EncryptedPackage".encode("utf-16-le") in data else "not_a_workbook")
        archive = Archive(data, budget)
        is_odt = "mimetype" in archive and archive.read("mimetype", len(odt.MIME) + 2).strip() == odt.MIME
        return (odt if is_odt else docx).read(archive, budget)
    except RefusedError as refused:
        raise RefusedError("not_a_text_document" if str(refused) == "not_a_workbook" else str(refused)) from None


def slide_show(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The Office Open XML presentation as `apis.tasks.verify.shows.SlideShow` has it. Raises RefusedError."""
    try:
        budget = Budget(bounds)
        return pptx.read(Archive(data, budget), budget)
    except RefusedError as refused:
        if str(refused) == "not_a_workbook":  # what is shared with spreadsheets calls a broken file so
            raise RefusedError("not_a_presentation") from None
        raise


def database(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The database as `apis.tasks.verify.database.Database` has it. Raises RefusedError."""
    return sqlite_file.read(data, Budget(bounds))


def picture(data: bytes, _: Bounds) -> dict[str, Any]:
    """The picture as `apis.tasks.verify.picture.Raster` has it. Raises RefusedError."""
    return pixels.read(data)


def pdf(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The PDF as `apis.tasks.verify.paper.Pdf` has it. Raises RefusedError."""
    return pdf_file.read(data, Budget(bounds))


def archive(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The archive as `apis.tasks.verify.paper.PackedFiles` has it. Raises RefusedError."""
    return packed.read(data, Budget(bounds))


PARSERS: dict[str, Callable[[bytes, Bounds], dict[str, Any]]] = {  # by the kinds of `apis.tasks.verify.verify.KINDS`
    "workbook": workbook,
    "text_document": text_document,
    "slide_show": slide_show,
    "styled_workbook": styled_workbook,
    "database": database,
    "picture": picture,
    "pdf": pdf,
    "archive": archive,
    "office": office.read,
}
