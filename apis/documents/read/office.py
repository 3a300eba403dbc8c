"""Whether a document is the one that is wanted: what LibreOffice made of both, compared.

Invariant: the end has to say what is wanted and nothing else, and to be made of what LibreOffice writes. What is wanted
comes as LibreOffice saves it once, again, by way of another format, and by another filter; one of these has to match.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from apis.documents.read.bounds import Bounds, Budget, RefusedError
from apis.documents.read.flat import lines
from apis.documents.read.written import strange

TOLERANCE = 1e-9  # relative, of a number that a formula comes to
SPARE_EMPTY = 3  # paragraphs without text, beyond those that are wanted: no function of Writer takes one away
SHOWN = 160


def packed(parts: dict[str, bytes]) -> bytes:
    """What `read` takes: a line of names and sizes, then the bytes."""
    head = json.dumps([[name, len(data)] for name, data in parts.items()]).encode()
    return head + b"\n" + b"".join(parts.values())


def _unpacked(data: bytes) -> dict[str, bytes]:
    head, _, rest = data.partition(b"\n")
    parts, at = {}, 0
    for name, size in json.loads(head):
        parts[name] = rest[at : at + size]
        at += size
    return parts


def read(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """What is wrong with the end, as `apis.tasks.verify.verify.ComparedDocument` has it.

    Parts are "end", "end.flat", "numbers", and of what is wanted "1", "1.flat" and so on. Raises RefusedError for what
    takes too long.
    """
    parts = _unpacked(data)
    wanted = [parts[name] for name in parts if name.isdigit()]
    try:
        difference = strange(parts["end"], wanted, lambda: Budget(bounds)) or _other(parts, bounds)
    except RefusedError as refused:
        if str(refused) == "too_slow":
            raise
        difference = f"it is no document that LibreOffice writes ({refused})"
    return {"difference": difference or _other_numbers(json.loads(parts["numbers"]))}


def _other(parts: dict[str, bytes], bounds: Bounds) -> str:
    end = lines([parts["end.flat"]], Budget(bounds))
    differences = [_differs(end, lines([flat], Budget(bounds))) for name, flat in parts.items() if name[1:] == ".flat"]
    return "" if "" in differences else differences[0]


def _differs(end: Sequence[str], wanted: Sequence[str]) -> str:
    """Where the two say something else; "" for nowhere."""
    plain = {line.removeprefix(" ") for line in wanted if line.startswith(" text:p ")}
    found, empty = _without_empty(end, plain)
    expected, empty_wanted = _without_empty(wanted, plain)
    for line, other in zip_longest(found, expected, fillvalue=""):
        if line != other:
            return f"it has {_short(line, other)} where {_short(other, line)} is wanted"
    return "" if empty <= empty_wanted + SPARE_EMPTY else f"it has {empty} empty paragraphs, {empty_wanted} are wanted"


def _without_empty(said: Sequence[str], plain: set[str]) -> tuple[list[str], int]:
    """The lines without those of empty paragraphs that look like one that is wanted, and how many these are."""
    kept = [line for line in said if not (line.startswith(" empty ") and line.removeprefix(" empty ") in plain)]
    return kept, len(said) - len(kept)


def _short(line: str, other: str) -> str:
    """The line, or where it is long its kind and the place where it is another than `other`."""
    if len(line) < SHOWN:
        return repr(line.strip()) if line else "nothing"
    differs = (at for at, pair in enumerate(zip(line, other, strict=False)) if pair[0] != pair[1])
    begin = max(0, next(differs, min(len(line), len(other))) - SHOWN // 4)
    return repr(f"{line.partition('{')[0].strip()[:40]} ... {line[begin : begin + SHOWN // 2]}")


def _other_numbers(numbers: dict[str, list[list[Any]]]) -> str:
    for wanted, found in zip_longest(numbers["wanted"], numbers["found"]):
        for one, other in zip_longest(wanted or (), found or ()):
            if not _alike(one, other):
                return "a formula in it comes to something else with other numbers"
    return ""


def _alike(one: object, other: object) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other) <= TOLERANCE * max(abs(one), abs(other))
    return one == other and one is not None
