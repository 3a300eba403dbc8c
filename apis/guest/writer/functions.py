"""The functions of LibreOffice Writer, as the agent calls them.

Invariant: `WriterTools` has the public methods that `apis/apps/writer/functions.py` declares, with the same parameters.
A call gets the document in front, and its answer is one bounded text.
"""

from __future__ import annotations

from typing import Any

from guest.office.base import INFO_CHARS
from guest.office.office import document
from guest.writer.base import TextDocument
from guest.writer.looks import Looks
from guest.writer.pages import Pages
from guest.writer.text import Writing

SERVICE = "com.sun.star.text.TextDocument"


class WriterTools(Writing, Looks, Pages):
    """All of them."""


def tools(desktop: Any, current: Any) -> WriterTools:
    """The functions on the document in front. Raises Refused when there is none."""
    return WriterTools(document(desktop, current, SERVICE, "text document"))


def info(desktop: Any, current: Any) -> str:
    """What the document in front holds now, unsaved edits included."""
    return TextDocument(document(desktop, current, SERVICE, "text document"))._about(INFO_CHARS)
