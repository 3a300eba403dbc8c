"""Texts with their looks, as documents and presentations have them.

Invariant: values only. Neighbouring spans of a text document's paragraph differ in looks.
"""

from __future__ import annotations

import msgspec


class TextSpan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of text of one look; `marks` are what was set on it ("bold", "strike", "size 20", "color ff0000")."""

    text: str
    marks: tuple[str, ...] = ()


class Paragraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A paragraph; neighbours of `spans` differ in looks. `marks` are what was set on it ("center", "line 2")."""

    spans: tuple[TextSpan, ...] = ()
    marks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it, as it reads."""
        return "".join(span.text for span in self.spans)
