"""Keys through XTEST.

Invariant:
- No modifier stays pressed, whatever a method raises. A combination is resolved to key codes before the first press,
  and no modifier is pressed or locked when it begins.
- A stroke waits for the pace that its application needs, as long as the time of the text lasts (`Spending`).
- A key gets another sign only after its last stroke was read. Where that is not known, the answer says so.
- Nothing is typed behind a line that Writer has not made yet.
- A text that takes several calls goes on behind the last stroke of the call before. The answer counts what is typed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from guest import Refused
from guest.screen.layout import SHIFT_L, Layout, Rows, runs
from guest.screen.screenlink import KeysRead, ScreenLink
from Xlib import XK, X
from Xlib.ext import xtest

CAREFUL_S = 11.0  # of waiting at lines and cells in one call; what is longer goes on at the application's pace
TYPE_S = 14.0  # of pauses in one call, the careful ones included
ANSWER_S = 16.0  # until the answer is due: the host waits 20 s for a call
READ_S = 8.0  # for an application to read what it was sent; it may be held up
BOUND_S = 0.5  # for an application to read a new layout; a wait is taken for so long until the first one is over


class Spending:
    """The time of one text; all arguments are in seconds, `now` and `began` by a monotonic clock."""

    def __init__(self, began: float, waits: int, calls: int = 1) -> None:
        """`waits` is how often the application has to be waited for, `calls` how many the text may take."""
        self._began, self._more = began, calls - 1  # of the call that runs, and how many may follow it
        self._waits, self._longest_s = waits, BOUND_S

    def again(self, now: float) -> None:
        self._began, self._more = now, max(0, self._more - 1)

    def over(self, now: float) -> bool:
        """Whether the call has to end, wherever the text is."""
        return now >= self._began + (TYPE_S if self._more else ANSWER_S)

    def waited(self, seconds: float) -> None:
        self._waits, self._longest_s = max(0, self._waits - 1), max(self._longest_s, seconds)

    def left_s(self, now: float) -> float:
        """What rests and pauses may still take, in this call and the following."""
        return max(0.0, self._began + TYPE_S * (1 + self._more) - now - self._waits * self._longest_s)

    def careful(self, now: float) -> bool:
        """Whether a line may still be rested at."""
        return self.left_s(now) > (TYPE_S - CAREFUL_S) * (1 + self._more)

    def wait_s(self, now: float) -> float:
        """How long the application may be waited for."""
        return min(READ_S, max(BOUND_S, self._began + ANSWER_S - now))


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
# Writer's Return is a shortcut, and its shortcuts run once no key waits any more. So what is typed behind a Return
# would come before the new line.
WRITER = "libreoffice-writer"
AFTER_LINE_S = 0.06  # Return may close a dialog: what follows must reach the window that comes next
# GTK's file dialogs swallow a Return that comes while they complete a name: 120 ms after the last character is too
# soon, 160 enough on an idle machine. So a dialog must have rested this long.
BEFORE_RETURN_S = 0.2
# An Impress box that typing has opened sets its caret again some 200 ms after it has read the first key: it must have
# read that and rested.
OPENED_S = 0.25
TEXT_MAX = 20_000
LINE_MAX = 40  # characters that are compared with a field
# Whose fields complete names while one types, outside of dialogs too.
COMPLETING = {"pcmanfm", "chromium", "chromium-browser"}
KEYS_MAX = 6
TYPED = "Type Success"
UNSURE = (
    "Type Success, but the application can't be asked whether it read every sign before the next was given its key: "
    "check the text"
)

DEAF = "the application takes no keys now"
LATE = "the machine is too busy to type more in this time"

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
_LOCKS = {XK.XK_Caps_Lock, XK.XK_Num_Lock}
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


def keysyms_of(text: str) -> list[int]:
    """The keysyms of a text's characters. Raises Refused for a text that is too long or can't be typed."""
    if len(text) > TEXT_MAX:
        raise Refused("bad_request", f"at most {TEXT_MAX} characters")
    return [keysym_of(character) for character in text.replace("\r\n", "\n")]


class Text:
    """A text that is typed in one call or several, and how far it came."""

    def __init__(self, keysyms: list[int], app: str, dialog: bool, completes: bool, spending: Spending) -> None:
        """`app` is a window's class, lower case; with `completes` its field may complete names."""
        self.keysyms, self.app, self.dialog, self.completes, self.spending = keysyms, app, dialog, completes, spending
        self.at = self.ready = 0  # how many are typed, how many have keys
        self.line = False  # whether the last line may not be made yet
        self.sure = True  # whether the application was known to have read each sign before its key got another
        self.why = ""  # not all are typed
        self.deaf = False  # the application read no key in a whole call

    @property
    def done(self) -> bool:
        return self.at == len(self.keysyms)

    @property
    def office(self) -> bool:
        return self.app.startswith(("libreoffice", "soffice"))

    def line_breaks(self, at: int) -> bool:
        """Whether Writer has to make a line before the character at `at` is typed."""
        following = self.keysyms[at - 1 : at + 1]
        return self.app == WRITER and following[0] == XK.XK_Return and following[-1] != XK.XK_Return

    @property
    def said(self) -> str:
        if self.done:
            return TYPED if self.sure else UNSURE
        return (
            f"Typed only the first {self.at} of {len(self.keysyms)} characters: {self.why}. "
            "Look at it, then type the rest"
        )


