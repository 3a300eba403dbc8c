"""Boxes on the screen: which lies in which, and what lies behind what.

Invariant: pure; all boxes are x, y, width and height in screen pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MENU_FRAME = 10  # pixels, both sides together

Box = tuple[int, int, int, int]


def overhang(y: int, h: int, above: Box) -> int:
    """How many pixels of a box at `y` stand out of its parent's, above or below."""
    return max(0, above[1] - y) + max(0, y + h - above[1] - above[3])


def holds(view: Box, x: int, y: int) -> bool:
    """Whether a point lies in `view`."""
    return view[0] <= x < view[0] + view[2] and view[1] <= y < view[1] + view[3]


def inside(box: Box, view: Box) -> bool:
    """Whether the centre of `box` lies in `view`."""
    return holds(view, box[0] + box[2] // 2, box[1] + box[3] // 2)


def common(box: Box, view: Box) -> Box | None:
    """What two boxes share, None where that is nothing."""
    x, y = max(box[0], view[0]), max(box[1], view[1])
    w, h = min(box[0] + box[2], view[0] + view[2]) - x, min(box[1] + box[3], view[1] + view[3]) - y
    return (x, y, w, h) if w > 0 and h > 0 else None


def fills(item: Box, popup: Box) -> bool:
    """Whether an item is one of the menu in window `popup`: as wide as it, for shut menus keep their places."""
    narrower = popup[2] - item[2]
    return popup[0] <= item[0] and 0 <= narrower <= MENU_FRAME and inside(item, popup)


def under(x: int, y: int, popups: Iterable[Box]) -> bool:
    """Whether a point lies under a menu, a popup or a tool tip."""
    return any(holds(popup, x, y) for popup in popups)


def covered(x: int, y: int, window: int, windows: list[dict[str, Any]]) -> bool:
    """Whether another window that shows lies on a point of the window at index `window`."""
    if window < 0:
        return False
    stack = windows[window]["stack"]
    return any(
        row["stack"] > stack and not row["minimised"] and holds((row["x"], row["y"], row["w"], row["h"]), x, y)
        for row in windows
    )


def hidden(windows: list[dict[str, Any]]) -> set[int]:
    """Indexes of windows that show nothing: minimised, or wholly under another one."""
    found = {at for at, row in enumerate(windows) if row["minimised"]}
    for at, row in enumerate(windows):
        for other in windows:
            if other["stack"] <= row["stack"] or other["minimised"]:
                continue
            wide = other["x"] <= row["x"] and row["x"] + row["w"] <= other["x"] + other["w"]
            high = other["y"] <= row["y"] and row["y"] + row["h"] <= other["y"] + other["h"]
            if wide and high:
                found.add(at)
    return found


def held(windows: list[dict[str, Any]]) -> set[int]:
    """Indexes of windows that a modal dialog of their program keeps from being acted on."""
    return {
        at
        for at, row in enumerate(windows)
        for other in windows
        if other["stack"] > row["stack"] and not other["minimised"] and other["modal"] and other["pid"] == row["pid"]
    }
