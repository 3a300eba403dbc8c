"""Whether LibreOffice wrote a package: its parts are compared with packages of the same document that it wrote here.

Invariant: a difference is reported for each element, attribute, value or text that none of LibreOffice's own packages
has at the same place of the same part. Exceptions are listed here. Order is left to the reader of the document.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Bounds, Budget, RefusedError
from apis.documents.read.markup import MarkupHandler, walk

Fact = tuple[str, str, str]  # path of local names, attribute ("": text), value
_MARKUP = (".xml", ".rels", ".rdf")
_UNSEEN = (b"<!--", b"<![CDATA[")  # what no office writes into its parts, and what no reader sees
_SPARE, _SPARE_BYTES, _SPARE_ELEMENTS = 2, 8192, 100  # of a part, beyond what LibreOffice's own has
_SIZES_BEHIND = 2056
_TIGHT = (2048, _SIZES_BEHIND)  # flags of members as LibreOffice packs them: names in UTF-8, their sizes behind them
_LOCAL = struct.Struct("<4s2H")
_END_SIZE = 22  # of an archive, without a comment

# Of an episode, not of the document: when, how long, how much; where the caret and the window were; how automatic
# styles are numbered. Part, path, attribute, value; each is a pattern for all of it.
_NUMBER, _DATE, _WORD = r"-?[0-9.]{1,20}", r"[0-9]{4}-[0-9T:.+Z-]{6,40}", r"[\w ,.:;+/=()$%~-]{0,200}"
_COUNT = r"[0-9]{0,9}"
_SHEET = r"xl/worksheets/sheet[0-9]+\.xml"
_OF_EPISODE = tuple(
    tuple(re.compile(pattern) for pattern in row)
    for row in (
        (r"docProps/core\.xml", "/coreProperties/(?:modified|created|lastPrinted|revision)", "|type",
         f"{_DATE}|{_COUNT}|dcterms:W3CDTF"),
        (r"docProps/app\.xml", "/Properties/(?:TotalTime|Pages|Words|Lines|Characters|CharactersWithSpaces|Paragraphs)",
         "", _COUNT),
        (r"meta\.xml", "/document-meta/meta/(?:date|creation-date|print-date|editing-cycles|editing-duration)", "",
         f"{_DATE}|{_COUNT}|P[0-9DTHMS.]{{1,30}}"),
        (r"docProps/app\.xml|meta\.xml", "/Properties/Application|/document-meta/meta/generator", "",
         r"LibreOffice/[\d.]{1,20}\$[\w ]{1,40} LibreOffice_project/[\w$-]{1,60}"),  # of another patch level, too
        (r"meta\.xml", "/document-meta/meta/document-statistic", "[a-z]+-count", _COUNT),
        (r"settings\.xml", "/document-settings/settings/config-item-set(?:/config-item-map-indexed"
         "(?:/config-item-map-entry)?)?(?:/config-item)?", "|type|name", _WORD),
        (r"xl/workbook\.xml", "/workbook/bookViews/workbookView",
         "xWindow|yWindow|windowWidth|windowHeight|tabRatio|firstSheet|activeTab", _NUMBER),
        (_SHEET, "/worksheet/sheetViews/sheetView", "zoomScale(?:Normal|PageLayoutView)?|topLeftCell|colorId",
         "[A-Z]{0,3}[0-9]{1,7}"),
        (_SHEET, "/worksheet/sheetViews/sheetView/selection", "activeCell|sqref|activeCellId|pane",
         "[A-Za-z0-9: ]{1,80}"),
        (_SHEET, "/worksheet/sheetData/row/c/f", "", ".{0,200}"),  # formulas are worked out with other numbers
        (r"xl/styles\.xml", "/styleSheet/dxfs(?:/.*)?", ".*", "[A-Za-z0-9]{0,20}"),
        (r"(?:content|styles)\.xml", ".*", "name|(?:.*-)?style-name",
         "(?:dp|gr|pr|P|T|L|ce|co|ro|ta|N|M|MT|MP|Mgr|Mpr|Mdp|PM)[0-9]{1,4}[A-Za-z0-9]{0,3}"),
        (r"content\.xml", ".*/frame", "placeholder", "true"), (r"styles\.xml", ".*/page-number", "", "<number>"),
        (r"(?:content|styles)\.xml", ".*/text-properties", "font-name", r"[\w ]{1,40}"),
    )
)  # fmt: skip
_OF_MARKS = re.compile(r"/pPr/rPr(?=/|$)")  # looks of a paragraph's mark are those of its text
_OF_SCRIPTS = re.compile(r"(?<=/rPr/)(sz|b|i)Cs(?=/|$)")  # and those for other scripts, too
_OF_FORMATS = re.compile(
    r"urn:oasis:names:tc:opendocument:|urn:org:documentfoundation:|http://(?:schemas\.openxmlformats\.org|purl\.org"
    r"|openoffice\.org|www\.w3\.org|schemas\.microsoft\.com|docs\.oasis-open\.org)/"
)


@dataclass(frozen=True)
class _Part:
    facts: set[Fact]
    elements: int
    size: int


class _Spaces(dict[str, str]):
    """Namespaces of the formats are left out of names; any other one stays, so that it is found to be strange."""

    def get(self, space: str, _: object = None) -> str:
        return "" if _OF_FORMATS.match(space) else space.replace("/", "|")


class _Facts(MarkupHandler):
    def __init__(self) -> None:
        self.facts: set[Fact] = set()
        self.elements = 0
        self._path = [""]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        path = _OF_SCRIPTS.sub(r"\1", _OF_MARKS.sub("/r/rPr", f"{self._path[-1]}/{name}"))
        self._path.append(path)
        self.facts.add((path, "", ""))
        self.facts.update((path, key, value) for key, value in attributes.items())

    def text(self, data: str) -> None:
        if data := data.strip():
            self.facts.add((self._path[-1], "", data))

    def end(self, name: str) -> None:
        self._path.pop()


def strange(data: bytes, others: Sequence[bytes], budget: Callable[[], Budget]) -> str:
    """What the package has that none of `others`, which LibreOffice wrote of the same document, has; "" for nothing.

    Raises RefusedError for what is no archive.
    """
    if not tight(data):
        return "its archive is not as LibreOffice writes one"
    own = _parts(data, budget())
    theirs = [_parts(other, budget()) for other in others]
    for name, part in own.items():
        like = [one[name] for one in theirs if name in one]
        if not like:
            return f"it has a part {name[:80]!r}, which LibreOffice does not write"
        if part.size > _SPARE * max(one.size for one in like) + _SPARE_BYTES:
            return f"its part {name} is larger than LibreOffice writes it"
        if part.elements > _SPARE * max(one.elements for one in like) + _SPARE_ELEMENTS:
            return f"its part {name} has more in it than LibreOffice writes"
        known = set().union(*(one.facts for one in like))
        for fact in sorted(part.facts - known):
            if not _of_episode(name, fact):
                return f"its part {name} has something that LibreOffice does not write: {_said(fact)}"
    if lacking := set.intersection(*(set(one) for one in theirs)) - own.keys():
        return f"it lacks the part {min(lacking)}"
    return ""


def _parts(data: bytes, budget: Budget) -> dict[str, _Part]:
    archive = Archive(data, budget)
    found = {}
    for name in archive.names:
        raw = archive.read(name, budget.bounds.member_bytes)
        facts = _Facts()
        if not name.endswith(_MARKUP):
            facts.facts.add(("", "", hashlib.blake2b(raw).hexdigest()))
        elif any(mark in raw for mark in _UNSEEN):
            raise RefusedError("not_a_workbook")
        else:
            walk([raw], facts, _Spaces(), budget)
        found[name] = _Part(facts.facts, facts.elements, len(raw))
    return found


def tight(data: bytes) -> bool:
    """Whether nothing lies before, between or behind the members of an archive, and each is as LibreOffice packs it."""
    archive = Archive(data, Budget(Bounds()))
    at = 0
    for start, end in archive.spans:
        if start != at:
            return False
        flags = _LOCAL.unpack_from(data, start)[2] if data[start : start + 4] == b"PK\x03\x04" else None
        if flags is not None and flags not in _TIGHT:
            return False
        at = end + (16 if flags == _SIZES_BEHIND else 0)
    return at + _END_SIZE == len(data)


def _of_episode(part: str, fact: Fact) -> bool:
    path, key, value = fact
    return any(
        of.fullmatch(part) and at.fullmatch(path) and named.fullmatch(key) and like.fullmatch(value)
        for of, at, named, like in _OF_EPISODE
    )


def _said(fact: Fact) -> str:
    path, key, value = fact
    return f"{path[-80:]} {key[:40]} {value[:40]!r}"
