"""What one check of an application's function is: the call, what it says, what it does, and a wrong call.

Invariant: a case sees only its `Desk`, not how a desktop is reached. The command and the tests run the same cases.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class NotSo(Exception):  # noqa: N818 - a finding, not a defect
    """The application is not as the case wants it; the text says what was found and what was wanted."""


class Desk(Protocol):
    """A desktop with the application's window open on its files."""

    home: str  # absolute path of HOME in the desktop

    async def tool(self, name: str, **arguments: Any) -> str:
        """What the function says; a refusal is "refused: " and its text, by the grammar's check or by the guest."""
        ...

    async def call(self, method: str, **arguments: Any) -> Any:
        """What the guest agent's method returns, e.g. `observe`, `hotkey`, `info`, `settle`."""
        ...

    async def contents(self, path: str) -> bytes:
        """A file of HOME, by its path below HOME."""
        ...

    async def ended(self) -> bool:
        """Whether the application has no window any more."""
        ...

    async def again(self) -> None:
        """Be a fresh desktop, with the application open as it was at first."""
        ...


Step = Callable[[Desk], Awaitable[None]]
Read = Callable[[Desk], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One function, called once rightly and once wrongly.

    `says` is part of the answer. `before` prepares; `effect` looks at the application's state right after the call;
    `saved` looks at what `Table.read` made of the files when all cases were called. Both raise NotSo. `refusal` is part
    of what is said to the call with `wrong`, with the name of the argument that is wrong; a function that takes none is
    given one that there is not. The right call with any value of a choice, and with what `chosen` has for it, is right,
    but for those in `never`. `again` gives the arguments of the n-th repetition that is timed.
    """

    function: str
    right: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    before: Step | None = None
    each: Step | None = None  # before every call, the timed ones too, in time that is not counted
    effect: Callable[[Desk, str], Awaitable[None]] | None = None  # gets the answer, too
    saved: Callable[[Any], None] | None = None
    wrong: Mapping[str, Any] = field(default_factory=lambda: {"nothing": 1})
    refusal: str = "no argument nothing"
    again: Callable[[int], Mapping[str, Any]] | None = None  # None: the right call's
    chosen: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)  # what goes with a value of a choice
    never: Mapping[Any, str] = field(default_factory=dict)  # values of a choice that are refused here, and how
    repeat: bool = True
    light: bool = True  # neither starts nor exports anything: its time is bounded


@dataclass(frozen=True, kw_only=True)
class Table:
    """All cases of an application.

    `files` are written below HOME; `opens` are the words after the application's own command, "{home}" in them is
    replaced. `read` runs once after all cases, e.g. saves the document and reads its file.
    """

    app: str  # as in apis.applications
    owner: str  # class of the functions
    cases: tuple[Case, ...]
    files: Callable[[], Mapping[str, bytes]]
    opens: tuple[str, ...] = ()
    title: str = ""  # part of the window's title or class; "": any new window
    ready: Step | None = None  # before the first case
    read: Read | None = None


TRIES = 30  # of 0.3 s, the time that app info may take


async def told(desk: Desk) -> str:
    """The app info now; asked again while a busy machine makes the application late to say. Raises NotSo."""
    for _ in range(TRIES):
        info = str(await desk.call("info"))
        if not info.startswith("not known"):
            return info
    raise NotSo(info)


def want(true: bool, found: str) -> None:
    """Raise NotSo with what was found unless it is true."""
    if not true:
        raise NotSo(found[:500])


def same(found: Any, wanted: Any, what: str) -> None:
    """Raise NotSo unless both are equal."""
    if found != wanted:
        raise NotSo(f"{what}: {found!r}, not {wanted!r}"[:500])


def pages(pdf: bytes) -> int:
    """Pages of a PDF as LibreOffice writes it, whose page objects are not compressed."""
    return len(re.findall(rb"/Type\s*/Page\b", pdf)) if pdf.startswith(b"%PDF-") else 0
