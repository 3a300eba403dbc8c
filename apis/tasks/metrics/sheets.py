"""Which sheet a rule of compare_table means.

Invariant: a sheet that the result lacks is the policy's, one that the expectation lacks the task's fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apis.tasks.verify.looks import SheetLooks, StyledWorkbook
from apis.tasks.verify.sheets import Sheet, Workbook

Rule = Mapping[str, Any]


def chosen(which: int | str, result: Workbook, expected: Workbook | None) -> Sheet | None:
    """The sheet that a task file names: a number, or R (result) or E (expected), then I and a number or N and a name.

    None where the result has no such sheet. Raises LookupError where the expectation has none, or the word is none.
    """
    word = f"RI{which}" if isinstance(which, int) else which
    side, how, name = word[:1], word[1:2], word[2:]
    if side not in ("R", "E") or how not in ("I", "N"):
        raise LookupError(f"there is no sheet {which!r}")
    book = result if side == "R" else expected
    if book is None:
        raise LookupError(f"sheet {which!r}: nothing is expected")
    if how == "N":
        found = next((sheet for sheet in book.sheets if sheet.name == name), None)
    else:
        found = book.sheets[int(name)] if int(name) < len(book.sheets) else None
    if found is None and side == "E":
        raise LookupError(f"what is expected has no sheet {which!r}")
    return found


def looks_of(which: int | str, result: StyledWorkbook, expected: StyledWorkbook | None) -> SheetLooks | None:
    """The looks of the sheet that `chosen` finds; None where the result has none. Raises LookupError."""
    sheet = chosen(which, result, expected)
    book = expected if isinstance(which, str) and which.startswith("E") and expected is not None else result
    if sheet is None:
        return None
    at = next(number for number, one in enumerate(book.sheets) if one is sheet)
    if at < len(book.looks):
        return book.looks[at]
    if book is expected:
        raise LookupError("what is expected has no looks that are read here")
    return None
