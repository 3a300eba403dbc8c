"""What the guest's classes of an application offer, read from their source."""

from __future__ import annotations

import ast
from pathlib import Path

import apis.guest


def methods_of(prefix: str) -> dict[str, list[tuple[str, str]]]:
    """Public methods of the classes in guest modules called `prefix`..., with names and types of their arguments.

    Every argument is a keyword, annotated and without a default: defaults stand in the declaration only.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(Path(str(apis.guest.__file__)).parent.glob(f"{prefix}*.py")):
        classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        for method in (m for node in classes for m in node.body if isinstance(m, ast.FunctionDef)):
            if method.name.startswith("_"):
                continue
            assert method.name not in found
            assert [arg.arg for arg in method.args.args] == ["self"]
            assert not any(method.args.kw_defaults)
            given_as = [(a.arg, ast.unparse(a.annotation)) for a in method.args.kwonlyargs if a.annotation]
            assert len(given_as) == len(method.args.kwonlyargs)
            found[method.name] = given_as
    return found
