"""Texts of slides (ECMA-376 part 1, DrawingML): paragraphs and what was set on their runs.

Invariant: a paragraph is kept with its place even where it has no text. What is not set has no mark.
"""

from __future__ import annotations

from typing import Any

from apis.documents.read.bounds import Budget, RefusedError

_MARK_CHARS = 64
_ON = ("1", "true")
_ALIGNED = {"l": "", "ctr": "center", "r": "right", "just": "justify"}


class SlideText:
    """Paragraphs as they are found, each put into the list that `into` was given last."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._into: list[dict[str, Any]] = []
        self._span: dict[str, Any] | None = None

    def into(self, paragraphs: list[dict[str, Any]]) -> None:
        """Put what comes into `paragraphs`."""
        self._into, self._span = paragraphs, None

    def start(self, path: list[str], attributes: dict[str, str]) -> None:
        """An element begins; it is the last of `path`."""
        name, parent = path[-1], path[-2] if len(path) > 1 else ""
        if name == "a:p":
            self._budget.spend("cells")
            self._into.append({"spans": [], "marks": []})
        elif not self._into:
            return
        elif name in ("a:r", "a:fld", "a:br"):
            self._budget.spend("cells")
            self._span = {"text": "\v" if name == "a:br" else "", "marks": []}
            self._into[-1]["spans"].append(self._span)
        elif name == "a:pPr" and parent == "a:p":
            self._marked(_layout(attributes), self._into[-1])
        elif name == "a:buChar" and parent == "a:pPr":
            self._marked([f"bullet {attributes.get('char', '')}"], self._into[-1])
        elif self._span is not None:
            self._look(path, attributes, self._span)

    def _look(self, path: list[str], attributes: dict[str, str], span: dict[str, Any]) -> None:
        name = path[-1]
        if name == "a:rPr":
            self._marked(_looks(attributes), span)
        elif name == "a:latin" and path[-2] == "a:rPr":
            self._marked([f"font {attributes.get('typeface', '')}"], span)
        elif path[-3:-1] == ["a:rPr", "a:solidFill"]:
            self._marked([f"color {attributes.get('val', '').upper()}"], span)

    def _marked(self, marks: list[str], on: dict[str, Any]) -> None:
        self._budget.spend("chars", sum(map(len, marks)))
        on["marks"] += [mark[:_MARK_CHARS] for mark in marks if mark]

    def text(self, data: str) -> None:
        """Characters of a run."""
        self._budget.spend("chars", len(data))
        if self._span is not None:
            self._span["text"] += data
            if len(self._span["text"]) > self._budget.bounds.cell_chars:
                raise RefusedError("too_big")

    def end(self, name: str) -> None:
        """An element ends."""
        if name in ("a:r", "a:fld", "a:br"):
            self._span = None


def _layout(attributes: dict[str, str]) -> list[str]:
    level, aligned = attributes.get("lvl", "0"), attributes.get("algn", "l")
    return ["" if level == "0" else f"level {level}", _ALIGNED.get(aligned, aligned)]


def _looks(attributes: dict[str, str]) -> list[str]:
    found = [f"size {attributes['sz']}"] if "sz" in attributes else []
    found += [word for key, word in (("b", "bold"), ("i", "italic")) if attributes.get(key) in _ON]
    for key, word, off in (("u", "underline", "none"), ("strike", "strike", "noStrike")):
        if (value := attributes.get(key, off)) != off:
            found.append(f"{word} {value}")
    return found
