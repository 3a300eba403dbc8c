"""A flat OpenDocument file as lines that say what it shows: two files with the same lines show the same.

What is not known to be silent is kept. Styles count by what they come to, never by their names. Text is
joined as far as it looks alike. Equal neighbours among columns, rows and cells are counted together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.markup import MarkupNode, MarkupTree, walk

MOST_PARENTS = 16  # of a style
PREFIXES = {
    f"urn:oasis:names:tc:opendocument:xmlns:{space}:1.0": prefix
    for prefix, space in {
        "office": "office", "style": "style", "text": "text", "table": "table", "draw": "drawing",
        "fo": "xsl-fo-compatible", "svg": "svg-compatible", "presentation": "presentation", "meta": "meta",
        "number": "datastyle", "config": "config", "script": "script", "form": "form", "chart": "chart",
        "dr3d": "dr3d", "anim": "animation", "smil": "smil-compatible", "db": "database",
    }.items()
}  # fmt: skip
PREFIXES |= {
    "http://www.w3.org/1999/xlink": "xlink",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://openoffice.org/2009/office": "officeooo",
    "urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0": "calcext",
    "urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0": "loext",
}
# Of a style: what its programs keep for themselves, and what shows on texts of scripts that no task has.
_SILENT = re.compile(
    r".*-(?:asian|complex)|officeooo:.*|fo:(?:language|country|script|hyphenat.*)|style:(?:rfc-language-tag|font-charset"
    r"|font-(?:family-generic|pitch|adornments)|justify-single-word)|fo:(?:orphans|widows)"
    r"|style:(?:text-autospace|punctuation-wrap|line-break|writing-mode-automatic|register-true|auto-text-indent)"
)
_OWN = {"style:name", "style:family", "style:display-name", "style:parent-style-name", "style:next-style-name",
        "style:class", "style:auto-update", "style:default-outline-level", "loext:linked-style-name",
        "style:list-level"}  # fmt: skip
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
# Of a placeholder without text: where that would run, and how it would fit. LibreOffice writes it once there was some.
_OF_NO_TEXT = re.compile(
    "paragraph-properties style:writing-mode"
    "|graphic-properties (fo:min-height|style:shrink-to-fit|draw:fit-to-size|draw:auto-grow-height)"
)


def lines(data: Iterable[bytes], budget: Budget) -> list[str]:
    """What the flat file shows, in its order. Raises RefusedError."""
    tree = MarkupTree(budget)
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
    def __init__(self, document: MarkupNode) -> None:
        self._styles = FlatStyles(document)
        masters = document.first("office:master-styles") or MarkupNode("", {})
        self._masters = {node.attributes.get("style:name", ""): node for node in masters.elements}
        self._first = next(iter(self._masters), "")

    def about(self, document: MarkupNode) -> Iterator[str]:
        """What it says about itself, and what its settings forbid."""
        for node in (document.first("office:meta") or MarkupNode("", {})).elements:
            if _META.fullmatch(node.name):
                yield plainly(node)
        for node in (document.first("office:settings") or MarkupNode("", {})).below("config:config-item"):
            if _SETTINGS.fullmatch(node.attributes.get("config:name", "")):
                yield plainly(node)
        for node in (document.first("office:scripts") or MarkupNode("", {})).elements:
            if node.name != "office:script" or any(True for _ in node.below("?:library-embedded")):
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

    def element(self, node: MarkupNode, indent: str) -> Iterator[str]:
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

    def _inside(self, inside: Sequence[MarkupNode | str], indent: str) -> Iterator[str]:
        for repeats, group in groupby(
            inside, key=lambda child: isinstance(child, MarkupNode) and child.name in _REPEATED
        ):
            if repeats:
                yield from self._repeated([child for child in group if isinstance(child, MarkupNode)], indent)
                continue
            for child in group:
                if isinstance(child, MarkupNode):
                    yield from self.element(child, indent)
                elif child.strip():
                    yield f"{indent}{child.strip()!r}"

    def _repeated(self, nodes: Sequence[MarkupNode], indent: str) -> Iterator[str]:
        """Columns, rows or cells: those that are alike, next to each other, are counted together."""
        each = (
            (tuple(self.element(node, indent)), int(node.attributes.get(_REPEATED[node.name], "1"))) for node in nodes
        )
        for said, group in groupby(each, key=lambda one: one[0]):
            yield f"{indent}{sum(count for _, count in group)} x"
            yield from said

    def _attributes(self, node: MarkupNode) -> str:
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
                if key == "presentation:style-name" and node.name == "draw:frame" and _without_text(node):
                    looks = {name: look for name, look in looks.items() if not _OF_NO_TEXT.fullmatch(name)}
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

    def _paragraph(self, node: MarkupNode, indent: str) -> Iterator[str]:
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

    def _runs(self, inside: Sequence[MarkupNode | str], looks: Looks) -> Iterator[tuple[str, str | None]]:
        """Texts with their looks; what else is in the paragraph comes with no looks, line by line."""
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


def _without_empty_ends(frame: MarkupNode) -> MarkupNode:
    """A placeholder's frame without empty lines at its end, few as they may be; one without text is like any other."""
    kept = MarkupNode(frame.name, dict(frame.attributes))
    kept.inside = [_trimmed(child, MOST_EMPTY_LINES) for child in frame.elements]
    if _without_text(kept):
        kept.attributes.pop("presentation:placeholder", None)
        kept.attributes.pop("draw:text-style-name", None)
    return kept


