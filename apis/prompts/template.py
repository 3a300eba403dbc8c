"""A prompt template: a published model's own words around what this program knows of a task and a desktop.

What fills a place is not searched for places, so a desktop's text can't reach another one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from runtime.errors import ConfigError
from runtime.settings import Section, tuning

_PLACE = re.compile(r"\{\{ ?(\w+) ?\}\}")
PLACES: Mapping[str, frozenset[str]] = {
    "system": frozenset({"task", "functions", "notes", "width", "height"}),
    "earlier": frozenset({"last"}),
    "state": frozenset({"task", "windows", "current", "tree", "info", "last", "width", "height"}),
}  # by key


class Template(Section, frozen=True, kw_only=True):
    """The texts of a prompt. An empty one is the published form's own."""

    AT: ClassVar[str] = "prompt.template"

    system: Annotated[
        str, tuning("Gives the system message. Its places: {{task}}, {{functions}}, {{notes}}, {{width}}, {{height}}.")
    ] = ""
    earlier: Annotated[
        str, tuning("Stands for an earlier turn of the user. Its place is {{last}}, the result of the action before.")
    ] = ""
    state: Annotated[
        str,
        tuning(
            "Gives the newest turn of the user. Its places: {{task}}, {{windows}}, {{current}}, {{tree}}, {{info}},"
            " {{last}}, {{width}}, {{height}}."
        ),
    ] = ""

    picture: Annotated[
        Literal["first", "last"], tuning("Puts the screen's picture before the newest turn's text, or behind it.")
    ] = "first"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in PLACES.items():
            for place in _PLACE.findall(getattr(self, name)):
                if place not in known:
                    raise ConfigError(f"{self.AT}.{name}: there is no place {place}, only {', '.join(sorted(known))}")
        if self.system and "task" not in _PLACE.findall(self.system + self.state):
            raise ConfigError(f"{self.AT}: neither system nor state has the place {{{{task}}}}: no task would be told")

    @property
    def worded(self) -> bool:
        """Whether it has words of its own."""
        return any(getattr(self, name) for name in PLACES)

    @property
    def digest(self) -> str:
        """Which template it is: blake2b-32 (hex) of its texts, "" of the published form's own."""
        texts = msgspec.json.encode(self)
        return hashlib.blake2b(texts, digest_size=4).hexdigest() if self != Template() else ""


def filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with its places filled from `values`, which has each of them."""
    return _PLACE.sub(lambda match: values[match[1]], text)
