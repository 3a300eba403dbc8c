"""Cases of an application's functions: each is the call, what it says, what it does, and a wrong call.

A table of cases is a YAML file, `cases/APP.yaml` or another package's `cases.yaml`.
"""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Callable, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from textwrap import indent
from typing import Any, Protocol

import msgspec
import yaml
from PIL import Image

from apis import built
from apis.applications import folders_brought
from apis.built import PROFILE, Api, BuiltFunction, Effect
from apis.documents.docx import Run, make_docx
from apis.documents.odp import make_odp
from apis.documents.xlsx import make_xlsx
from apis.guest.code.start import OFFERED, packed
from runtime.errors import ConfigError

CASES = Path(__file__).with_name("cases")
SOUND_HZ, FILM_HZ = 4000, 2  # samples of a sound, pictures of a film, per second
FILM_WIDE, FILM_HIGH = 64, 48  # pixels


class NotSo(Exception):  # noqa: N818 - a finding, not a defect
    """The application is not as the case wants it; the text says what there is and what was wanted."""


class Desk(Protocol):
    """A desktop with the application's window open on its files."""

    home: str  # absolute path of HOME in the desktop

    async def tool(self, name: str, /, **arguments: Any) -> str:
        """What the function says; a refusal is "refused: " and its text, by the grammar's check or by the guest."""

    async def call(self, method: str, **arguments: Any) -> Any:
        """What the guest agent's method returns, e.g. `observe`, `hotkey`, `info`, `settle`."""

    async def contents(self, path: str) -> bytes:
        """A file of HOME, by its path below HOME."""

    async def ended(self) -> bool:
        """Whether the application has no window any more."""

    async def again(self) -> None:
        """Be a fresh desktop, with the application open as it was at first."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is done (`tool`, `guest`) or read (`look`, `file`), and what has to come of it.

    In texts `{home}`, `{answer}` (what the case's function says), `{n}` and names kept by earlier steps are replaced.
    """

    tool: str = ""  # a function of the application
    guest: str = ""  # a method of the agent
    given: dict[str, Any] = {}  # arguments of either
    look: bool = False  # what shows, a line for each window and element, then the app info
    file: str = ""  # path below HOME
    part: str = ""  # of the file, which is an archive
    xpath: str = ""  # of the archive's XML parts, below an element `file`; the distinct values that it finds
    column: list[Any] = []  # sheet, letters and count of rows: the values of a workbook's cells
    kind: str = ""  # `pages` of a PDF, `picture` for format and size of an image that shows dark and light
    same: str = ""  # path below HOME: whether the file, or its part, has the bytes of that one
    answer: bool = False  # the answer of the case's function
    has: list[str] = []
    lacks: list[str] = []
    matches: str = ""  # a regular expression; ^ and $ are ends of lines
    equals: Any = None
    near: list[float] = []  # numbers, to 0.02
    allow: str = ""  # part of a refusal that is as good as the effect
    keep: str = ""  # name for the first group of `matches`
    wait: bool = False  # read again until it is as wanted
    between: list[Step] = []  # done before each further reading


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One function, called once rightly and once wrongly.

    `effect` looks at the application right after the call, `saved` at its files when all cases were called. `refusal`
    is part of what the call with `wrong` is refused with; a function that takes no argument is given one.
    """

    function: str
    right: dict[str, Any] = {}
    says: str = ""  # part of the answer
    before: list[Step] | None = None  # None: the table's
    each: list[Step] = []  # before every call, the timed ones too, in time that is not counted
    effect: list[Step] = []
    saved: list[Step] = []
    wrong: dict[str, Any] = msgspec.field(default_factory=lambda: {"nothing": 1})
    refusal: str = "no argument nothing"
    again: list[dict[str, Any]] = []  # what is other than in `right` at the timed calls, in turn
    chosen: dict[str, dict[str, Any]] = {}  # what goes with a value of a choice, besides `right`
    never: dict[str, str] = {}  # values of a choice that are refused here, and how
    light: bool = True  # neither starts nor exports anything: its time is bounded

    def repeated(self, number: int) -> dict[str, Any]:
        """Arguments of the timed call with this number, from 0."""
        other = self.again[number % len(self.again)] if self.again else {}
        numbered = {key: value.replace("{n}", str(number + 1)) if isinstance(value, str) else value
                for key, value in other.items()}  # fmt: skip
        return {**self.right, **numbered}


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All cases of an application."""

    app: str  # as in apis.applications
    owner: str  # class of the functions
    cases: list[Case]
    files: dict[str, dict[str, Any]] = {}  # by path below HOME: how it is made, a row of `MAKERS`
    opens: list[str] = []  # words after the application's own command
    title: str = ""  # part of the window's title or class; "": any new window
    wait_s: float = 20.0  # the most that a step waits
    ready: list[Step] = []  # before the first case
    before: list[Step] = []  # of a case without its own; its function's name replaces {function}
    ends: list[Step] = []  # before `saved` steps: saves the document
    saves: str = ""  # the file that `saved` steps without one read
    fresh: bool = False  # each case has a desktop of its own
    offers: list[dict[str, Any]] = []  # functions that are given to a desktop as it begins
    shared: Any = None  # anchors for the file's own use

    def made(self) -> dict[str, bytes]:
        return {path: MAKERS[kind](given) for path, how in self.files.items() for kind, given in how.items()}


