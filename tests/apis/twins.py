"""Twins of published metrics: results whose scores are known, and what no metric may take for a result.

The table is `twins.yaml`. `make agree` asks the published metrics about the same results. Twins of OfficeWorld's
metrics, which are in no package, are pairs of `office_pairs.py`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from apis.documents.read import RefusedError, parse
from apis.documents.read.bounds import Bounds
from apis.documents.xlsx import make_xlsx
from apis.tasks.verify.verify import KINDS, FileView
from tests.apis import office_pairs


class Twin(NamedTuple):
    """One task's judging: the first result is right, the others are near misses, the last of them is untouched."""

    name: str
    expected: Any
    options: dict[str, Any]
    right: Any
    wrong: list[Any]


def file(content: str | bytes) -> FileView:
    """A file of the desktop, or of the task, with this content."""
    return FileView("file", data=content.encode() if isinstance(content, str) else content)


def book(*rows: list[Any], **others: list[list[Any]]) -> FileView:
    """A workbook whose sheet Sheet1 has these rows; `others` are more sheets."""
    return file(make_xlsx({"Sheet1": list(rows), **others}))


def database(**tables: list[tuple[str | int, ...]]) -> FileView:
    """A SQLite file; each table's rows stand behind the names of its columns."""
    made = sqlite3.connect(":memory:")
    for name, (columns, *rows) in tables.items():
        made.execute(f"CREATE TABLE {name} ({', '.join(map(str, columns))})")
        places = ", ".join("?" * len(columns))
        made.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
    made.commit()
    return file(made.serialize())


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


def _values(told: Any) -> Any:
    """A value of the table, its files as such."""
    if isinstance(told, dict):
        return file(told["file"]) if told.keys() == {"file"} else {key: _values(value) for key, value in told.items()}
    return [_values(one) for one in told] if isinstance(told, list) else told


def _of_table() -> list[Twin]:
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    each = ((row["metric"], row["expected"], row.get("options", {}), row["right"], row["wrong"]) for row in rows)
    return [Twin(name, _values(expected), options, _values(right), _values(wrong))
            for name, expected, options, right, wrong in each]  # fmt: skip


def _of_pairs(metric: str, expected: bytes, right: bytes, *wrong: bytes, **options: Any) -> Twin:
    return Twin(metric, file(expected), options, file(right), [file(one) for one in wrong])


SEEN, MORE = office_pairs.SEEN, {**office_pairs.SEEN, "B3": 3}
TWINS = [
    *_of_table(),
    _of_pairs(
        "compare_spreadsheet", office_pairs.book(SEEN), office_pairs.book({**SEEN, "A2": "coffee"}),
        office_pairs.book(MORE), office_pairs.book({}, Sheet2=SEEN), office_pairs.book({"A1": "item"}),
        answer_position="'Sheet1'!B2:B3",
    ),
    _of_pairs(
        "simple_docx_compare", *map(office_pairs.text, ("a", "a")),
        *(office_pairs.text(*one) for one in (["a", "b "], ["b", "a"], [])),
    ),
    _of_pairs(
        "simple_pptx_compare", *(office_pairs.slides([office_pairs.box(one)]) for one in ("a", "a", "b", "a b")),
        office_pairs.slides([]),
    ),
]  # fmt: skip
GARBAGE = [
    b"",
    b"\0" * 99,
    b"\xff\xfe\x00x",
    b"PK\x03\x04" + b"x" * 50,
    b"[" * 50_000,
    b"{" * 50_000,
    b"<a>" * 9,
    b"a: " * 999,
    "\u202e\x1b]0;x\x07".encode(),
    b"1e999",
    b'{"a": NaN}',
    b"9" * 9999,
]
