"""What all office applications' functions share: typed values, and the document's own file."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import uno
from guest.files import path_of, url_of, wrong

RESULT_CHARS = 1900  # of an answer
INFO_CHARS = 4800  # of what is said of a document


def clipped(text: str, limit: int) -> str:
    """`text`, with its end left out where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def struct(kind: str, **values: Any) -> Any:
    """One of the office's structures, `kind` below com.sun.star."""
    made = uno.createUnoStruct(f"com.sun.star.{kind}")
    for name, value in values.items():
        setattr(made, name, value)
    return made


def prop(name: str, value: Any) -> Any:
    """A named value."""
    return struct("beans.PropertyValue", Name=name, Value=value)


def props(**values: Any) -> Any:
    """Named values, as the office takes several of them inside another value."""
    return uno.Any("[]com.sun.star.beans.PropertyValue", tuple(prop(name, value) for name, value in values.items()))


def enum(kind: str, value: str) -> Any:
    """A value of one of the office's enumerations, `kind` below com.sun.star."""
    return uno.Enum(f"com.sun.star.{kind}", value)


def each(holder: Any) -> Iterator[Any]:
    """The parts that one of the office's objects enumerates: the lines of a text, the portions of a line."""
    listed = holder.createEnumeration()
    while listed.hasMoreElements():
        yield listed.nextElement()


def is_page_number(portion: Any) -> bool:
    """Whether a portion of a line is a page's number."""
    if portion.TextPortionType != "TextField":
        return False
    return bool(portion.TextField.supportsService("com.sun.star.text.TextField.PageNumber"))


def free_name(taken: Any, *names: Iterable[str]) -> str:
    """The first of `names` that the office's container does not have."""
    return next(name for name in itertools.chain(*names) if not taken.hasByName(name))


def service(name: str, *arguments: Any) -> Any:
    """One of the office's own services."""
    here = uno.getComponentContext()
    return here.ServiceManager.createInstanceWithArgumentsAndContext(f"com.sun.star.{name}", arguments, here)


def graphic(path: str, refusal: str) -> Any:
    """A picture from a file. Raises Refused with `refusal` where the office can't read it."""
    picture = service("graphic.GraphicProvider").queryGraphic((prop("URL", url_of(path)),))
    if picture is None or not picture.SizePixel.Width:
        raise wrong(refusal)
    return picture


@contextlib.contextmanager
def writing(path: str, argument: str = "") -> Iterator[None]:
    """Make the office's own error in writing a file a refusal, with the name of the argument that gave the path."""
    try:
        yield
    except uno.getClass("com.sun.star.io.IOException") as error:
        which = f"{argument}: " if argument else ""
        text = f"{which}{os.path.basename(path)[:80]} can't be written; if another window shows it, close that"
        raise wrong(text) from error


@functools.cache
def _dispatcher() -> Any:
    return service("frame.DispatchHelper")


ENCODED = {"Text - txt - csv (StarCalc)": 2, "Text (encoded)": 0}  # where their options name the encoding
UTF8 = {"76", "utf8"}
ENCODINGS = {  # as the office numbers them
    "1": "windows-1252", "11": "US-ASCII", "12": "ISO-8859-1", "22": "ISO-8859-15", "33": "windows-1250",
    "34": "windows-1251", "64": "Shift-JIS", "65535": "UTF-16", "0": "the system's", "SYSTEM": "the system's",
}  # fmt: skip


class Document:
    """The document in front. Methods without an underscore, in subclasses, are what a model can call."""

    _service = ""  # of the office, that such a document has
    _kind = "document"  # what it is called in an answer
    _sort = ""  # which it is, where none is open; "": its kind
    _reading: frozenset[str] = frozenset({"save"})  # functions that leave the document as it is, or look themselves

    def __init__(self, doc: Any) -> None:
        self._doc = doc
        self._view = doc.CurrentController

    def _dispatch(self, command: str, *arguments: Any) -> None:
        """Have the document's window carry out a command of its menus; the arguments are named values."""
        _dispatcher().executeDispatch(self._view.Frame, f".uno:{command}", "", 0, arguments)

    @contextlib.contextmanager
    def _drawn_once(self) -> Iterator[None]:
        """What happens inside is drawn at its end."""
        self._doc.lockControllers()
        try:
            yield
        finally:
            self._doc.unlockControllers()

    def _has_font(self, name: str) -> bool:
        fonts = self._view.Frame.ContainerWindow.getFontDescriptors()
        return any(font.Name.lower() == name.lower() for font in fonts)

    def _about(self, limit: int) -> str:
        """What the document holds, in at most `limit` characters."""
        raise NotImplementedError

    def _info(self) -> str:
        """What the document holds now, unsaved edits included."""
        return self._about(INFO_CHARS)

    def _begin(self) -> None:
        """End what input may have left the document in the middle of, where that is in the way of every call."""

    def _editable(self, argument: str = "") -> None:
        """Raise Refused where the document may only be read: the office would change what it shows and keep nothing."""
        if self._doc.isReadonly():
            text = f"the {self._kind} is open for reading only and can't be changed: end that by Edit > Edit Mode"
            raise wrong(f"{argument}: {text}" if argument else text)

    def _path(self) -> str:
        if not self._doc.hasLocation():
            raise wrong(f"the {self._kind} has no file yet: name it first with ctrl+s")
        return path_of(self._doc.URL)

    def _format(self) -> str:
        """The name of the filter that the document's file was read by; empty for a new one."""
        return next((str(value.Value) for value in self._doc.getArgs() if value.Name == "FilterName"), "")

    def _kept(self) -> str:
        """What is unusual about the document's file: that it may only be read, and an encoding other than UTF-8."""
        unusual = "; open for reading only" if self._doc.isReadonly() else ""
        options = next((str(value.Value) for value in self._doc.getArgs() if value.Name == "FilterOptions"), "")
        place = ENCODED.get(self._format())
        parts = options.split(",")
        code = parts[place].strip() if place is not None and place < len(parts) else ""
        if code and code.lower().replace("-", "") not in UTF8:
            unusual += f"; the file's encoding is {ENCODINGS.get(code, code)}"
        return unusual

    def _save(self) -> str:
        """Write the document's file in its own format; what is said of it."""
        path = self._path()
        if self._doc.isReadonly():
            raise wrong(f"{os.path.basename(path)} is open for reading only")
        with writing(path):
            self._doc.store()
        return f"saved {os.path.basename(path)}"

    def _write(self, path: str, argument: str, filter_name: str, *more: Any) -> None:
        """Write a copy in another format; `more` are the filter's own properties. Raises Refused."""
        wanted = (prop("FilterName", filter_name), prop("Overwrite", True), *more)
        with writing(path, argument):
            uno.invoke(self._doc, "storeToURL", (url_of(path), wanted))
