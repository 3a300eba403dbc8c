"""Finds the modules of a package that declare something.

Only names of files there are imported. No text of a model, a task or a desktop reaches an import. What
`order` does not name comes last, by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType


def declaring(package: ModuleType, name: str, order: Sequence[str]) -> Iterator[ModuleType]:
    """The modules below `package`, at any depth, that declare `name`."""
    names = [found.name for found in walk_packages(package.__path__, f"{package.__name__}.")]
    for found in _ordered(names, order):
        module = import_module(found)
        if hasattr(module, name):
            yield module


def _ordered(names: Sequence[str], order: Sequence[str]) -> list[str]:
    last = {name: name.rpartition(".")[2] for name in names}
    return sorted(names, key=lambda name: (order.index(last[name]) if last[name] in order else len(order), name))
