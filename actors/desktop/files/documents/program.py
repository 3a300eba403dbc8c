"""Which program says that it has written a document.

Invariant: what is said is bounded text, and a document that says nothing of it, or too much, was written by nobody.
"""

from __future__ import annotations

import re

from actors.desktop.files.documents.archive import Archive
from actors.desktop.files.documents.bounds import RefusedError

MOST_BYTES = 1 << 16
_SAYS = {  # the part that says it, by format: Office Open XML, OpenDocument
    "docProps/app.xml": re.compile(rb"<Application>([^<]{1,200})</Application>"),
    "meta.xml": re.compile(rb"<meta:generator>([^<]{1,200})</meta:generator>"),
}


def written_by(archive: Archive) -> str:
    """The program's name and version; "" where the document does not say."""
    for part, says in _SAYS.items():
        if part in archive:
            try:
                found = says.search(archive.read(part, MOST_BYTES))
            except RefusedError:
                return ""
            return found[1].decode("utf-8", "replace") if found else ""
    return ""
