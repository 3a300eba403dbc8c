"""Keys through XTEST.

Invariant: no modifier stays pressed, whatever a method raises, because a combination is resolved to key codes before
the first press; a stroke is sent only after the pace that its application needs, but for a text that would take longer
than `TYPE_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from guest.errors import Refused
from guest.screenlink import ScreenLink
from Xlib import XK, X
from Xlib.ext import xtest

# Seconds between strokes, by window class (lower case). None of these lost one of them without any pause.
PACES_S = {
    "mousepad": 0.002,
    "pcmanfm": 0.002,
    "xterm": 0.002,
    "libreoffice-calc": 0.002,
    "libreoffice-writer": 0.002,
}
PACE_S = 0.012
# LibreOffice finishes a move of its cursor after the fact, and what is typed into the next cell until then gets lost:
# the first two to four characters at 12 ms apart. So it must have rested this long before typing starts or goes on.
OFFICE_REST_S = 0.04
AFTER_LINE_S = 0.06  # Return may close a dialog: what follows must reach the window that comes next
# GTK's file dialogs swallow a Return that comes while they complete a name: 120 ms after the last character is too
# soon, 160 enough on an idle machine. So a dialog must have rested this long.
BEFORE_RETURN_S = 0.2
CAREFUL_S = 8.0  # of waiting at lines and cells in one text; what is longer goes on at the application's pace
TYPE_S = 14.0  # of pauses in one text, the careful ones included: the host waits 20 s for a call
TEXT_MAX = 20_000
KEYS_MAX = 6

ALIASES = {
    "ctrl": "Control_L", "control": "Control_L", "ctrlleft": "Control_L", "ctrlright": "Control_R",
    "shift": "Shift_L", "shiftleft": "Shift_L", "shiftright": "Shift_R",
    "alt": "Alt_L", "altleft": "Alt_L", "altright": "Alt_R", "option": "Alt_L",
    "super": "Super_L", "win": "Super_L", "winleft": "Super_L", "command": "Super_L", "cmd": "Super_L",
    "meta": "Super_L",
    "enter": "Return", "return": "Return", "esc": "Escape", "escape": "Escape", "del": "Delete", "delete": "Delete",
    "backspace": "BackSpace", "tab": "Tab", "space": "space", "insert": "Insert", "home": "Home", "end": "End",
    "pageup": "Page_Up", "pgup": "Page_Up", "pagedown": "Page_Down", "pgdn": "Page_Down",
    "up": "Up", "down": "Down", "left": "Left", "right": "Right", "capslock": "Caps_Lock", "menu": "Menu",
    "printscreen": "Print", "plus": "plus", "minus": "minus",
}  # fmt: skip
_CONTROL = {"\n": XK.XK_Return, "\t": XK.XK_Tab}


def keysym_of(name: str) -> int:
    """The keysym of a key's name or of one character. Raises Refused."""
    if len(name) == 1:
        if name in _CONTROL:
            return _CONTROL[name]
        code = ord(name)
        if code < 0x20 or 0x7F <= code < 0xA0:
            raise Refused("bad_key", f"no key types {name!r}")
        return code if code < 0x100 else 0x01000000 + code
    keysym = XK.string_to_keysym(ALIASES.get(name.lower(), name)) or XK.string_to_keysym(name.upper())
    if not keysym:
        raise Refused("bad_key", f"no key is called {name[:40]!r}")
    return keysym


