"""The check of VS Code's list of extensions. Whether the editor would really load one is not looked at."""

from __future__ import annotations

from typing import Any

import msgspec

from apis.guest.code.start import EXTENSIONS
from apis.tasks.verify.verify import FileView, TaskVerdict, bounded

MOST_BYTES = 1 << 16


class _Identifier(msgspec.Struct):
    id: str


class _Location(msgspec.Struct):
    path: str
    scheme: str


class _Installed(msgspec.Struct, rename="camel"):
    """An extension as the editor lists it; what else it writes is left out."""

    identifier: _Identifier
    version: str
    location: _Location
    relative_location: str

    def lies_in(self, home: str) -> bool:
        """Whether it is said to lie where the editor keeps extensions, under its own name."""
        folder = f"{self.identifier.id}-{self.version}".lower()
        place = (self.location.scheme, self.location.path.lower(), self.relative_location.lower())
        return place == ("file", f"{home}/{EXTENSIONS}/{folder}".lower(), folder)


def extensions_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The editor's list holds exactly the extensions of `expected`, in any order: "publisher.name@version" each."""
    data, trouble = bounded(view, MOST_BYTES)
    if data is None:
        return TaskVerdict(False, trouble)
    try:
        rows = msgspec.json.decode(data, type=list[_Installed])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TaskVerdict(False, "it is no list of extensions")
    found = sorted(f"{row.identifier.id.lower()}@{row.version}" for row in rows)
    if found != sorted(rules["expected"]):
        return TaskVerdict(
            False, f"it lists {len(found)} extensions, not those {len(rules['expected'])} that are wanted"
        )
    if not all(row.lies_in(view.home) for row in rows):
        return TaskVerdict(False, "an extension in it lies elsewhere")
    return TaskVerdict(True, "it lists the extensions that it should")


def listed(extension: str, version: str, home: str) -> dict[str, object]:
    """How the editor lists "publisher.name"."""
    folder = f"{extension}-{version}"
    location = {"$mid": 1, "path": f"{home}/{EXTENSIONS}/{folder}", "scheme": "file"}
    return {"identifier": {"id": extension}, "version": version, "location": location, "relativeLocation": folder}
