"""What host and agent say to each other.

Invariant: nothing from a guest goes further than this module unless it has the shape declared here, within the bounds
declared here; anything else is the guest's doing.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

MAX_FRAME_BYTES = 8 << 20
Short = Annotated[str, msgspec.Meta(max_length=500)]
Pixel = Annotated[int, msgspec.Meta(ge=-(1 << 16), le=1 << 16)]
WindowId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class Window(msgspec.Struct, frozen=True):
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


class Element(msgspec.Struct, frozen=True, array_like=True):
    """A showing accessibility element; screen pixels; `window` indexes the observation's windows, -1 is unknown."""

    tag: Short
    name: Short
    text: Short
    x: Pixel
    y: Pixel
    w: Pixel
    h: Pixel
    states: Annotated[list[Annotated[str, msgspec.Meta(max_length=16)]], msgspec.Meta(max_length=16)]
    window: Annotated[int, msgspec.Meta(ge=-1, le=32)]


class Screen(msgspec.Struct, frozen=True):
    """One observation."""

    windows: Annotated[list[Window], msgspec.Meta(max_length=32)]
    elements: Annotated[list[Element], msgspec.Meta(max_length=400)]
    cut: bool


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: a result, or an error's kind and text."""

    i: int
    r: msgspec.Raw = msgspec.Raw(b"\xc0")
    e: tuple[Short, Annotated[str, msgspec.Meta(max_length=2000)]] | None = None


# What each method answers. A method that is not here can't be called.
RESULTS: dict[str, Any] = {
    "ping": str,
    "ready": bool,
    "launch": int,
    "running": list[int],
    "windows": list[Window],
    "activate": None,
    "close": None,
    "place": None,
    "move": None,
    "click": None,
    "drag": None,
    "scroll": None,
    "type_text": None,
    "hotkey": None,
    "screenshot": bytes,
    "checksum": int,
    "observe": Screen,
    "settle": bool,
    "wait_window": Window,
    "read_file": bytes,
    "write_file": None,
    "make_folder": None,
}
