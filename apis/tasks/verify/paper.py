"""What a PDF says and what an archive holds. Invariant: values only."""

from __future__ import annotations

import msgspec

from apis.tasks.verify.picture import Raster


class PdfPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page: its text, with what is filled into its forms; `drawn` is a digest (SHA-256) of all that it draws."""

    text: str
    drawn: str


class Pdf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A PDF's pages, in their order."""

    pages: tuple[PdfPage, ...]

    @property
    def text(self) -> str:
        """What all pages say, without blanks at both ends."""
        return "".join(page.text for page in self.pages).strip()


class PackedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of an archive: its bytes, and the document that it is; `refusal` says why it could not be read."""

    data: bytes = b""
    pdf: Pdf | None = None
    picture: Raster | None = None
    refusal: str = ""


class PackedFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An archive's form (zip, tar, tar.gz, tar.bz2, tar.xz), its files by their paths, and its empty folders."""

    form: str
    files: dict[str, PackedFile] = {}
    folders: tuple[str, ...] = ()
