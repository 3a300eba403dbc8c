"""Finds the modules of a package by the folders that it lies in.

Invariant: only names of files there are imported. No text of a model, a task or a desktop reaches an import.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType


def declaring(package: ModuleType, name: str) -> Iterator[ModuleType]:
    """The modules below `package`, at any depth, that declare `name`; in the order of their names."""
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        if hasattr(module, name):
            yield module