class Keyboard:
    """The keyboard of one desktop."""

    def __init__(self, link: ScreenLink, rest: Callable[[float], None]) -> None:
        self._link = link
        self._rest = rest  # waits until the desktop has rested for so many seconds
        self._codes: dict[int, tuple[int, bool]] = {}
        info = link.display.display.info
        count = info.max_keycode - info.min_keycode + 1
        rows = link.display.get_keyboard_mapping(info.min_keycode, count)
        self._spare = [info.min_keycode + at for at, row in enumerate(rows) if not any(row)]
        self._bound: list[int] = []
        for at, row in enumerate(rows):
            for column in (1, 0):
                if column < len(row) and row[column]:
                    known = self._codes.get(row[column])
                    if known is None or (known[1] and not column):
                        self._codes[row[column]] = (info.min_keycode + at, bool(column))
        self._shift = self._codes[XK.XK_Shift_L][0]

    def _bind(self, keysyms: list[int]) -> None:
        """Give characters that the layout lacks keys of their own, oldest first when spare keys run out."""
        missing = [keysym for keysym in dict.fromkeys(keysyms) if keysym not in self._codes]
        if not missing:
            return
        if len(missing) > len(self._spare) + len(self._bound):
            raise Refused("bad_key", "too many different characters that the keyboard lacks")
        for keysym in missing:
            if self._spare:
                code = self._spare.pop()
            else:
                oldest = next(bound for bound in self._bound if bound not in keysyms)
                self._bound.remove(oldest)
                code = self._codes.pop(oldest)[0]
            self._link.display.change_keyboard_mapping(code, [(keysym, keysym)])
            self._codes[keysym] = (code, False)
            self._bound.append(keysym)
        self._link.flush()
        self._link.pause(AFTER_LINE_S)  # clients read the new layout when they get round to it

    def _press(self, kind: int, code: int) -> None:
        xtest.fake_input(self._link.display, kind, code)

    def type_text(self, text: str, app: str = "", dialog: bool = False) -> None:
        """Type characters, newline as Return and tab as Tab, at the pace of the window class `app`.

        `dialog` tells that the focused window is a dialog.
        """
        if len(text) > TEXT_MAX:
            raise Refused("bad_request", f"at most {TEXT_MAX} characters")
        pace = PACES_S.get(app.lower(), PACE_S)
        began = time.monotonic()
        office = app.lower().startswith(("libreoffice", "soffice"))
        if office:
            self._rest(OFFICE_REST_S)
        keysyms = [keysym_of(character) for character in text.replace("\r\n", "\n")]
        left = len(keysyms)
        spare_keys = max(1, len(self._spare) + len(self._bound))
        for start in range(0, len(keysyms), spare_keys):
            part = keysyms[start : start + spare_keys]
            self._bind(part)
            for keysym in part:
                careful = time.monotonic() < began + CAREFUL_S and keysym in _CONTROL.values()
                if dialog and careful:
                    self._rest(BEFORE_RETURN_S)
                code, shifted = self._codes[keysym]
                if shifted:
                    self._press(X.KeyPress, self._shift)
                self._press(X.KeyPress, code)
                self._press(X.KeyRelease, code)
                if shifted:
                    self._press(X.KeyRelease, self._shift)
                self._link.flush()
                if dialog and keysym == XK.XK_Return:
                    self._link.expect_activation()
                if office and careful:
                    self._rest(OFFICE_REST_S)
                else:
                    share = max(0.0, began + TYPE_S - time.monotonic()) / left
                    self._link.pause(AFTER_LINE_S if careful else min(pace, share))
                left -= 1

    def hotkey(self, keys: list[str], dialog: bool = False) -> None:
        """Press keys together and release them in reverse; `dialog` tells that the focused window is a dialog."""
        if not 1 <= len(keys) <= KEYS_MAX:
            raise Refused("bad_request", f"one to {KEYS_MAX} keys")
        keysyms = [keysym_of(key) for key in keys]
        self._bind(keysyms)
        if dialog and keysyms[-1] in (XK.XK_Return, XK.XK_KP_Enter, XK.XK_Tab):
            self._rest(BEFORE_RETURN_S)
        activates = (dialog and keysyms[-1] in (XK.XK_Return, XK.XK_KP_Enter, XK.XK_space)) or XK.XK_Alt_L in keysyms
        codes: list[int] = []
        for keysym in keysyms:
            code, shifted = self._codes[keysym]
            if shifted and self._shift not in codes:
                codes.append(self._shift)
            codes.append(code)
        for code in codes:
            self._press(X.KeyPress, code)
        for code in reversed(codes):
            self._press(X.KeyRelease, code)
        self._link.flush()
        if activates:
            self._link.expect_activation()
