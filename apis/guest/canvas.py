"""A window that fills the screen with a picture, and keeps in a file where it was clicked or what was typed.

The accessibility bus learns nothing of what the picture shows. The last click or line counts.
"""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image
from Xlib import XK, X, Xatom, display

WHOLE = 1000  # thousandths of a side
MARK = 6  # pixels from the middle of a mark to its ends
LINE_MAX = 200  # characters
WM_CLASS = "canvas"


class Canvas:
    """The window of `picture`, whose answers go to the file `answer`."""

    def __init__(self, picture: Path, answer: Path) -> None:
        with Image.open(picture, formats=["PNG"]) as image:
            self._image = image.convert("RGB")
        self._answer = answer
        self._typed = ""
        self._clicked: tuple[int, int] | None = None  # pixels of the window
        self._display = display.Display()
        screen = self._display.screen()
        self._size = screen.width_in_pixels, screen.height_in_pixels
        seen = X.ExposureMask | X.StructureNotifyMask | X.ButtonPressMask | X.KeyPressMask
        self._window = screen.root.create_window(
            0, 0, *self._size, 0, screen.root_depth, X.InputOutput, background_pixel=screen.white_pixel, event_mask=seen
        )
        self._ink = self._window.create_gc(foreground=screen.black_pixel, line_width=2)
        atom = self._display.intern_atom
        self._window.set_wm_class(WM_CLASS, WM_CLASS)
        self._window.set_wm_name("Picture")
        self._window.change_property(atom("_NET_WM_PID"), Xatom.CARDINAL, 32, [os.getpid()])
        self._window.change_property(atom("_NET_WM_STATE"), Xatom.ATOM, 32, [atom("_NET_WM_STATE_FULLSCREEN")])
        self._window.map()

    def run(self) -> None:
        """Show the picture until the window is gone."""
        while True:
            event = self._display.next_event()
            if event.type == X.DestroyNotify:
                return
            if event.type == X.ConfigureNotify:
                self._size = event.width, event.height
            elif event.type == X.Expose and event.count == 0:
                self._draw()
            elif event.type == X.ButtonPress and event.detail == 1:
                self._click(event.event_x, event.event_y)
            elif event.type == X.KeyPress:
                self._key(self._display.keycode_to_keysym(event.detail, event.state & X.ShiftMask))
            elif event.type == X.MappingNotify:
                self._display.refresh_keyboard_mapping(event)

    def _draw(self) -> None:
        self._window.put_pil_image(self._ink, 0, 0, self._image.resize(self._size, Image.Resampling.LANCZOS))
        if self._clicked is not None:
            x, y = self._clicked
            self._window.line(self._ink, x - MARK, y - MARK, x + MARK, y + MARK)
            self._window.line(self._ink, x - MARK, y + MARK, x + MARK, y - MARK)
        self._display.flush()

    def _click(self, x: int, y: int) -> None:
        width, height = self._size
        self._clicked = x, y
        self._keep(f"{x * WHOLE // max(1, width)} {y * WHOLE // max(1, height)}")
        self._draw()

    def _key(self, keysym: int) -> None:
        if keysym == XK.XK_BackSpace:
            self._typed = self._typed[:-1]
        elif keysym == XK.XK_Return:
            self._keep(self._typed)
            self._typed = ""
        elif 0x20 <= keysym < 0x7F:
            self._typed = (self._typed + chr(keysym))[:LINE_MAX]

    def _keep(self, line: str) -> None:
        self._answer.write_text(f"{line}\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    """Show the first file, and keep answers in the second."""
    picture, answer = map(Path, argv)
    Canvas(picture, answer).run()
    return 0