class Keyboard:
    """The keyboard of one desktop."""

    def __init__(
        self,
        link: ScreenLink,
        rest: Callable[[float], bool],
        added: Callable[[str], bool | None] = lambda typed: None,
    ) -> None:
        self._link = link
        self._rest = rest  # waits until the desktop has rested for so many seconds; whether that came in time
        self._added = added  # whether a field has completed what was typed, None where none has the focus
        self._line = ""  # the end of what was typed last, as long as nothing was done since
        self._left = False  # whether the last thing done was typing
        self._text: Text | None = None  # that was typed last, as long as nothing was done since
        self._hearing: KeysRead | None = None
        self._into = 0  # the office's window that was typed into last
        self._unread: set[int] = set()  # windows that got signs from spare keys and were not asked since
        self._layout = Layout(0, ())
        self._learn()

    def _learn(self) -> None:
        """Read the layout, which any program may change."""
        info = self._link.display.display.info
        count = info.max_keycode - info.min_keycode + 1
        self._link.layout_changed = False
        rows = self._link.display.get_keyboard_mapping(info.min_keycode, count)
        self._layout = Layout(info.min_keycode, rows, self._layout)

    def _begin(self) -> None:
        """No key pressed, no lock but that of the number keys, the layout's first group, and the layout known."""
        self._link.plain_keys()
        if self._link.layout_changed:
            self._learn()

    def _read(self, window: int, seconds: float) -> bool | None:
        if self._hearing is None:
            self._hearing = KeysRead()
        return self._hearing.read(window, seconds)

    def _wait_for(self, window: int) -> None:
        """Until the office has come to rest; longer in another window than before, for one that opens loses text."""
        until = time.monotonic() + (0.0 if window == self._into else READ_S)
        while not self._rest(OFFICE_REST_S) and time.monotonic() < until:
            pass
        self._into = window

    def _all_read(self, seconds: float) -> bool | None:
        """Whether every window has read its signs: False where one did not answer, None where one can't be asked."""
        until = time.monotonic() + seconds
        answers = [self._read(window, max(0.0, until - time.monotonic())) for window in self._unread]
        if None in answers:
            self._rest(OPENED_S)
        if False in answers:
            return False
        self._unread.clear()
        return None if None in answers else True

    def _bind(self, change: Rows, window: int) -> None:
        """Tell the server, and wait until the application in front knows, too."""
        for first, rows in runs(change):
            self._link.bind(first, rows)
        self._link.flush()
        if not window or not self._read(window, BOUND_S):
            self._link.pause(AFTER_LINE_S)  # clients read the new layout when they get round to it

    def _press(self, kind: int, code: int) -> None:
        xtest.fake_input(self._link.display, kind, code)

    def _stroke(self, keysym: int) -> None:
        code, shifted = self._layout.place(keysym)
        shift = self._layout.place(SHIFT_L)[0] if shifted else 0
        if shift:
            self._press(X.KeyPress, shift)
        self._press(X.KeyPress, code)
        self._press(X.KeyRelease, code)
        if shift:
            self._press(X.KeyRelease, shift)
        self._link.flush()

    def type_text(self, text: str, app: str = "", dialog: bool = False, calls: int = 1) -> str:
        """Type characters, newline as Return and tab as Tab, at the pace of the window class `app`.

        `dialog` tells that the focused window is a dialog. The text may take `calls`: this one, then `type_on`.
        Says how it went.
        """
        began, keysyms, app = time.monotonic(), keysyms_of(text), app.lower()
        self._begin()
        spending = Spending(began, self._layout.parts(keysyms), calls)
        self._text = Text(keysyms, app, dialog, dialog or app in COMPLETING, spending)
        if self._text.office:
            self._wait_for(self._link.active())
        self._link.selected = False
        return self._type(self._text)

    def type_on(self) -> str:
        """Go on with the text that the last call left unfinished; how it went, empty where there is no text."""
        text = self._text
        if text is None or text.done or text.deaf:
            return text.said if text else ""
        text.spending.again(time.monotonic())
        return self._type(text)

    def _type(self, text: Text) -> str:
        """Type until the text ends, the call's time, or the patience with an application that reads no keys."""
        began_at, text.why = text.at, LATE
        while not text.done and not text.spending.over(time.monotonic()):
            if text.line:
                text.line = not self._line_made(text.spending.wait_s(time.monotonic()))
                continue
            if self._link.layout_changed:
                self._learn()
                text.ready = text.at
            if text.at == text.ready:
                asked = time.monotonic()
                text.ready, known = self._ready(text.keysyms, text.at, text.spending.wait_s(asked))
                text.spending.waited(time.monotonic() - asked)
                if known is False:
                    text.why, text.deaf = DEAF, text.at == began_at
                    break
                text.sure = text.sure and known is True
            self._character(text)
            text.at += 1
            text.line = text.line_breaks(text.at)
        return text.said

    def _line_made(self, seconds: float) -> bool:
        """Whether Writer has read a Return within `seconds`, and has come to rest."""
        return self._read(self._link.active(), seconds) is not False and self._rest(OFFICE_REST_S)

    def _character(self, text: Text) -> None:
        """Type the next one, with the rests and pauses that it needs."""
        keysym, spending = text.keysyms[text.at], text.spending
        control = keysym in _CONTROL.values()
        careful = control and spending.careful(time.monotonic())
        if text.dialog and careful:
            self._rest(BEFORE_RETURN_S)
        elif careful and text.completes and self._line:
            text.completes = self._added(self._line) is not None  # else a page has the focus
            if text.completes:
                self._rest(BEFORE_RETURN_S)
        if control and (text.completes or self._link.selected):
            self.undo_addition()
        self._stroke(keysym)
        self._line = "" if control else (self._line + chr(keysym & 0xFFFFFF))[-LINE_MAX:]
        if text.dialog and keysym == XK.XK_Return:
            self._link.expect_activation()
        if text.office and careful and not (text.app == WRITER and keysym == XK.XK_Return):  # that is waited for
            self._rest(OFFICE_REST_S)
        elif not text.at and text.app == "libreoffice-impress":
            self._read(self._link.active(), spending.wait_s(time.monotonic()))
            self._rest(OPENED_S)
            self._read(self._link.active(), spending.wait_s(time.monotonic()))
        else:
            share = spending.left_s(time.monotonic()) / (len(text.keysyms) - text.at)
            self._link.pause(AFTER_LINE_S if careful else min(PACES_S.get(text.app, PACE_S), share))

    def leave(self) -> None:
        """Something else is done: what was typed before counts no more."""
        self._left, self._line, self._text = bool(self._line), "", None

    def undo_addition(self) -> bool:
        """Remove what the application added by itself to what was typed last; whether there was such a thing."""
        if not self._line or not self._added(self._line):
            return False
        self._stroke(XK.XK_Delete)
        return True

    def _ready(self, keysyms: list[int], at: int, seconds: float) -> tuple[int, bool | None]:
        """Bind what comes from `at` on, as far as keys last: up to where, and whether all that was typed was read."""
        part = keysyms[at : at + self._layout.part(keysyms[at:])]
        if not part:
            raise Refused("bad_key", "the keyboard's layout has no spare key")
        borrows = any(not self._layout.typed(keysym) for keysym in part)
        if not borrows:
            return at + len(part), True
        known: bool | None = True
        window = self._link.active()
        if self._layout.gives_way(part):
            known = self._all_read(seconds)
            if known is False:
                return at, False
        change = self._layout.bind(part)
        if change:
            self._bind(change, window)
        self._unread.add(window)
        return at + len(part), known

    def hotkey(self, keys: list[str], dialog: bool = False, listed: Callable[[], bool] = lambda: False) -> None:
        """Press keys together and release them in reverse.

        `dialog` tells that the focused window is a dialog, `listed` whether a menu or a list is open there.
        """
        if not 1 <= len(keys) <= KEYS_MAX:
            raise Refused("bad_request", f"one to {KEYS_MAX} keys")
        keysyms = [keysym_of(key) for key in keys]
        if not _LOCKS.intersection(keysyms):
            self._begin()
        if self._ready(keysyms, 0, READ_S)[0] < len(keysyms):
            raise Refused("bad_key", "the application has not read the last keys, and no spare key is left")
        if dialog and self._left and XK.XK_Alt_L in keysyms:
            self._rest(BEFORE_RETURN_S)
            if listed():
                self._stroke(XK.XK_Right)  # else the list of names that GTK offers behind a typed one swallows them
                self._rest(OFFICE_REST_S)
        if dialog and keysyms[-1] in (XK.XK_Return, XK.XK_KP_Enter, XK.XK_Tab):
            self._rest(BEFORE_RETURN_S)
        activates = (dialog and keysyms[-1] in (XK.XK_Return, XK.XK_KP_Enter, XK.XK_space)) or XK.XK_Alt_L in keysyms
        codes: list[int] = []
        for keysym in keysyms:
            code, shifted = self._layout.place(keysym)
            shift = self._layout.place(SHIFT_L)[0] if shifted else 0
            if shift and shift not in codes:
                codes.append(shift)
            codes.append(code)
        for code in codes:
            self._press(X.KeyPress, code)
        for code in reversed(codes):
            self._press(X.KeyRelease, code)
        self._link.flush()
        if activates:
            self._link.expect_activation()
