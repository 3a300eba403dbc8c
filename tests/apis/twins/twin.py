"""Twins of published metrics: results whose scores are known.

Each has a right one, near misses and an untouched one.
"""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

import msgspec

from apis.documents.docx import make_docx
from apis.documents.read import parse
from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.xlsx import make_xlsx
from apis.tasks.verify.verify import KINDS, FileView


def file(content: str | bytes) -> FileView:
    """A file of the desktop, or of the task, with this content."""
    return FileView("file", data=content.encode() if isinstance(content, str) else content)


def as_read(value: Any, kind: str) -> Any:
    """A result as the reader of frozen desktops hands it on, for a metric that reads `kind`."""
    if isinstance(value, list):
        return [as_read(one, kind) for one in value]
    if not isinstance(value, FileView) or value.kind != "file" or kind not in KINDS:
        return value
    try:
        found = msgspec.convert(parse.PARSERS[kind](value.data, Bounds()), KINDS[kind])
    except RefusedError as refused:
        return msgspec.structs.replace(value, kind="refused", reason=str(refused))
    return msgspec.structs.replace(value, kind=kind, **{kind: found})


def book(*rows: list[Any], **others: list[list[Any]]) -> FileView:
    """A workbook whose sheet Sheet1 has these rows; `others` are more sheets."""
    return file(make_xlsx({"Sheet1": list(rows), **others}))


def paper(*paragraphs: Any) -> FileView:
    """A text document of these paragraphs."""
    return file(make_docx(list(paragraphs)))


def database(**tables: list[tuple[str | int, ...]]) -> FileView:
    """A SQLite file; each table's rows stand behind the names of its columns."""
    made = sqlite3.connect(":memory:")
    for name, (columns, *rows) in tables.items():
        made.execute(f"CREATE TABLE {name} ({', '.join(map(str, columns))})")
        places = ", ".join("?" * len(columns))
        made.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
    made.commit()
    return file(made.serialize())


def status(state: str, **about: str) -> FileView:
    """VLC's status.xml."""
    infos = "".join(f'<info name="{name}">{value}</info>' for name, value in about.items())
    meta = f'<information><category name="meta">{infos}</category></information>'
    return file(f"<root><state>{state}</state>{meta}</root>")


class Twin(NamedTuple):
    """One task's judging: the first result is right, the others are near misses, the last of them is untouched."""

    name: str
    expected: Any
    options: dict[str, Any]
    right: Any
    wrong: list[Any]
