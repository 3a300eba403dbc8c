"""The messages between host and agent.

Invariant: a guest's answer goes further than this module only in the shape and within the bounds declared here.
Anything else is the guest's doing.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, TypeGuard

import msgspec

from apis.observation import Listed, neat
from runtime.errors import ProtocolError

MAX_FRAME_BYTES = 8 << 20
MAX_PICTURE = 4 << 20  # bytes of a screenshot; a guest that sends more sends no picture
Short = Annotated[str, msgspec.Meta(max_length=500)]
ToolText = Annotated[str, msgspec.Meta(max_length=5000)]  # what an application's functions say, for the model
Pixel = Annotated[int, msgspec.Meta(ge=-(1 << 16), le=1 << 16)]
WindowId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class WindowRow(msgspec.Struct, frozen=True):
    """A top-level window as the window manager lists it; screen pixels."""

    id: WindowId
    class_: Short = msgspec.field(name="class")
    title: Short
    active: bool
    x: Pixel = 0
    y: Pixel = 0
    w: Pixel = 0
    h: Pixel = 0
    pid: int = 0


class Frame(msgspec.Struct, frozen=True):
    """An observation; `apis.observation.from_guest` cuts it to its bounds.

    What else a guest adds is passed by without being built: keys that hash alike would cost as many seconds.
    """

    windows: list[Listed]
    elements: list[
        tuple[str | None, str | None, str | None, int, int, int, int, list[str | None], int]
    ]  # tag, name, text, x, y, width, height, states, window's place in the list
    cut: bool = False  # the deadline had come before all was listed
    carets: list[tuple[int, int]] = []  # an element's place in the list, the caret's in its text
    beyond: int = 0  # things that are scrolled out of view
    info: str | None = None


class CommandSeen(msgspec.Struct, frozen=True):
    """How a command of a task file ended; `code` is None where it was stopped at its deadline."""

    code: int | None
    out: Annotated[str, msgspec.Meta(max_length=300_000)]  # both streams, the end cut off


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: a result, or an error's kind and text."""

    i: int
    r: msgspec.Raw = msgspec.Raw(b"\xc0")
    e: tuple[Short, Annotated[str, msgspec.Meta(max_length=2000)]] | None = None


MAX_RESULT_BYTES = 2 << 20  # of a method whose answer is no file and no picture; an observation's largest is 1.6 MB
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"  # how each begins; width and height follow
FILES = frozenset(("screenshot", "read_file"))
# What each method answers. A method that is not here can't be called.
RESULTS: dict[str, Any] = {
    "ping": str,
    "ready": bool,
    "launch": int,
    "running": list[int],
    "run": CommandSeen,
    "application_state": CommandSeen,
    "accessible": CommandSeen,
    "terminal_text": CommandSeen,
    "window_size": CommandSeen,
    "tabs": None,
    "visited": None,
    "windows": list[WindowRow],
    "activate": None,
    "close": None,
    "move": None,
    "click": None,
    "drag": None,
    "scroll": None,
    "type_text": Short,
    "type_on": Short,
    "hotkey": None,
    "screenshot": bytes,
    "checksum": int,
    "observe": Frame,
    "tool": ToolText,
    "keep": None,
    "info": ToolText,
    "settle": bool,
    "wait_window": WindowRow,
    "open_window": WindowRow,
    "raise_window": WindowRow,
    "read_file": bytes,
    "write_file": None,
    "make_folder": None,
}
_DECODERS = {method: msgspec.msgpack.Decoder(result) for method, result in RESULTS.items()}


def decoded(method: str, raw: msgspec.Raw) -> Any:
    """What `method` answered: of the type in `RESULTS`, or an observation's `NeatFrame`.

    Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError for anything else.
    """
    found = neat(bytes(raw)) if method == "observe" else None
    return _DECODERS[method].decode(raw) if found is None else found


def is_jpeg(picture: object) -> TypeGuard[bytes]:
    """Whether what a guest sent as its screenshot is a JPEG, by its first bytes, of at most `MAX_PICTURE` bytes."""
    return isinstance(picture, bytes) and picture.startswith(b"\xff\xd8") and len(picture) <= MAX_PICTURE


def png_of(picture: bytes, screen: tuple[int, int]) -> bytes:
    """`picture`, a PNG whose head says the size of the `screen` (pixels): nothing larger is passed on to a model.

    Raises ProtocolError for anything else.
    """
    if picture[:16] != _PNG or picture[16:24] != struct.pack(">II", *screen):
        raise ProtocolError(f"the guest's picture is no PNG of {screen[0]}x{screen[1]} pixels")
    return picture
