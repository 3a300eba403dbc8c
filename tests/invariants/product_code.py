"""The product's source as syntax trees, for the invariants that are held by reading the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("runtime", "policy", "apis", "actors")
GUEST = ROOT / "apis" / "guest"  # runs inside the desktop, under another Python


@cache
def sources() -> tuple[Path, ...]:
    """All Python files of the product that run on the host."""
    found = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple(path for path in found if GUEST not in path.parents)


@cache
def naming(*words: str) -> list[Path]:
    """Of all sources, what holds one of `words`: no other file needs to be parsed by a test that looks for them."""
    return [path for path in sources() if any(word in path.read_text() for word in words)]


@cache
def tree_of(path: Path) -> ast.Module:
    """The file's syntax tree; every node knows its `parent`."""
    tree = ast.parse(path.read_text(), str(path))
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    return tree


def module_name(path: Path) -> str:
    """`runtime.hosts.child` for its file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ancestors(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes around `node`, innermost first."""
    while (parent := getattr(node, "parent", None)) is not None:
        yield parent
        node = parent


def place(path: Path, node: ast.AST) -> str:
    """`runtime/messaging/node.py:Node.ask` for messages and lists of exceptions."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [a.name for a in ancestors(node) if isinstance(a, kinds)]
    return f"{path.relative_to(ROOT)}:{'.'.join(reversed(names))}"


def called(call: ast.Call) -> str:
    """The last part of what is called: `wait` for `asyncio.wait(...)` and for `event.wait()`."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
