"""Reads back a saved text document (.docx), knowing nothing of the code that wrote it.

Invariant: what is found comes from the file's own parts (ECMA-376, WordprocessingML) by name, never from an answer.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

from defusedxml import ElementTree

from apis.apps.check.case import NotSo

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


@dataclass(frozen=True)
class Looks:
    """A run's text, and its properties by tag: the value, or "" for one that is only there."""

    text: str
    properties: dict[str, str]


class SavedParagraph:
    """One paragraph of the body."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.runs = [Looks(_text(run), _properties(run.find(f"{_W}rPr"))) for run in node.iter(f"{_W}r")]
        self.text = "".join(run.text for run in self.runs)
        self.properties = _properties(node.find(f"{_W}pPr"))

    def has(self, tag: str) -> bool:
        """Whether an element of this name, of whatever namespace, stands in the paragraph."""
        return any(each.tag.rpartition("}")[2] == tag for each in self._node.iter())

    def look(self, text: str, tag: str) -> list[str | None]:
        """A property of each run whose text shares a character with the first `text` in the paragraph."""
        start = self.text.find(text)
        if start < 0:
            raise NotSo(f"no {text!r} in {self.text!r}")
        found, at = [], 0
        for run in self.runs:
            if at < start + len(text) and at + len(run.text) > start:
                found.append(run.properties.get(tag))
            at += len(run.text)
        return found


class TextFile:
    """The parts of the document in `data`. Raises NotSo where it is none."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile:
            raise NotSo("the saved file is no text document") from None
        body = ElementTree.fromstring(self.text("word/document.xml"))
        self.paragraphs = [SavedParagraph(node) for node in body.iter(f"{_W}p")]
        self.names = self._zip.namelist()

    def text(self, name: str) -> str:
        """A part's XML. Raises NotSo."""
        try:
            return self._zip.read(name).decode()
        except KeyError:
            raise NotSo(f"the file has no part {name}") from None

    def parts(self, start: str) -> list[str]:
        """The XML of all parts whose names begin like this."""
        return [self.text(name) for name in self.names if name.startswith(start) and name.endswith(".xml")]

    def paragraph(self, start: str) -> SavedParagraph:
        """The paragraph whose text begins like this, in small letters or capitals. Raises NotSo."""
        for each in self.paragraphs:
            if each.text.lower().startswith(start.lower()):
                return each
        raise NotSo(f"no paragraph begins with {start!r}: {[each.text[:40] for each in self.paragraphs]}")


def _text(run: Any) -> str:
    return "".join("\t" if part.tag == f"{_W}tab" else part.text or "" for part in run if part.tag in _TEXTS)


_TEXTS = {f"{_W}t", f"{_W}tab"}


def _properties(node: Any) -> dict[str, str]:
    """Tags below a property element; "tag@attribute" for every attribute beside `val`."""
    found: dict[str, str] = {}
    for each in node if node is not None else ():
        tag = each.tag.rpartition("}")[2]
        found[tag] = each.get(f"{_W}val", "")
        found |= {f"{tag}@{key.rpartition('}')[2]}": value for key, value in each.items()}
    return found