def _without_text(frame: MarkupNode) -> bool:
    return all(child.name == "draw:text-box" and not child.inside for child in frame.elements)


def _trimmed(node: MarkupNode, most: int) -> MarkupNode:
    kept = MarkupNode(node.name, node.attributes)
    kept.inside = [child for child in node.inside if isinstance(child, MarkupNode) or child.strip()]
    if node.name in _BLOCKS:
        for _ in range(most):
            if not (kept.inside and _is_empty(kept.inside[-1])):
                break
            kept.inside.pop()
        if kept.inside and isinstance(kept.inside[-1], MarkupNode):
            kept.inside[-1] = _trimmed(kept.inside[-1], most)
    return kept


def _is_empty(child: MarkupNode | str) -> bool:
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


def plainly(node: MarkupNode) -> str:
    """An element as one line, its attributes in order."""
    said = " ".join(f"{key}={value}" for key, value in sorted(node.attributes.items()) if key != "style:name")
    inside = "".join(child.strip() if isinstance(child, str) else plainly(child) for child in node.inside)
    return f"<{node.name} {said}>{inside}"


Looks = dict[str, str]  # "text-properties fo:color" -> "#ff0000"


class FlatStyles:
    """The styles of a document: automatic ones, those with a name of their own, and defaults."""

    def __init__(self, document: MarkupNode) -> None:
        self._styles: dict[tuple[str, str], MarkupNode] = {}
        self._named: set[tuple[str, str]] = set()
        self._defaults: dict[str, MarkupNode] = {}
        self._others: dict[str, MarkupNode] = {}
        self._found: dict[tuple[str, str], Looks] = {}
        faces = (document.first("office:font-face-decls") or MarkupNode("", {})).elements
        self._fonts = {
            face.attributes.get("style:name", ""): face.attributes.get("svg:font-family", "") for face in faces
        }
        for group in ("office:styles", "office:automatic-styles"):
            for style in (document.first(group) or MarkupNode("", {})).elements:
                self._keep(style, named=group == "office:styles")

    def _keep(self, style: MarkupNode, *, named: bool) -> None:
        family, name = style.attributes.get("style:family", ""), style.attributes.get("style:name", "")
        if style.name == "style:default-style":
            self._defaults[family] = style
        elif style.name == "style:style":
            self._styles[family, name] = style
            if named:
                self._named.add((family, name))
        else:
            self._others[name or style.attributes.get("draw:name", "")] = style

    def other(self, name: str) -> str:
        """A style of another kind, as of lists, numbers or pages, as one line; the name where there is none."""
        found = self._others.get(name)
        return plainly(found) if found is not None else name

    def named(self, family: str, name: str) -> str:
        """The style with a name of its own that `name` is or derives from."""
        for _ in range(MOST_PARENTS):
            if (family, name) in self._named or (family, name) not in self._styles:
                return name
            name = self._styles[family, name].attributes.get("style:parent-style-name", "")
        return name

    def looks(self, family: str, name: str) -> Looks:
        """All that `name` comes to in its family, defaults and what it derives from included."""
        if (family, name) not in self._found:
            chain = [self._defaults[family]] if family in self._defaults and family != "text" else []
            own: list[MarkupNode] = []
            at = name
            while (style := self._styles.get((family, at))) is not None and len(own) < MOST_PARENTS:
                own.append(style)
                at = style.attributes.get("style:parent-style-name", "")
            found: Looks = {}
            for style in (*chain, *reversed(own)):
                self._add(style, found)
            self._found[family, name] = found
        return self._found[family, name]

    def _add(self, style: MarkupNode, found: Looks) -> None:
        for key, value in style.attributes.items():
            if key not in _OWN:
                found[key] = self.other(value) if key.endswith("-style-name") else value
        for part in style.elements:
            kind = part.name.removeprefix("style:")
            if not kind.endswith("-properties"):
                found[kind] = found.get(kind, "") + plainly(part)
                continue
            for key, value in part.attributes.items():
                if not _SILENT.fullmatch(key):
                    found[f"{kind} {key}"] = self._fonts.get(value, value) if key == "style:font-name" else value
            for child in part.elements:
                found[f"{kind} {child.name}"] = plainly(child)
