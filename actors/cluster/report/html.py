"""Builds HTML without templates.

Invariant: what is not made by a function here is text and is escaped, so no word of a run becomes markup. An attribute
never holds an address outside the page.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Collection, Iterable, Sequence

from actors.cluster import output

_NOTHING = frozenset(("", "-"))
VOID = frozenset(("img", "meta", "br"))


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(words: object) -> Markup:
    """`words` with markup and control characters escaped; lines stay lines."""
    return Markup(html.escape(output.clean(str(words), lines=True)))


def tag(name: str, /, *children: object, **attributes: str | None) -> Markup:
    """An element; children that are no `Markup` are escaped. `class_` is the attribute `class`, `aria_label` is
    `aria-label`; None leaves one out."""
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(output.clean(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{head}>")
    return Markup(f"<{name}{head}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """One after the other."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def picture(content: bytes, alt: str) -> Markup:
    """An inlined PNG or JPEG."""
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Markup(f'<img src="{source}" alt="{html.escape(output.clean(alt))}">')


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], caption: str | None = None, *, words: Collection[str] = ()
) -> Markup:
    """A table with a row of headings, in a box that scrolls by itself on a narrow screen.

    `words`: headings of the columns of sentences, which are broken into lines; no other cell is. A column without
    anything in any row is left out.
    """
    rows = [*rows]
    told = [n for n in range(len(head)) if not rows or any(str(row[n]) not in _NOTHING for row in rows)]
    head, rows = [head[n] for n in told], [[row[n] for n in told] for row in rows]
    kinds = ["words" if name in words else None for name in head]
    body = join(
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True))) for row in rows
    )
    first = tag("tr", *(tag("th", cell, scope="col", class_=kind) for cell, kind in zip(head, kinds, strict=True)))
    # Tabbed to, so that it can be scrolled without a mouse.
    box = tag("div", tag("table", tag("thead", first), tag("tbody", body)), class_="wide", tabindex="0")
    # Beside the box and not in the table, as wide as which it would be: a part of it would be out of sight.
    return tag("figure", tag("figcaption", caption), box) if caption else box


def folded(summary: str, *children: object) -> Markup:
    """`summary` alone, until a reader unfolds it."""
    return tag("details", tag("summary", summary), *children)


def document(title: str, head: Iterable[Markup], body: Markup) -> str:
    """A whole page with the elements `head` beside its title."""
    first = join(
        (
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", title),
            *head,
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{first}</head><body>{body}</body></html>\n'


def sealed(title: str, style: str, body: Markup) -> str:
    """A page whose policy lets a browser load nothing but what is in it."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    rule = Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    return document(title, (rule, tag("style", Markup(style))), body)
