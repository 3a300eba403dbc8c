"""The form in which Chromium writes its bookmarks: its checksum, its layout, and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from apis.tasks.verify.verify import FileView

BLOCK_BYTES = 16
MOST_DEPTH = 20  # of folders in folders
ROOTS = (  # what Chromium calls its own folders, and by which numbers it knows them
    ("bookmark_bar", "0bc5d13f-2cba-5d74-951f-3f233fe6c908"),
    ("other", "82b081ec-3dd3-529c-8475-ab6c344590dd"),
    ("synced", "4cf2e351-0e85-532b-bb37-df045d8f8d0f"),
)
_GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"0|[1-9][0-9]{9,18}")  # microseconds since 1601
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

Mark = tuple[str, str, str]  # folder ("": none), title, address


class _Node(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    date_added: str
    guid: str
    id: str
    name: str
    type: str
    children: list[_Node] | msgspec.UnsetType = msgspec.UNSET
    date_last_used: str | msgspec.UnsetType = msgspec.UNSET
    date_modified: str | msgspec.UnsetType = msgspec.UNSET
    meta_info: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    show_icon: bool | msgspec.UnsetType = msgspec.UNSET
    source: str | msgspec.UnsetType = msgspec.UNSET
    url: str | msgspec.UnsetType = msgspec.UNSET


class _Roots(msgspec.Struct, forbid_unknown_fields=True):
    bookmark_bar: _Node
    other: _Node
    synced: _Node


class _File(msgspec.Struct, forbid_unknown_fields=True):
    checksum: str
    roots: _Roots
    version: int
    sync_metadata: str | msgspec.UnsetType = msgspec.UNSET


class NotChromiumsError(Exception):
    """The file is not as Chromium writes it; the text says why."""


def read(data: bytes) -> list[Mark]:
    """The bookmarks in the file; an empty folder counts as one without an address. Raises NotChromiumsError."""
    try:
        found = msgspec.json.decode(data, type=_File)
        nodes = [getattr(found.roots, name) for name, _ in ROOTS]
        marks = [mark for node in nodes for mark in _marks(node)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotChromiumsError("it is no file of bookmarks") from None
    every = [each for node in nodes for each in _all(node)]
    if found.version != 1 or [node.guid for node in nodes] != [guid for _, guid in ROOTS]:
        raise NotChromiumsError("its folders are not Chromium's")
    if len({each.id for each in every}) < len(every) or len({each.guid for each in every}) < len(every):
        raise NotChromiumsError("two of its bookmarks are one")
    if not all(map(_well_formed, every)):
        raise NotChromiumsError("a bookmark is not as Chromium writes it")
    if found.checksum != checksum(nodes):
        raise NotChromiumsError("its checksum is not that of its bookmarks")
    if (
        json.loads(data) != msgspec.to_builtins(found)
        or data.removesuffix(b"\n") != _laid_out(json.loads(data), 0).encode()
    ):
        raise NotChromiumsError("it is not laid out as Chromium does it")
    return marks


def is_twin(view: FileView) -> bool:
    """Whether a file is as Chromium writes what it encrypts: its version, then whole blocks."""
    head, body = view.data[:3], view.data[3:]
    return head in (b"v10", b"v11") and len(body) > BLOCK_BYTES and len(body) % BLOCK_BYTES == 0


def _marks(root: _Node, folder: str = "", depth: int = 0) -> Iterator[Mark]:
    if depth > MOST_DEPTH:
        raise RecursionError
    for node in root.children or ():
        if node.type == "url":
            yield folder, node.name, node.url or ""
        elif node.children:
            yield from _marks(node, f"{folder}/{node.name}" if folder else node.name, depth + 1)
        else:
            yield folder, node.name, ""


def _all(node: _Node) -> Iterator[_Node]:
    yield node
    for below in node.children or ():
        yield from _all(below)


def _well_formed(node: _Node) -> bool:
    if not (_GUID.fullmatch(node.guid) and _NUMBER.fullmatch(node.id) and _TIME.fullmatch(node.date_added)):
        return False
    if node.type == "url":
        return isinstance(node.url, str) and node.children is msgspec.UNSET
    return node.type == "folder" and node.url is msgspec.UNSET and node.children is not msgspec.UNSET


def checksum(roots: Sequence[_Node]) -> str:
    """MD5 over number, title, kind and address of every bookmark, folders before what lies in them (Chromium)."""
    found = hashlib.md5(usedforsecurity=False)
    for root in roots:
        for node in _all(root):
            found.update(node.id.encode() + node.name.encode("utf-16-le", "surrogatepass") + node.type.encode())
            found.update((node.url or "").encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _laid_out(value: object, depth: int) -> str:
    """JSON as Chromium writes it for people: three blanks a level, what stands in a list begins on its own line."""
    pad, inner = " " * 3 * depth, " " * 3 * (depth + 1)
    if isinstance(value, dict):
        rows = (f"{inner}{_string(str(key))}: {_laid_out(below, depth + 1)}" for key, below in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{pad}}}" if value else "{\n" + f"{pad}}}"
    if isinstance(value, list):
        return f"[ {', '.join(_laid_out(below, depth) for below in value)} ]"
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("<", "\\u003C")


def written(marks: Sequence[Mark]) -> bytes:
    """The file that Chromium writes with these bookmarks: those in no folder in its bar, folders among the others."""
    guids = iter(f"{number:08x}-0000-4000-8000-000000000000" for number in range(10**6))
    numbers = iter(range(len(ROOTS) + 1, 10**6))

    def node(name: str, url: str | None = None, children: Sequence[_Node] = (), root: int = 0) -> _Node:
        made = _Node(
            date_added="13400000000000000",
            guid=ROOTS[root - 1][1] if root else next(guids),
            id=str(root or next(numbers)),
            name=name,
            type="folder" if url is None else "url",
        )
        if url is None:
            made.children = list(children)
        else:
            made.url = url
        return made

    kept: dict[str, list[_Node]] = {}
    for folder, title, url in marks:
        kept.setdefault(folder, []).append(node(title, url))
    loose = kept.pop("", [])
    folders = [node(name, children=held) for name, held in kept.items()]
    roots = [node("", children=held, root=number) for number, held in enumerate((loose, folders, []), 1)]
    named = {name: _in_order(root) for (name, _), root in zip(ROOTS, roots, strict=True)}
    return _laid_out({"checksum": checksum(roots), "roots": named, "version": 1}, 0).encode()


def _in_order(node: _Node) -> dict[str, object]:
    fields = dict(sorted(msgspec.to_builtins(node).items()))
    if isinstance(node.children, list):
        fields["children"] = [_in_order(below) for below in node.children]
    return fields
