"""What all OpenDocument files share (ODF 1.3 part 3): namespaces, encryption, white space in text."""

from __future__ import annotations

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import RefusedError
from apis.documents.read.grid import count

PARAGRAPHS = ("text:p", "text:h")
_MANIFEST = "META-INF/manifest.xml"
_MANIFEST_BYTES = 1 << 20


def namespace(name: str) -> str:
    """OpenDocument's namespace of that name."""
    return f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"


def refuse_encrypted(archive: Archive) -> None:
    """Raises RefusedError for a file with a password."""
    if _MANIFEST in archive and b"encryption-data" in archive.read(_MANIFEST, _MANIFEST_BYTES):
        raise RefusedError("encrypted")


def white_space(name: str, attributes: dict[str, str], most: int, line_break: str) -> str:
    """What an element within a paragraph stands for, spaces at most `most`; "" for one that is no white space."""
    if name == "text:s":
        return " " * count(attributes.get("text:c"), most)
    return {"text:tab": "\t", "text:line-break": line_break}.get(name, "")
