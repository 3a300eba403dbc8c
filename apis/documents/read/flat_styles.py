"""The looks of a flat OpenDocument file, worked out: what an element's style comes to, whatever the style is called.

Invariant: a property that is not known to show nothing is kept, under its own name. A style may refer to itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from apis.documents.read.bounds import Budget
from apis.documents.read.markup import MarkupHandler

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


class FlatNode:
    """An element: its name with a prefix, attributes likewise, and what is in it, texts and elements in their order."""

    __slots__ = ("attributes", "inside", "name")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.inside: list[FlatNode | str] = []

    @property
    def elements(self) -> Iterator[FlatNode]:
        """The elements in it."""
        return (child for child in self.inside if isinstance(child, FlatNode))

    def first(self, name: str) -> FlatNode | None:
        """The first element in it that is called so."""
        return next((child for child in self.elements if child.name == name), None)


class FlatTree(MarkupHandler):
    """All elements of a flat file, below `root`."""

    def __init__(self, budget: Budget) -> None:
        self.root = FlatNode("", {})
        self._budget = budget
        self._open = [self.root]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._budget.spend("chars", sum(map(len, attributes.values())))
        node = FlatNode(name, attributes)
        self._open[-1].inside.append(node)
        self._open.append(node)

    def text(self, data: str) -> None:
        self._budget.spend("chars", len(data))
        inside = self._open[-1].inside
        if inside and isinstance(inside[-1], str):
            inside[-1] += data
        else:
            inside.append(data)

    def end(self, name: str) -> None:
        self._open.pop()


def plainly(node: FlatNode) -> str:
    """An element as one line, its attributes in order."""
    said = " ".join(f"{key}={value}" for key, value in sorted(node.attributes.items()) if key != "style:name")
    inside = "".join(child.strip() if isinstance(child, str) else plainly(child) for child in node.inside)
    return f"<{node.name} {said}>{inside}"


Looks = dict[str, str]  # "text-properties fo:color" -> "#ff0000"


class FlatStyles:
    """The styles of a document: automatic ones, those with a name of their own, and defaults."""

    def __init__(self, document: FlatNode) -> None:
        self._styles: dict[tuple[str, str], FlatNode] = {}
        self._named: set[tuple[str, str]] = set()
        self._defaults: dict[str, FlatNode] = {}
        self._others: dict[str, FlatNode] = {}
        self._found: dict[tuple[str, str], Looks] = {}
        faces = (document.first("office:font-face-decls") or FlatNode("", {})).elements
        self._fonts = {
            face.attributes.get("style:name", ""): face.attributes.get("svg:font-family", "") for face in faces
        }
        for group in ("office:styles", "office:automatic-styles"):
            for style in (document.first(group) or FlatNode("", {})).elements:
                self._keep(style, named=group == "office:styles")

    def _keep(self, style: FlatNode, *, named: bool) -> None:
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
            own: list[FlatNode] = []
            at = name
            while (style := self._styles.get((family, at))) is not None and len(own) < MOST_PARENTS:
                own.append(style)
                at = style.attributes.get("style:parent-style-name", "")
            found: Looks = {}
            for style in (*chain, *reversed(own)):
                self._add(style, found)
            self._found[family, name] = found
        return self._found[family, name]

    def _add(self, style: FlatNode, found: Looks) -> None:
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
