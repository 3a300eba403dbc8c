"""Packages of pictures and GPUs that SGLang imports while serving text on a CPU.

Invariant: a name of an absent package can be imported, and fails with its own name once it is called. Only packages
that are not installed are stood in for, and a package's own look for its optional parts (dunder names) finds nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

# Its wheel for CPUs registers operators that this torch does not have, and text models use none of it.
ABSENT = frozenset({"torchvision"})


class _Words(type):
    """A class whose attributes are their own names: enumerations are read while modules are imported."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def missing(name: str) -> Callable[..., Any]:
    """A function that says that it is not there. Calling it raises NotImplementedError."""

    def absent(*_: object, **__: object) -> Any:
        raise NotImplementedError(f"{name} is not installed: this environment serves text on a CPU")

    absent.__name__ = name.rpartition(".")[2]
    return absent


class Hollow(ModuleType):
    """A module of which every name can be imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = missing(f"{self.__name__}.{name}")
        if name[0].isupper():
            made = _Words(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages in `ABSENT` and everything below them, after all other finders have found nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A hollow module's, or None."""
        if fullname.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A hollow module."""
        module = Hollow(spec.name)
        module.__path__ = []
        module.__file__ = __file__
        vars(module)["__version__"] = "0.0.0"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """Add the finder, once."""
    if not any(isinstance(found, Finder) for found in sys.meta_path):
        sys.meta_path.append(Finder())
