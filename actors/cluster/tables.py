"""Tables and pages: a terminal and a browser are shown the same values.

Invariant: a template escapes every value that is no markup of another template, so no word of a run becomes markup.
Control characters are shown as escapes in both.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from actors.cluster import output

if TYPE_CHECKING:
    from jinja2 import Environment

_NOTHING = frozenset(("", "-"))
_FOLDER = Path(__file__).parent / "templates"


class TableCell(NamedTuple):
    """A cell that is a link on a page, or good or bad there; in a terminal it is its text."""

    text: object
    href: str = ""
    kind: str = ""  # "good" or "bad"

    def __str__(self) -> str:
        return str(self.text)


class TextTable(NamedTuple):
    """A table; a column without anything in any row is left out where it is shown."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    sentences: Collection[str] = ()  # headings of columns that a page breaks into lines

    def filled(self) -> TextTable:
        columns = range(len(self.head))
        shown = [n for n in columns if not self.rows or any(str(row[n]) not in _NOTHING for row in self.rows)]
        rows = [
            [cell if isinstance(cell := row[n], TableCell) else TableCell(cell) for n in shown] for row in self.rows
        ]
        return self._replace(head=[self.head[n] for n in shown], rows=rows)


def show(table: TextTable) -> None:
    """Print it with its caption; nothing where it has no row."""
    if table.rows:
        if table.caption:
            output.prose(f"\n{table.caption}")
        filled = table.filled()
        # What begins with a small letter is a name, such as a round's, which commands take as it is.
        output.table([name.upper() if name[:1].isupper() else name for name in filled.head], filled.rows)


def markdown(table: TextTable) -> str:
    """The table for a page of Markdown."""
    filled = table.filled()
    rows = [[output.clean(str(cell)).replace("|", "\\|") for cell in row] for row in (filled.head, *filled.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(filled.head), *lines[1:]])


def render(name: str, **values: object) -> str:
    """The page of template `name`, a file of `templates`."""
    return _environment().get_template(name).render(values)


def style(*names: str) -> Markup:
    """Style sheets of `templates`, one after the other."""
    return Markup("").join(Markup((_FOLDER / name).read_text(encoding="utf-8")) for name in names)  # noqa: S704 - our own


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands render no page

    made = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=_legible,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters["picture"] = picture
    made.globals["style"] = style
    return made


def _legible(value: object) -> object:
    return value if isinstance(value, Markup) else output.clean(str(value), lines=True)


def picture(content: bytes) -> Markup:
    """A PNG or JPEG as the address of itself."""
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    # Nothing in it needs an escape, and it is too long to be looked through sign by sign.
    return Markup("data:image/{};base64,").format(kind) + Markup(base64.b64encode(content).decode())  # noqa: S704
