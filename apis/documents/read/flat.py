"""A flat OpenDocument file as lines that say what it shows: two files with the same lines show the same.

Invariant: what is not known to be silent is kept. Styles count by what they come to, never by their names. Text is
joined as far as it looks alike. Equal neighbours among columns, rows and cells are counted together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.flat_styles import PREFIXES, FlatNode, FlatStyles, FlatTree, Looks, plainly
from apis.documents.read.markup import walk

_PARAGRAPHS = ("text:p", "text:h")
_WORDS = {"text:tab": "\t", "text:line-break": "\n", "text:s": " "}
# Where a page happened to end, where the caret was, what a dialog shows; none of it is seen in the document.
_SILENT_ELEMENTS = {
    "text:soft-page-break", "text:sequence-decls", "text:bookmark", "text:bookmark-start", "text:bookmark-end",
    "office:forms", "draw:page-thumbnail",
}  # fmt: skip
_SILENT_ATTRIBUTES = {"xml:id", "draw:z-index", "draw:id", "text:id", "officeooo:rsid", "officeooo:paragraph-rsid",
                      "calcext:value-type", "presentation:presentation-page-layout-name"}  # fmt: skip
_REPEATED = {
    "table:table-column": "table:number-columns-repeated", "table:table-row": "table:number-rows-repeated",
    "table:table-cell": "table:number-columns-repeated", "table:covered-table-cell": "table:number-columns-repeated",
}  # fmt: skip
_OF_CELLS = {"table:table-column": "table-column", "table:table-row": "table-row", "table:table": "table"}
_META = re.compile(r"dc:(?:title|subject|description)|meta:(?:keyword|user-defined|template|auto-reload)")
_SETTINGS = re.compile(
    r"(?:.*Protect|Redline|.*RecordChanges|.*TrackedChanges|.*Password|.*Macro|IsReadOnly|.*ReadOnly).*"
)
MOST_SPACES = 1000
MOST_EMPTY_LINES = 2  # at the end of a box: one who types ends a line that is the last one
_BLOCKS = ("draw:text-box", "text:list", "text:list-item", "text:list-header")  # of a box
_EMPTY = ("text:p", "text:span")


def lines(data: Iterable[bytes], budget: Budget) -> list[str]:
    """What the flat file shows, in its order. Raises RefusedError."""
    tree = FlatTree(budget)
    walk(data, tree, PREFIXES, budget)
    document = tree.root.first("office:document")
    body = document.first("office:body") if document is not None else None
    if document is None or body is None:
        raise RefusedError("not_a_workbook")
    shown = _Shown(document)
    return [
        *shown.about(document),
        *shown.pages(),
        *(line for part in body.elements for line in shown.element(part, "")),
    ]


class _Shown:
    def __init__(self, document: FlatNode) -> None:
        self._styles = FlatStyles(document)
        masters = document.first("office:master-styles") or FlatNode("", {})
        self._masters = {node.attributes.get("style:name", ""): node for node in masters.elements}
        self._first = next(iter(self._masters), "")

    def about(self, document: FlatNode) -> Iterator[str]:
        """What it says about itself, and what its settings forbid."""
        for node in (document.first("office:meta") or FlatNode("", {})).elements:
            if _META.fullmatch(node.name):
                yield plainly(node)
        for node in _below(document.first("office:settings") or FlatNode("", {}), "config:config-item"):
            if _SETTINGS.fullmatch(node.attributes.get("config:name", "")):
                yield plainly(node)
        for node in (document.first("office:scripts") or FlatNode("", {})).elements:
            if node.name != "office:script" or any(True for _ in _below(node, "?:library-embedded")):
                yield plainly(node)

    def pages(self) -> Iterator[str]:
        """The kind of page that a document begins with."""
        yield from self._master(self._first)

    def _master(self, name: str) -> Iterator[str]:
        node = self._masters.get(name)
        if node is None:
            yield f"page {name}"
            return
        layout = node.attributes.get("style:page-layout-name", "")
        yield f"page {self._styles.other(layout)}"
        following = node.attributes.get("style:next-style-name", "")
        if following and following != name:
            then = self._masters.get(following, node).attributes.get("style:page-layout-name", "")
            yield f"next page {self._styles.other(then)}"
        if "draw:style-name" in node.attributes:
            yield f"page looks {_said(self._styles.looks('drawing-page', node.attributes['draw:style-name']))}"
        for child in node.elements:
            yield from self.element(child, " ")

    def element(self, node: FlatNode, indent: str) -> Iterator[str]:
        """An element and all that is in it."""
        if node.name in _SILENT_ELEMENTS:
            return
        if node.name in _PARAGRAPHS:
            yield from self._paragraph(node, indent)
            return
        if node.name == "draw:frame" and "presentation:class" in node.attributes:
            node = _without_empty_ends(node)
        yield f"{indent}{node.name} {self._attributes(node)}".rstrip()
        if node.name == "text:page-number":  # what it came to on some page
            return
        if "draw:master-page-name" in node.attributes:
            yield from self._master(node.attributes["draw:master-page-name"])
        yield from self._inside(node.inside, indent + " ")

    def _inside(self, inside: Sequence[FlatNode | str], indent: str) -> Iterator[str]:
        for repeats, group in groupby(
            inside, key=lambda child: isinstance(child, FlatNode) and child.name in _REPEATED
        ):
            if repeats:
                yield from self._repeated([child for child in group if isinstance(child, FlatNode)], indent)
                continue
            for child in group:
                if isinstance(child, FlatNode):
                    yield from self.element(child, indent)
                elif child.strip():
                    yield f"{indent}{child.strip()!r}"

    def _repeated(self, nodes: Sequence[FlatNode], indent: str) -> Iterator[str]:
        """Columns, rows or cells: those that are alike, next to each other, are counted together."""
        each = (
            (tuple(self.element(node, indent)), int(node.attributes.get(_REPEATED[node.name], "1"))) for node in nodes
        )
        for said, group in groupby(each, key=lambda one: one[0]):
            yield f"{indent}{sum(count for _, count in group)} x"
            yield from said

    def _attributes(self, node: FlatNode) -> str:
        found = []
        for key, value in sorted(node.attributes.items()):
            if key in _SILENT_ATTRIBUTES or key in _REPEATED.values() or key == "draw:master-page-name":
                continue
            if key == "table:formula":  # formulas are compared by what they come to with other numbers
                found.append(key)
                continue
            family = _family(node.name, key)
            if family:
                looks = self._styles.looks(family, value)
                if family == "table-row" and looks.get("table-row-properties style:use-optimal-row-height") == "true":
                    looks = {
                        name: said for name, said in looks.items() if name != "table-row-properties style:row-height"
                    }
                found.append(f"{key}={{{_said(looks)}}}")
            elif key.endswith("style-name"):
                found.append(f"{key}={self._styles.other(value)}")
            else:
                found.append(f"{key}={value}")
        return " ".join(found)

    def _paragraph(self, node: FlatNode, indent: str) -> Iterator[str]:
        name = node.attributes.get("text:style-name", "")
        looks = self._styles.looks("paragraph", name)
        page = looks.get("style:master-page-name", "")
        own = {
            key: value
            for key, value in looks.items()
            if not key.startswith("text-properties") and key != "style:master-page-name"
        }
        runs = list(
            _joined(self._runs(node.inside, {key: looks[key] for key in looks if key.startswith("text-properties")}))
        )
        others = " ".join(
            f"{key}={value}"
            for key, value in sorted(node.attributes.items())
            if key not in ("text:style-name", *_SILENT_ATTRIBUTES)
        )
        said = f"{node.name} {others} {self._styles.named('paragraph', name)} {{{_said(own)}}}"
        if page:
            yield from self._master(page)
        yield f"{indent}{'' if runs else 'empty '}{said}"
        yield from (f"{indent} {line}" for line in runs)

    def _runs(self, inside: Sequence[FlatNode | str], looks: Looks) -> Iterator[tuple[str, str | None]]:
        """Texts with their looks; what else stands in the paragraph comes with no looks, line by line."""
        for child in inside:
            if isinstance(child, str):
                yield child, _said(looks)
            elif child.name == "text:span":
                own = self._styles.looks("text", child.attributes.get("text:style-name", ""))
                yield from self._runs(
                    child.inside, looks | {key: own[key] for key in own if key.startswith("text-properties")}
                )
            elif child.name in _WORDS:
                count = child.attributes.get("text:c", "1")
                yield _WORDS[child.name] * (min(int(count), MOST_SPACES) if count.isdecimal() else 1), _said(looks)
            else:
                for line in self.element(child, ""):
                    yield line, None


def _without_empty_ends(frame: FlatNode) -> FlatNode:
    """A placeholder's frame without empty lines at its end, few as they may be; one without text is like any other."""
    kept = FlatNode(frame.name, dict(frame.attributes))
    kept.inside = [_trimmed(child, MOST_EMPTY_LINES) for child in frame.elements]
    if all(child.name == "draw:text-box" and not child.inside for child in kept.elements):
        kept.attributes.pop("presentation:placeholder", None)
        kept.attributes.pop("draw:text-style-name", None)
    return kept


