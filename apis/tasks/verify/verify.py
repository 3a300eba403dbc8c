"""Whether a task is solved, from the bytes of a frozen guest.

Invariant: pure functions of what `read` returns. Nothing here runs a program, follows a link or asks the guest. A file
that could not be read safely is a failure with its reason, never a success and never an exception.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from apis.tasks.osworld import Getter, Task, in_home
from runtime.errors import ConfigError


class TableRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table: the names of its columns, and rows of as many values; None for what is no text or number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...] = ()


class Database(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables by their names."""

    tables: dict[str, TableRows] = {}

    def rows(self, table: str, *columns: str) -> list[list[str | int | float | None]] | None:
        """Of a table's rows the values of these columns, in this order; None where one of them is not there."""
        found = self.tables.get(table)
        if found is None or not set(columns) <= set(found.columns):
            return None
        places = [found.columns.index(column) for column in columns]
        return [[row[place] for place in places] for row in found.rows]


class SheetCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell: what a formula came to when the file was saved, and colours as "AARRGGBB" or a theme's number.

    `kind` says what a value stands for: "date" days since 1899-12-30, "time" a time of day as text, "span" a duration
    in milliseconds.
    """

    value: str | float | bool | None = None
    kind: Literal["", "date", "time", "span"] = ""
    font: str = ""
    fill: str = ""


class Sheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sheet: the cells by their addresses ("B3") that hold something or have a colour."""

    name: str
    cells: dict[str, SheetCell]


class Workbook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A spreadsheet file's sheets, in their order. `calculated`: it has no formula, or the result of one."""

    sheets: tuple[Sheet, ...]
    calculated: bool = True


class ComparedDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document of the office, compared with what its task wants: "" where it is that, else what is different.

    `unsaved`: it is that to the byte, as tasks make it and LibreOffice never does.
    """

    difference: str = ""
    unsaved: bool = False


BYTES, OFFICE = "bytes", "office"
# What a file is read as.
KINDS: dict[str, type[msgspec.Struct]] = {"database": Database, "workbook": Workbook, OFFICE: ComparedDocument}


GUEST_HOME = "/home/agent"  # what programs call the folder of HOME, where a desktop says nothing else


class FileView(msgspec.Struct, frozen=True):
    """What lies at a path of the guest, seen from outside without following links.

    `kind` is "file" (`data` holds its bytes), "folder" (`names` are its entries, sorted, folders end in "/"), a word of
    `KINDS` (a file that was wanted as such; the field of that name holds it), "missing", or "refused" (`reason` says
    why it was not read). `home` is what the guest's programs call HOME in what they write. `name` is what a task file
    calls it, `beside` the others of the same getter by theirs. `of_task` marks a fixture: the policy had no hand in it.
    """

    kind: str
    data: bytes = b""
    reason: str = ""
    names: tuple[str, ...] = ()
    database: Database | None = None
    workbook: Workbook | None = None
    office: ComparedDocument | None = None
    home: str = GUEST_HOME
    name: str = ""
    beside: dict[str, FileView] = {}
    of_task: bool = False


class WantedFile(msgspec.Struct, frozen=True):
    """A path relative to HOME, and what it is read as: "bytes" or one of `KINDS`.

    `sought` are byte strings in hexadecimal digits; a manifest lists the files that hold them. `expected` is the
    document that an office document is compared with.
    """

    path: str
    as_: str = BYTES
    sought: tuple[str, ...] = ()
    expected: bytes = b""


class TaskVerdict(msgspec.Struct, frozen=True):
    """Whether the task is solved, and why or why not in one sentence."""

    success: bool
    reason: str
    score: float | None = None  # 0 to 1, where the check has steps between

    @property
    def points(self) -> float:
        """The score; 0 or 1 where the check has none."""
        return float(self.success) if self.score is None else self.score


Read = Callable[[str], FileView]
Check = Callable[[FileView, dict[str, Any], dict[str, Any]], TaskVerdict]


def bounded(view: FileView, most: int) -> tuple[bytes | None, str]:
    """The content of a file with at most so many bytes; None, and why, for anything else."""
    if view.kind != "file":
        return None, view.reason or f"it is {view.kind}"
    if len(view.data) > most:
        return None, f"it has more than {most} bytes"
    return view.data, ""


def _text(view: FileView) -> tuple[str | None, str]:
    if view.kind != "file":
        return None, view.reason or f"it is {view.kind}"
    try:
        return view.data.decode("utf-8"), ""
    except UnicodeDecodeError:
        return None, "it is not UTF-8 text"


def file_text_is(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The file's text is `expected`; as editors do, it may have a newline more at its end, or fewer."""
    text, trouble = _text(view)
    if text is None:
        return TaskVerdict(False, trouble)
    expected = str(rules["expected"])
    same = text.rstrip("\n") == expected.rstrip("\n") and len(text) <= len(expected) + 1
    return TaskVerdict(same, "it says what it should" if same else "it says something else")


