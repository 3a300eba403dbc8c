"""Checks of single arguments: an `ast` node becomes a bounded value of its parameter's kind.

The kinds here refer to what is on the screen. `apis.functions.values` has the kinds of plain values.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple

from apis.functions.declaration import Param
from apis.functions.values import NOT_LITERAL, Unfit, fit

Unit = Literal["pixels", "thousandths"]
WHOLE = 1000  # thousandths of a side of the screen
MEANING: Mapping[Unit, str] = {
    "pixels": "in screen pixels",
    "thousandths": f"from 0 to {WHOLE} across and down the screen",
}
MAX_KEYS = 4
# What a model may press; the guest knows these names.
_WORDS = """ctrl control alt shift super win command enter return tab esc escape space backspace delete del insert home
    end pageup pgup pagedown pgdn up down left right menu printscreen capslock"""
KEYS = (*_WORDS.split(), *"+-=,./\\;'`[]", *(f"f{n}" for n in range(1, 13)), *string.ascii_lowercase, *string.digits)
_ELEMENT = re.compile(r"e[1-9]\d{0,3}", re.ASCII)
_WINDOW = re.compile(r"w[1-9]\d?|0x[0-9a-f]{1,8}", re.ASCII)
Names = Collection[str] | None


class Shown(NamedTuple):
    """What an answer may refer to: elements and windows by name (None: any well-formed one), and places."""

    elements: Names
    windows: Names
    screen: tuple[int, int]  # pixels
    unit: Unit = "pixels"  # of places


def check(param: Param, node: ast.expr, shown: Shown) -> Any:
    """The value of `node` as `param` wants it. Raises Unfit with a line that names the parameter and what is right."""
    if not param.required and param.default is None and isinstance(node, ast.Constant) and node.value is None:
        return None
    seen = _CHECKS.get(param.kind)
    if seen is not None:
        return seen(param, node, shown)
    return fit(param, _plain(node))


def _constant(node: ast.expr) -> Any:
    """The literal's value; the node itself, which is of no literal type, when it is none."""
    return node.value if isinstance(node, ast.Constant) else node


def _plain(node: ast.expr) -> Any:
    """A literal, a negative number, or a flat list or dict of those as a value; NOT_LITERAL for anything else."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_flat(part) for part in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_constant(key) if key else NOT_LITERAL: _flat(part) for key, part in pairs}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else NOT_LITERAL
    return node.value if isinstance(node, ast.Constant) else NOT_LITERAL


def _flat(node: ast.expr) -> Any:
    return NOT_LITERAL if isinstance(node, ast.List | ast.Tuple | ast.Dict) else _plain(node)


def _whole(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _whole(node.operand)
        return None if inner is None else -inner
    value = _constant(node)
    return value if type(value) is int else None


def _place(param: Param, node: ast.expr, shown: Shown) -> tuple[int, int] | str:
    name = node.id if isinstance(node, ast.Name) else _constant(node)
    if isinstance(name, str):
        if not _ELEMENT.fullmatch(name):
            raise Unfit(f"{param.name}: write [x, y] or an element like e3, not {name[:20]!r}")
        if shown.elements is not None and name not in shown.elements:
            raise Unfit(f"{param.name}: there is no element {name} on the screen")
        return name
    if not isinstance(node, ast.List | ast.Tuple) or len(node.elts) != 2:
        raise Unfit(f"{param.name}: write [x, y] or an element like e3")
    x, y = (_whole(part) for part in node.elts)
    if x is None or y is None:
        raise Unfit(f"{param.name}: x and y are whole numbers")
    width, height = shown.screen
    if shown.unit == "thousandths":
        if not (0 <= x <= WHOLE and 0 <= y <= WHOLE):
            raise Unfit(f"{param.name}: x and y are from 0 to {WHOLE}")
        return pixel(x, width), pixel(y, height)
    if not (0 <= x < width and 0 <= y < height):
        raise Unfit(f"{param.name}: the place lies outside the screen of {width}x{height}")
    return x, y


def _keys(param: Param, node: ast.expr, _: Shown) -> tuple[str, ...]:
    if not isinstance(node, ast.List | ast.Tuple) or not 1 <= len(node.elts) <= MAX_KEYS:
        raise Unfit(f"{param.name}: write a list of one to {MAX_KEYS} keys like ['ctrl', 's']")
    keys = []
    for part in node.elts:
        value = _constant(part)
        if not isinstance(value, str) or value.lower() not in KEYS:
            shown = value[:20] if isinstance(value, str) else "that"
            raise Unfit(f"{param.name}: {shown!r} is no key; use names like 'ctrl', 'enter', 'f2' or 'a'")
        keys.append(value.lower())
    return tuple(keys)


def _window(param: Param, node: ast.expr, shown: Shown) -> str:
    value = node.id if isinstance(node, ast.Name) else _constant(node)
    if not isinstance(value, str) or not _WINDOW.fullmatch(value):
        raise Unfit(f"{param.name}: write a window id as listed, like w2")
    if shown.windows is not None and value not in shown.windows:
        raise Unfit(f"{param.name}: there is no window {value}")
    return value


def pixel(thousandths: int, side: int) -> int:
    """The pixel of a side of `side` pixels that 0 to `WHOLE` thousandths of it mean; both ends are on the screen."""
    return (thousandths * (side - 1) + WHOLE // 2) // WHOLE


def counted(pixels: int, side: int, unit: Unit) -> int:
    """`pixels` along a side of `side` pixels in `unit`, as a model reads it; what lies outside is put at the edge."""
    if unit == "pixels":
        return pixels
    return min(max((pixels * WHOLE + (side - 1) // 2) // (side - 1), 0), WHOLE)


_CHECKS: dict[str, Callable[[Param, ast.expr, Shown], Any]] = {"place": _place, "keys": _keys, "window": _window}