def _sound(given: dict[str, int]) -> bytes:
    """A tone of so many `seconds` and `hz` (RIFF WAVE, PCM)."""
    second = bytes(round(128 + 60 * math.sin(2 * math.pi * given["hz"] * n / SOUND_HZ)) for n in range(SOUND_HZ))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(SOUND_HZ)
        file.writeframes(second * given["seconds"])
    return out.getvalue()


def _film(seconds: int) -> bytes:
    """Grey pictures that grow brighter (YUV4MPEG2, 4:2:0)."""
    dots = FILM_WIDE * FILM_HIGH
    frames = (bytes([16 + n * 4 % 200]) * dots + bytes([128]) * (dots // 2) for n in range(FILM_HZ * seconds))
    head = f"YUV4MPEG2 W{FILM_WIDE} H{FILM_HIGH} F{FILM_HZ}:1 Ip A1:1 C420jpeg\n"
    return head.encode() + b"".join(b"FRAME\n" + frame for frame in frames)


def picture(given: list[Any]) -> bytes:
    """A PNG of a width, a height and a colour; without one it is black and of one bit a pixel."""
    wide, high, *colour = given
    out = io.BytesIO()
    Image.new("RGB" if colour else "1", (wide, high), *colour).save(out, "PNG")
    return out.getvalue()


def _document(paragraphs: list[Any]) -> bytes:
    return make_docx([each if isinstance(each, str) else tuple(Run(**run) for run in each) for each in paragraphs])


def _slides(given: dict[str, list[Any]]) -> bytes:
    boxes = [tuple(box) for box in given["boxes"]]
    return make_odp([(("title", title), *boxes) for title in given["titles"]])


MAKERS: dict[str, Callable[[Any], bytes]] = {
    "text": str.encode,
    "workbook": lambda given: make_xlsx(dict.fromkeys(given["sheets"], given["rows"])),
    "document": _document,
    "slides": _slides,
    "picture": picture,
    "sound": _sound,
    "film": _film,
    "extension": lambda number: packed(OFFERED[number]),
}


def load(file: Path) -> Table:
    """The table in a file. Raises ConfigError."""
    try:
        return msgspec.convert(yaml.safe_load(file.read_text("utf-8")), Table)
    except (msgspec.ValidationError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from error


@cache
def tables() -> dict[str, Table]:
    """Every application's table, by the application's name. Raises ConfigError."""
    files = [*sorted(CASES.glob("*.yaml")), *(file for _, file in folders_brought("cases.yaml"))]
    return {table.app: table for table in map(load, files)}


def tables_of(app: str) -> list[Table]:
    """An application's table, and those of accepted folders that have functions of it. Raises ConfigError."""
    folders = [table_of(api, api.functions) for api in built.folders().values() if api.app == app and not api.server]
    return [*filter(None, [tables().get(app)]), *folders]


SAVED_S = 1.5  # for a file that is being written


def table_of(api: Api, functions: Sequence[BuiltFunction]) -> Table:
    """The cases of built functions, which are offered with the profile's snippets: in a process that they can't reach.

    Each right call goes with a wrong one.
    """
    reads = {f"read_{name}": f"def read_{name}():\n{_body(lines)}" for name, lines in api.reads.items()}
    puts = {f"put_{name}": f"def put_{name}(value):\n{indent(lines, ' ')}" for name, lines in api.puts.items()}
    snippets = reads | puts | {"save": f"def save():\n{indent(api.saves or 'pass', ' ')}"}
    own = [(api.owner, each.name, each.code) for each in functions]
    given = {"helpers": api.helpers, "imports": api.imports}
    offers = [
        {"owner": owner, "name": name, "source": source, **given}
        for owner, name, source in [*own, *((PROFILE, *snippet) for snippet in snippets.items())]
    ]
    cases = [case for each in functions for case in _cases(each)]
    opened: dict[str, Any] = {"files": api.files, "opens": api.opens, "title": api.window, "wait_s": SAVED_S}
    return Table(app=api.app, owner=api.owner, cases=cases, fresh=True, offers=offers, **opened)


def _body(lines: str) -> str:
    """A function's body of an expression, or of lines of which one returns it."""
    return indent(lines.strip() if "\n" in lines.strip() else f"return {lines.strip()}", " ")


def _cases(made: BuiltFunction) -> list[Case]:
    if made.cases is None:
        return []
    wrongs = [(each.arguments, each.refusal) for each in made.cases.wrong] or [({"nothing": 1}, "no argument nothing")]
    return [
        Case(
            made.name,
            right.arguments,
            right.says,
            before=[],
            each=[_snippet(f"put_{name}", {"value": value}) for name, value in right.puts.items()],
            effect=[_snippet("save")] * any(each.file for each in right.effects) + [*map(_step, right.effects)],
            wrong=wrong,
            refusal=refusal,
            light=False,
        )
        for right, (wrong, refusal) in zip(made.cases.right, cycle(wrongs))
    ]


def _snippet(name: str, arguments: dict[str, Any] | None = None, **wants: Any) -> Step:
    return Step(guest="tool", given={"owner": PROFILE, "name": name, "arguments": arguments or {}}, **wants)


def _step(effect: Effect) -> Step:
    wants: dict[str, Any] = {"has": effect.has, "lacks": effect.lacks, "equals": effect.equals}
    return Step(file=effect.file, wait=True, **wants) if effect.file else _snippet(f"read_{effect.read}", **wants)