def file_contains(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The file contains each string of `expected`."""
    text, trouble = _text(view)
    if text is None:
        return TaskVerdict(False, trouble)
    absent = [part for part in rules["expected"] if part not in text]
    return TaskVerdict(not absent, f"{len(absent)} of {len(rules['expected'])} strings are absent")


_PLACE = re.compile(rb"(\d{1,4}) (\d{1,4})\n?")


def clicked_in(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The file names one place, across and down in thousandths, within the `box`: left, top, right, bottom."""
    match = _PLACE.fullmatch(view.data) if view.kind == "file" else None
    if match is None:
        return TaskVerdict(False, view.reason or "no place was clicked")
    left, top, right, bottom = rules["box"]
    inside = left <= int(match[1]) <= right and top <= int(match[2]) <= bottom
    return TaskVerdict(inside, "the right place was clicked" if inside else "another place was clicked")


class OnOffice(msgspec.Struct, frozen=True):
    """A check of a document of the office: it has to be the one that `wanted` makes of a task's rules."""

    wanted: Callable[[dict[str, Any]], bytes]

    def __call__(self, view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
        """What LibreOffice says of the document; one not compared is right with the wanted bytes alone."""
        if view.office is None and view.kind != "file":
            return TaskVerdict(False, view.reason or f"it is {view.kind}, not a document")
        alike = "" if view.data == self.wanted(rules) else "it is another document"
        difference = alike if view.office is None else view.office.difference
        return TaskVerdict(not difference, difference or "it says what it should")


CHECKS: dict[str, Check] = {"file_text_is": file_text_is, "file_contains": file_contains, "clicked_in": clicked_in}


def verify(task: Task, read: Read) -> TaskVerdict:
    """Judge `task` by the files that `read` (a path relative to HOME to its FileView) finds.

    Raises ConfigError when the task names a function, a getter or an expectation that this program does not have:
    the task is at fault then, not the policy.
    """
    try:
        verdicts = [_one(*row, read) for row in task.evaluator.rows()]
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"task {task.id} can't be judged: {error}") from error
    if task.evaluator.conj == "or":
        return next((verdict for verdict in verdicts if verdict.success), verdicts[0])
    return next((verdict for verdict in verdicts if not verdict.success), verdicts[-1])


def wanted(task: Task) -> list[WantedFile]:
    """The files that `verify` will read, each once; one that any function compares as a document is compared.

    Raises ConfigError for rules that make no document.
    """
    found: dict[str, WantedFile] = {}
    for func, getter, rule, _ in task.evaluator.rows():
        if getter.get("type") == "vm_file":
            path = in_home(str(getter["path"]))
            check = CHECKS.get(func)
            if isinstance(check, OnOffice):
                found[path] = WantedFile(path, OFFICE, expected=_made(task, check, rule))
            found.setdefault(path, WantedFile(path))
    return list(found.values())


def _made(task: Task, check: OnOffice, rule: Getter) -> bytes:
    try:
        return check.wanted(rule.get("rules", {}))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"task {task.id} can't be judged: {error}") from error


def _one(func: str, result: Getter, expected: Getter, options: Getter, read: Read) -> TaskVerdict:
    if func not in CHECKS:
        raise LookupError(f"there is no verifier {func}")
    if result.get("type") != "vm_file" or expected.get("type", "rule") != "rule":
        raise LookupError("only vm_file results and rule expectations can be judged")
    path = in_home(str(result["path"]))
    verdict = CHECKS[func](read(path), expected.get("rules", {}), options)
    return TaskVerdict(verdict.success, f"{path}: {verdict.reason}")


SHOWN = 5  # names in a reason


def folder_holds(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The folder's entries are exactly `expected` (folders end in "/"), hidden ones included."""
    if view.kind != "folder":
        return TaskVerdict(False, view.reason or f"it is {view.kind}, not a folder")
    wanted, there = set(rules["expected"]), set(view.names)
    if wanted == there:
        return TaskVerdict(True, "it holds what it should")
    parts = [("lacks", wanted - there), ("should not hold", there - wanted)]
    said = [f"{verb} {', '.join(map(repr, sorted(names)[:SHOWN]))}" for verb, names in parts if names]
    return TaskVerdict(False, f"it {' and '.join(said)}")


def digest_of(data: bytes) -> str:
    """What `file_bytes_are` knows a file's content by: blake2b-128 in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def file_bytes_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The file's content has the digest `expected`."""
    if view.kind != "file":
        return TaskVerdict(False, view.reason or f"it is {view.kind}")
    same = digest_of(view.data) == rules["expected"]
    return TaskVerdict(same, "it holds what it should" if same else "it holds something else")