def _trimmed(node: FlatNode, most: int) -> FlatNode:
    kept = FlatNode(node.name, node.attributes)
    kept.inside = [child for child in node.inside if isinstance(child, FlatNode) or child.strip()]
    if node.name in _BLOCKS:
        for _ in range(most):
            if not (kept.inside and _is_empty(kept.inside[-1])):
                break
            kept.inside.pop()
        if kept.inside and isinstance(kept.inside[-1], FlatNode):
            kept.inside[-1] = _trimmed(kept.inside[-1], most)
    return kept


def _is_empty(child: FlatNode | str) -> bool:
    if isinstance(child, str):
        return not child.strip()
    return child.name in (*_BLOCKS, *_EMPTY) and all(map(_is_empty, child.inside))


def _joined(runs: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    for looks, group in groupby(runs, key=lambda run: run[1]):
        if looks is None:
            yield from (line for line, _ in group)
        elif text := "".join(text for text, _ in group):
            yield f"{text!r} {{{looks}}}"


def _said(looks: Looks) -> str:
    return "; ".join(f"{key}: {value}" for key, value in sorted(looks.items()))


def _below(node: FlatNode, name: str) -> Iterator[FlatNode]:
    for child in node.elements:
        if child.name == name:
            yield child
        yield from _below(child, name)


def _family(element: str, key: str) -> str:
    """The family of the style that an element's attribute names; "" where it names none."""
    if key == "table:default-cell-style-name":
        return "table-cell"
    if key == "table:style-name":
        return _OF_CELLS.get(element, "table-cell")
    if key == "presentation:style-name":
        return "presentation"
    if key == "draw:text-style-name":
        return "paragraph"
    if key == "draw:style-name":
        return "drawing-page" if element in ("draw:page", "presentation:notes", "style:handout-master") else "graphic"
    return ""
