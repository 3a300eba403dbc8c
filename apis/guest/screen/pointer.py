"""Mouse actions through XTEST. Two separate clicks are never taken for a double click."""

from __future__ import annotations

import time

from guest import Refused
from guest.screen.screenlink import ScreenLink
from Xlib import X
from Xlib.ext import xtest

DOUBLE_CLICK_S = 0.16  # the HOME template sets the toolkits to 150 ms
AGAIN_S = 0.04  # between the presses of a double click
NEAR_PX = 12
DRAG_STEPS = 8
DRAG_PACE_S = 0.012
SCROLL_MAX = 50


class Pointer:
    """The mouse of one desktop; coordinates are screen pixels."""

    def __init__(self, link: ScreenLink) -> None:
        self._link = link
        self._last: tuple[float, int, int, int] = (0.0, 0, 0, 0)  # when, x, y, button
        self.gap_s = float("inf")  # between the last two clicks

    def _to(self, x: int, y: int) -> None:
        screen = self._link.display.screen()
        if not (0 <= x < screen.width_in_pixels and 0 <= y < screen.height_in_pixels):
            raise Refused("outside", f"({x}, {y}) is not on the screen")
        xtest.fake_input(self._link.display, X.MotionNotify, x=x, y=y)

    def _button(self, kind: int, button: int) -> None:
        xtest.fake_input(self._link.display, kind, button)

    def move(self, x: int, y: int) -> None:
        self._to(x, y)
        self._link.flush()

    def rest(self, seconds: float) -> None:
        """Wait until the last click is that long ago."""
        wait = self._last[0] + seconds - time.monotonic()
        if wait > 0:
            self._link.pause(wait)

    def click(self, x: int, y: int, button: int = 1, n: int = 1) -> None:
        """Click `n` (1 to 3) times at once."""
        if button not in (1, 2, 3) or not 1 <= n <= 3:
            raise Refused("bad_request", "button is 1 to 3, n is 1 to 3")
        when, last_x, last_y, last_button = self._last
        wait = when + DOUBLE_CLICK_S - time.monotonic()
        self._to(x, y)
        self._link.flush()
        if wait > 0 and button == last_button and abs(x - last_x) <= NEAR_PX and abs(y - last_y) <= NEAR_PX:
            self._link.pause(wait)
        for number in range(n):
            if number:  # in one burst, pcmanfm opens what was selected before
                self._link.flush()
                self._link.pause(AGAIN_S)
            self._button(X.ButtonPress, button)
            self._button(X.ButtonRelease, button)
        self._link.flush()
        self.gap_s, self._last = time.monotonic() - when, (time.monotonic(), x, y, button)

    def drag(self, x: int, y: int, x2: int, y2: int, button: int = 1) -> None:
        """Press at the first point, move in steps, release at the second."""
        self._to(x, y)
        self._button(X.ButtonPress, button)
        self._link.flush()
        for step in range(1, DRAG_STEPS + 1):
            self._link.pause(DRAG_PACE_S)  # toolkits start a drag only after having seen some motion
            self._to(x + (x2 - x) * step // DRAG_STEPS, y + (y2 - y) * step // DRAG_STEPS)
            self._link.flush()
        self._link.pause(DRAG_PACE_S)
        self._button(X.ButtonRelease, button)
        self._link.flush()

    def scroll(self, x: int, y: int, dy: int) -> None:
        """Turn the wheel `dy` notches at a place; positive scrolls down."""
        if abs(dy) > SCROLL_MAX:
            raise Refused("bad_request", f"at most {SCROLL_MAX} notches")
        self._to(x, y)
        for _ in range(abs(dy)):
            button = 5 if dy > 0 else 4
            self._button(X.ButtonPress, button)
            self._button(X.ButtonRelease, button)
        self._link.flush()
