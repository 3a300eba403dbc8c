"""Lines of pyautogui, as task files have them, translated to the agent's calls.

Invariant: a line is read with `ast` and never evaluated. Only literal calls of the functions below are translated; any
other line is refused as a whole.
"""

from __future__ import annotations

import ast
from typing import Any

from apis.functions.keys import KEYS
from apis.observation import SCREEN
from apis.plans.action import BRIEFLY, SETTLE, Call
from apis.tasksets.needs import Lacking

PUBLISHED_W, PUBLISHED_H = 1920, 1080  # the screen that literal places in task files are meant for
PLACES = {
    "{SCREEN_WIDTH_HALF}": str(PUBLISHED_W // 2),
    "{SCREEN_HEIGHT_HALF}": str(PUBLISHED_H // 2),
    "{SCREEN_WIDTH}": str(PUBLISHED_W),
    "{SCREEN_HEIGHT}": str(PUBLISHED_H),
}
PRESSES_MAX = 200
TYPED_MAX = 500  # characters of one call
TERMINAL_KEYS = ["ctrl", "alt", "t"]  # what opens a terminal on the published desktop


def is_snippet(code: str) -> bool:
    """Whether `code` drives pyautogui."""
    return "pyautogui" in code


def translated(code: str, screen: tuple[int, int] = SCREEN) -> list[Call]:
    """The calls that do what `code` does on a `screen` of that size. Raises Lacking for anything but literal calls."""
    for name, value in PLACES.items():
        code = code.replace(name, value)
    try:
        body = ast.parse(code.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Lacking("step", "a pyautogui line that can't be read") from None
    calls: list[Call] = []
    pointer = Pointer(screen)
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            raise Lacking("step", f"pyautogui: {ast.unparse(statement)[:60]}")
        calls += _call(statement.value, pointer)
    if pointer.pressed is not None:
        raise Lacking("step", "pyautogui: a mouse button that is pressed and not let go")
    return calls


class Pointer:
    """Where a line has moved the pointer, in the middle of the screen at first, and where it pressed a button."""

    def __init__(self, screen: tuple[int, int]) -> None:
        self.screen = screen
        self.at = screen[0] // 2, screen[1] // 2
        self.pressed: tuple[int, int] | None = None

    def moved(self, args: list[Any], named: dict[str, Any]) -> tuple[int, int]:
        """The place that a call names on the published screen, on this one; where it names none, the pointer's."""
        if args or "x" in named:
            x, y = (args[0], args[1]) if len(args) > 1 else (named["x"], named["y"])
            places = zip((x, y), self.screen, (PUBLISHED_W, PUBLISHED_H), strict=True)
            width, height = (min(most - 1, max(0, round(value * most / of))) for value, most, of in places)
            self.at = width, height
        return self.at


def _call(node: ast.Call, pointer: Pointer) -> list[Call]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    try:
        args = [ast.literal_eval(arg) for arg in node.args]
        named = {word.arg or "": ast.literal_eval(word.value) for word in node.keywords}
        return _done(name, args, named, pointer)
    except (ValueError, TypeError, KeyError, IndexError):
        raise Lacking("step", f"pyautogui: {ast.unparse(node)[:60]}") from None


def _done(name: str, args: list[Any], named: dict[str, Any], pointer: Pointer) -> list[Call]:
    match name:
        case "sleep":
            return [SETTLE]
        case "hotkey":
            keys = [key.lower() for key in (args[0] if isinstance(args[0], list | tuple) else args)]
            if keys == TERMINAL_KEYS:
                return [Call("open_window", {"argv": ["xterm"], "timeout_ms": 10_000}), SETTLE]
            return [_keys(keys), SETTLE]
        case "press":
            listed = args[0] if isinstance(args[0], list) else [args[0]]
            times = int(named.get("presses", args[1] if len(args) > 1 else 1))
            if not 0 <= times <= PRESSES_MAX:
                raise ValueError(times)
            return [call for _ in range(times) for key in listed for call in (_keys([key]), BRIEFLY)]
        case "write" | "typewrite":
            text = args[0] if args else named["message"]
            if isinstance(text, list):
                return [call for key in text for call in (_keys([key]), BRIEFLY)]
            parts = [text[at : at + TYPED_MAX] for at in range(0, len(text), TYPED_MAX)]
            return [*(Call("type_text", {"text": part}) for part in parts), SETTLE]
        case "click" | "doubleClick" | "rightClick" | "middleClick" | "tripleClick":
            x, y = pointer.moved(args, named)
            times = {"doubleClick": 2, "tripleClick": 3}.get(name, int(named.get("clicks", 1)))
            button = {"rightClick": "right", "middleClick": "middle"}.get(name, named.get("button", "left"))
            number = {"left": 1, "middle": 2, "right": 3}[button]
            return [Call("click", {"x": x, "y": y, "button": number, "n": times}), SETTLE]
        case "moveTo":
            x, y = pointer.moved(args, named)
            return [Call("move", {"x": x, "y": y})] if pointer.pressed is None else []
        case "mouseDown":
            pointer.pressed = pointer.moved(args, named)
            return []
        case "mouseUp" if pointer.pressed is not None:
            (x, y), pointer.pressed = pointer.pressed, None
            x2, y2 = pointer.moved(args, named)
            if (x, y) == (x2, y2):
                return [Call("click", {"x": x, "y": y, "button": 1, "n": 1}), SETTLE]
            return [Call("drag", {"x": x, "y": y, "x2": x2, "y2": y2}), SETTLE]
        case "scroll":
            x, y = pointer.at
            return [Call("scroll", {"x": x, "y": y, "dy": -int(args[0] if args else named["clicks"])}), SETTLE]
    raise ValueError(name)


def _keys(names: list[str]) -> Call:
    return Call("hotkey", {"keys": [KEYS[name.lower()] for name in names]})
