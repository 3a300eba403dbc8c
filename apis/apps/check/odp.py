"""Reads back a saved presentation (.odp), knowing nothing of the code that wrote it.

Invariant: what is found comes from the file's own parts (OpenDocument 1.3) by name, never from an answer.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any

from defusedxml import ElementTree

from apis.apps.check.case import NotSo

_NAMES = {
    "anim": "animation", "draw": "drawing", "fo": "xsl-fo-compatible", "office": "office", "svg": "svg-compatible",
    "presentation": "presentation", "style": "style", "text": "text", "smil": "smil-compatible",
}  # fmt: skip
_LINK = "{http://www.w3.org/1999/xlink}href"


def _full(name: str) -> str:
    """A name like draw:page as the parser has it."""
    space, _, local = name.partition(":")
    return f"{{urn:oasis:names:tc:opendocument:xmlns:{_NAMES[space]}:1.0}}{local}"


class SavedBox:
    """A box of a slide, and the styles of its text."""

    def __init__(self, presentation: PresentationFile, node: Any) -> None:
        self._presentation = presentation
        self.node = node
        self.lines = ["".join(line.itertext()) for line in node.iter(_full("text:p"))]

    def cm(self, name: str) -> float:
        """x, y, width or height."""
        return float(self.node.get(_full(f"svg:{name}"), "0cm").removesuffix("cm"))

    def role(self) -> str:
        """The placeholder's class; "" for a box that is none."""
        return str(self.node.get(_full("presentation:class"), ""))

    def look(self, name: str, line: int = 0) -> set[str]:
        """All values of a property like fo:font-weight that the texts of a line have by their own styles."""
        paragraph = list(self.node.iter(_full("text:p")))[line]
        spans = list(paragraph.iter(_full("text:span"))) or [paragraph]
        return {self._presentation.look(span.get(_full("text:style-name"), ""), name) for span in spans}

    def aligned(self) -> set[str]:
        """How its lines are aligned by their own styles."""
        styles = (line.get(_full("text:style-name"), "") for line in self.node.iter(_full("text:p")))
        return {self._presentation.look(style, "fo:text-align") for style in styles}

    def own(self, name: str) -> str:
        """A property of the box's own style, like draw:fill-color."""
        style = self.node.get(_full("presentation:style-name")) or self.node.get(_full("draw:style-name"), "")
        return self._presentation.look(style, name)

    def link(self, name: str) -> str:
        """The file that a part like draw:image refers to, "" without one."""
        found = self.node.find(f".//{_full(name)}")
        return "" if found is None else str(found.get(_LINK, ""))


class PresentationFile:
    """The slides of the presentation in `data`. Raises NotSo where it is none."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile:
            raise NotSo("the saved file is no presentation") from None
        self.content = ElementTree.fromstring(self.part("content.xml"))
        self.styles = ElementTree.fromstring(self.part("styles.xml"))
        self._looks = {
            node.get(_full("style:name")): node
            for root in (self.styles, self.content)
            for node in root.iter(_full("style:style"))
        }
        self.pages = list(self.content.iter(_full("draw:page")))

    def part(self, name: str) -> bytes:
        """A part's bytes. Raises NotSo."""
        try:
            return self._zip.read(name)
        except KeyError:
            raise NotSo(f"the saved file has no part {name}") from None

    def boxes(self, slide: int) -> list[SavedBox]:
        """The boxes of a slide, whose number counts from 1. Raises NotSo."""
        if slide > len(self.pages):
            raise NotSo(f"the saved file has {len(self.pages)} slides, not {slide}")
        return [SavedBox(self, node) for node in self.pages[slide - 1] if node.tag.startswith(_full("draw:"))]

    def look(self, style: str, name: str) -> str:
        """A property that a style has itself, "" where it has none."""
        node = self._looks.get(style)
        found = (part.get(_full(name)) for part in ([] if node is None else node.iter()))
        return next((str(value) for value in found if value is not None), "")

    def ground(self, slide: int, name: str) -> str:
        """A property of a slide's background."""
        return self.look(self.pages[slide - 1].get(_full("draw:style-name"), ""), name)

    def size(self) -> tuple[str, str]:
        """Width and height of the slides, as the design of the first one has them."""
        wanted = self.pages[0].get(_full("draw:master-page-name"))
        designs = {node.get(_full("style:name")): node for node in self.styles.iter(_full("style:master-page"))}
        layouts = {node.get(_full("style:name")): node for node in self.styles.iter(_full("style:page-layout"))}
        try:
            inside = layouts[designs[wanted].get(_full("style:page-layout-name"))][0]
        except (KeyError, IndexError):
            raise NotSo("the first slide has no design with a size") from None
        return inside.get(_full("fo:page-width"), ""), inside.get(_full("fo:page-height"), "")

    def played(self, slide: int) -> list[str]:
        """Commands like "play" of a slide's effects that wait for no click."""
        return [node.get(_full("anim:command"), "") for node in self.pages[slide - 1].iter(_full("anim:command"))]

    def numbers(self) -> list[str]:
        """Colours of the slide numbers that the designs have."""
        spans = (
            span for design in self.styles.iter(_full("style:master-page")) for span in design.iter(_full("text:span"))
        )
        numbers = (span for span in spans if span.find(_full("text:page-number")) is not None)
        return [self.look(span.get(_full("text:style-name"), ""), "fo:color") for span in numbers]
