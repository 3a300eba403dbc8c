"""How long typing takes: pauses and rests by a clock of the test's own, on a keyboard that nobody reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import apis.guest
from actors.desktop.config import SeatConfig
from apis.actions.gui import MAX_TEXT

_FIELDS = {
    name: lambda *_: None
    for name in ("Struct", "Card8", "Card16", "Opcode", "RequestLength", "ReplyCode", "ReplyLength", "Pad")
}
KEYS = {"XK_Return": 0xFF0D, "XK_Tab": 0xFF09, "XK_Shift_L": 0xFFE1, "XK_Alt_L": 0xFFE9, "XK_KP_Enter": 0xFF8D,
        "XK_Caps_Lock": 0xFFE5, "XK_Num_Lock": 0xFF7F}  # fmt: skip
LONGEST_REST_S = 1.0  # as the agent bounds it
SYNC_S = 0.001
MARGIN_S = 3.0


class Screen:
    """A link to an X server whose time is the sum of all pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.typed = 0
        self.layout_changed = self.selected = False
        rows = [[code, code] for code in (*range(0x20, 0x7F), *KEYS.values())] + [[0, 0]] * 20
        info = SimpleNamespace(min_keycode=8, max_keycode=8 + len(rows) - 1)
        self.display = SimpleNamespace(
            display=SimpleNamespace(info=info),
            get_keyboard_mapping=lambda first, count: rows,
        )

    def bind(self, first: int, rows: list[tuple[int, int]]) -> None:
        """Applications hear of it at once."""

    def active(self) -> int:
        """A window."""
        return 1

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def plain_keys(self) -> None:
        """No key is pressed here."""

    def flush(self) -> None:
        self.now += SYNC_S
        self.typed += 1

    def expect_activation(self) -> None:
        """Nothing waits for it here."""


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The guest's module, with stand-ins for the library that only desktops have."""
    key_names = SimpleNamespace(**KEYS, string_to_keysym=lambda name: 0)
    ext = SimpleNamespace(xtest=SimpleNamespace(fake_input=lambda *_: None), damage=None)
    error = SimpleNamespace(BadDrawable=OSError, BadWindow=OSError)
    protocol = SimpleNamespace(event=None, rq=SimpleNamespace(Request=object, ReplyRequest=object, **_FIELDS))
    names = SimpleNamespace(
        KeyPress=2, KeyRelease=3, Mod2Mask=16, SubstructureNotifyMask=1 << 19, StructureNotifyMask=1 << 17
    )
    xlib = SimpleNamespace(XK=key_names, X=names, display=None, ext=ext)
    for name, module in {"Xlib": xlib, "Xlib.ext": ext, "Xlib.error": error, "Xlib.protocol": protocol}.items():
        monkeypatch.setitem(sys.modules, name, _module(name, vars(module)))
    monkeypatch.syspath_prepend(str(Path(str(apis.guest.__file__)).parent.parent))
    before = set(sys.modules)
    import guest.screen.keyboard  # type: ignore[import-not-found, unused-ignore]

    yield guest.screen.keyboard
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _module(name: str, holds: dict[str, Any]) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(holds)
    return made


@pytest.mark.parametrize("text", ["x\n" * 500, "\n" * MAX_TEXT, "word\n" * 130 + "y" * 350, "y" * MAX_TEXT])
@pytest.mark.parametrize("app", ["libreoffice-writer", "libreoffice-impress", "mousepad", "another"])
@pytest.mark.parametrize("dialog", [False, True])
def test_any_text_that_may_be_typed_is_typed_within_the_calls_time(
    keyboard: Any, monkeypatch: pytest.MonkeyPatch, text: str, app: str, dialog: bool
) -> None:
    screen = Screen()

    def rest(_: float) -> None:
        screen.now += LONGEST_REST_S

    monkeypatch.setattr(keyboard, "time", SimpleNamespace(monotonic=lambda: screen.now))
    keyboard.Keyboard(screen, rest).type_text(text, app, dialog)
    assert screen.typed == len(text) == MAX_TEXT
    assert screen.now < SeatConfig().call_timeout_s - MARGIN_S


@pytest.mark.parametrize("took_s", [0.1, 0.5, 1.0])
def test_a_slow_application_costs_rests_and_pauses_before_it_costs_the_end_of_a_text(
    keyboard: Any, monkeypatch: pytest.MonkeyPatch, took_s: float
) -> None:
    screen = Screen()

    def rest(_: float) -> None:
        screen.now += LONGEST_REST_S

    def read(_: int, seconds: float) -> bool:
        screen.now += min(took_s, seconds)
        return took_s <= seconds

    monkeypatch.setattr(keyboard, "time", SimpleNamespace(monotonic=lambda: screen.now))
    monkeypatch.setattr(keyboard, "Hearing", lambda: SimpleNamespace(read=read))
    text = "\n".join("".join(map(chr, range(0x4E00 + at, 0x4E00 + at + 10))) for at in range(0, 200, 10))
    assert keyboard.Keyboard(screen, rest).type_text(text, "libreoffice-calc") == keyboard.TYPED
    assert screen.now < SeatConfig().call_timeout_s - MARGIN_S
