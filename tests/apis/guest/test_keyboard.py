"""How long typing takes, and what is typed: a clock and a screen of the test's own, on a keyboard that nobody reads."""

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
from apis.plans.action import typed

_FIELDS = {
    name: lambda *_: None
    for name in ("Struct", "Card8", "Card16", "Opcode", "RequestLength", "ReplyCode", "ReplyLength", "Pad")
}
KEYS = {"XK_Return": 0xFF0D, "XK_Tab": 0xFF09, "XK_Shift_L": 0xFFE1, "XK_Alt_L": 0xFFE9, "XK_KP_Enter": 0xFF8D,
        "XK_Caps_Lock": 0xFFE5, "XK_Num_Lock": 0xFF7F}  # fmt: skip
KEY_PRESS = 2
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
        self.rows = dict(enumerate(rows, 8))
        self.waits: list[str] = []  # what was typed at each wait for a rest
        self.every = 1  # which of them meet one
        self.signs = ""  # typed so far, as the layout stood at each stroke
        self.shifted = False
        info = SimpleNamespace(min_keycode=8, max_keycode=8 + len(rows) - 1)
        self.display = SimpleNamespace(
            display=SimpleNamespace(info=info),
            get_keyboard_mapping=lambda first, count: rows,
        )

    def bind(self, first: int, rows: list[tuple[int, int]]) -> None:
        """Applications hear of it at once."""
        self.rows.update(enumerate(map(list, rows), first))

    def press(self, _: Any, kind: int, code: int) -> None:
        """A key goes down or up."""
        if self.rows[code][0] == KEYS["XK_Shift_L"]:
            self.shifted = kind == KEY_PRESS
        elif kind == KEY_PRESS:
            self.signs += chr(self.rows[code][self.shifted] & 0xFFFFFF)

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
        KeyPress=KEY_PRESS, KeyRelease=3, Mod2Mask=16, SubstructureNotifyMask=1 << 19, StructureNotifyMask=1 << 17
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
@pytest.mark.parametrize("app", ["libreoffice-calc", "libreoffice-impress", "mousepad", "another"])
@pytest.mark.parametrize("dialog", [False, True])
def test_any_text_that_may_be_typed_is_typed_within_the_calls_time(
    keyboard: Any, monkeypatch: pytest.MonkeyPatch, text: str, app: str, dialog: bool
) -> None:
    screen, typist = typing(keyboard, monkeypatch, 0.0)
    typist.type_text(text, app, dialog)
    assert screen.typed == len(text) == MAX_TEXT
    assert screen.now < SeatConfig().call_timeout_s - MARGIN_S


class Application:
    """It takes `took_s` to read what it was sent, and reads nothing more once `reads` signs are typed."""

    def __init__(self, screen: Screen, took_s: float, reads: int = MAX_TEXT) -> None:
        self.screen, self.took_s, self.reads = screen, took_s, reads

    def read(self, _: int, seconds: float) -> bool:
        """As `KeysRead.read`."""
        took_s = self.took_s if len(self.screen.signs) <= self.reads else float("inf")
        self.screen.now += min(took_s, seconds)
        return took_s <= seconds


def typing(keyboard: Any, monkeypatch: pytest.MonkeyPatch, took_s: float, reads: int = MAX_TEXT) -> tuple[Screen, Any]:
    """A screen, and a keyboard in front of such an application."""
    screen = Screen()

    def rest(_: float) -> bool:
        screen.now += LONGEST_REST_S
        screen.waits.append(screen.signs)
        return len(screen.waits) % screen.every == 0

    monkeypatch.setattr(keyboard, "time", SimpleNamespace(monotonic=lambda: screen.now))
    monkeypatch.setattr(keyboard, "KeysRead", lambda: Application(screen, took_s, reads))
    monkeypatch.setattr(keyboard.xtest, "fake_input", screen.press)
    return screen, keyboard.Keyboard(screen, rest)


def han(number: int) -> str:
    return "".join(map(chr, range(0x4E00, 0x4E00 + number)))


def carried_out(keyboard: Any, typist: Any, screen: Screen, text: str, app: str = "libreoffice-calc") -> list[str]:
    """The answers of the calls that type `text`; each call ends in its time."""
    answers = []
    for call in typed(text):
        began, args = screen.now, dict(call.args) | ({"app": app} if call.args else {})
        answers.append(getattr(typist, call.method)(**args))
        assert screen.now - began < SeatConfig().call_timeout_s - MARGIN_S
    return answers


@pytest.mark.parametrize("took_s", [0.01, 1.0, 1.7, 2.0])
@pytest.mark.parametrize("line", [10, MAX_TEXT])
def test_a_long_text_goes_on_in_further_calls_and_no_sign_is_lost_or_doubled_between_them(
    keyboard: Any, monkeypatch: pytest.MonkeyPatch, took_s: float, line: int
) -> None:
    screen, typist = typing(keyboard, monkeypatch, took_s)
    text = "\n".join(han(900)[at : at + line] for at in range(0, 900, line))
    answers = carried_out(keyboard, typist, screen, text)
    assert answers[-1] == keyboard.TYPED
    assert screen.signs == text.replace("\n", chr(KEYS["XK_Return"]))
    assert (answers[0] == keyboard.TYPED) == (took_s < 0.1 and line == MAX_TEXT)


@pytest.mark.parametrize("every", [1, 2, 9])
def test_nothing_is_typed_behind_a_line_that_writer_has_not_made(
    keyboard: Any, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    screen, typist = typing(keyboard, monkeypatch, 0.01)
    screen.every = every
    lines = ["word"] * 10 + [""] * 20 + ["word" * 20] * 6
    answers = carried_out(keyboard, typist, screen, "\n".join(lines), "libreoffice-writer")
    wanted = chr(KEYS["XK_Return"]).join(lines)
    assert wanted.startswith(screen.signs)
    assert (answers[-1] == keyboard.TYPED) == (screen.signs == wanted) == (every < 9)
    rested = set(screen.waits[every - 1 :: every])
    made = [at for at, sign in enumerate(screen.signs) if sign == chr(KEYS["XK_Return"])]
    followed = [at for at in made if screen.signs[at + 1 : at + 2] == "w"]
    assert followed
    assert all(screen.signs[: at + 1] in rested for at in followed)


def test_what_was_typed_is_told_when_an_application_stops_reading(
    keyboard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, typist = typing(keyboard, monkeypatch, 0.5, reads=300)
    answers = carried_out(keyboard, typist, screen, han(MAX_TEXT))
    at = len(screen.signs)
    assert 300 < at < 400
    assert screen.signs == han(at)
    assert answers[-1].startswith(f"Typed only the first {at} of {MAX_TEXT} characters: {keyboard.DEAF}")
    assert screen.now < 2 * SeatConfig().call_timeout_s  # the other calls do not wait once more


def test_a_text_is_forgotten_when_something_else_is_done(keyboard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, typist = typing(keyboard, monkeypatch, 2.0)
    typist.type_text(han(MAX_TEXT), calls=2)
    typist.leave()
    before = screen.signs
    assert not typist.type_on()
    assert screen.signs == before
