"""The check of what VS Code writes: its list of extensions.

Invariant: strict and bounded. A list larger than its bound or of another form is a failure with its reason, and so is
one extension too many. The list is believed: it lies in HOME, where an agent could write it itself, as it could the
browser's bookmarks; whether the editor would really load an extension is not looked at.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apis.tasks.verify import FileView, Verdict, bounded

MOST_BYTES = 1 << 16


class _Identifier(msgspec.Struct):
    id: str


class _Installed(msgspec.Struct):
    """An extension as the editor lists it; what else it writes is left out."""

    identifier: _Identifier
    version: str


def extensions_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> Verdict:
    """The editor's list holds exactly the extensions of `expected`, in any order: "publisher.name@version" each."""
    data, trouble = bounded(view, MOST_BYTES)
    if data is None:
        return Verdict(False, trouble)
    try:
        rows = msgspec.json.decode(data, type=list[_Installed])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Verdict(False, "it is no list of extensions")
    found = sorted(f"{row.identifier.id.lower()}@{row.version}" for row in rows)
    if found != sorted(rules["expected"]):
        return Verdict(False, f"it lists {len(found)} extensions, not those {len(rules['expected'])} that are wanted")
    return Verdict(True, "it lists the extensions that it should")
