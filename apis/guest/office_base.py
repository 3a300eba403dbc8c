"""What all office applications' functions share: refusals, typed values, files below HOME, the document's own file.

Invariant: values reach the office as typed arguments of its interface only, never inside a command, macro or URL; files
are read and written below HOME only, and the document itself only in its own format.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, unquote

import uno
from guest.errors import Refused

RESULT_CHARS = 1900  # of an answer
INFO_CHARS = 4800  # of what is said of a document


def wrong(text: str) -> Refused:
    """A refusal that the model reads: the argument's name and what would be right."""
    return Refused("tool_failed", text)


def clipped(text: str, limit: int) -> str:
    """`text`, with its end left out where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def prop(name: str, value: Any) -> Any:
    """A named value."""
    made = uno.createUnoStruct("com.sun.star.beans.PropertyValue")
    made.Name, made.Value = name, value
    return made


def props(**values: Any) -> Any:
    """Named values, as the office takes several of them inside another value."""
    return uno.Any("[]com.sun.star.beans.PropertyValue", tuple(prop(name, value) for name, value in values.items()))


def enum(kind: str, value: str) -> Any:
    """A value of one of the office's enumerations, `kind` below com.sun.star."""
    return uno.Enum(f"com.sun.star.{kind}", value)


def home() -> str:
    """The user's folder, without links in its path."""
    return os.path.realpath(os.environ["HOME"])


def in_home(path: str, argument: str) -> str:
    """The absolute path of a file below HOME whose folder exists; links that lead out are refused."""
    full = os.path.join(home(), os.path.expanduser(path))
    folder = os.path.realpath(os.path.dirname(full))
    if folder != home() and not folder.startswith(home() + os.sep):
        raise wrong(f"{argument}: the file lies outside the home folder: write a path like ~/Documents/name")
    if not os.path.isdir(folder):
        raise wrong(f"{argument}: there is no folder {os.path.dirname(path)[:80]}")
    full = os.path.join(folder, os.path.basename(full))
    if os.path.islink(full) or os.path.isdir(full):
        raise wrong(f"{argument}: {os.path.basename(full)[:80]} is no regular file")
    return full


def there_in_home(path: str, argument: str) -> str:
    """The absolute path of a file below HOME that can be read."""
    full = in_home(path, argument)
    if not os.path.isfile(full):
        raise wrong(f"{argument}: there is no file {path[:80]}")
    return full


def url_of(path: str) -> str:
    """A file's URL."""
    return "file://" + quote(path)


class Document:
    """The document in front. Methods without an underscore, in subclasses, are what a model can call."""

    _kind = "document"  # what it is called in an answer

    def __init__(self, doc: Any) -> None:
        self._doc = doc
        self._view = doc.CurrentController

    def _path(self) -> str:
        """The document's file."""
        if not self._doc.hasLocation():
            raise wrong(f"the {self._kind} has no file yet: name it first with ctrl+s")
        return unquote(self._doc.URL.removeprefix("file://"))

    def _save(self) -> str:
        """Write the document's file in its own format; what is said of it."""
        path = self._path()
        if self._doc.isReadonly():
            raise wrong(f"{os.path.basename(path)} is open for reading only")
        self._doc.store()
        return f"saved {os.path.basename(path)}"

    def _write(self, path: str, filter_name: str, *more: Any) -> None:
        """Write a copy in another format; `more` are the filter's own properties."""
        wanted = (prop("FilterName", filter_name), prop("Overwrite", True), *more)
        uno.invoke(self._doc, "storeToURL", (url_of(path), wanted))
