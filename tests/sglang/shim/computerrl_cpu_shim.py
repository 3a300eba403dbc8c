"""Packages of pictures and GPUs that SGLang imports while serving text on a CPU, and two corrections.

Invariant: a name of an absent package can be imported, and fails with its own name once it is called. Only packages
that are not installed get a stand-in. A package's own look for its optional parts (dunder names) finds nothing.
"""

from __future__ import annotations

import functools
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


# On a CPU SGLang notes how many heads a model had before it was cut for tensor parallelism, also where nothing is cut,
# and then takes heads to be as wide as the hidden size allows. A model whose config names another width can't be
# loaded so; with one rank nothing needs to be noted.
CORRECTED, CUTTING = "sglang.srt.configs.update_config", "adjust_config_with_unaligned_cpu_tp"


class Corrected(importlib.machinery.SourceFileLoader):
    """Loads the module as it is, then leaves the models of one rank alone."""

    def exec_module(self, module: ModuleType) -> None:
        """Run it and replace the one function."""
        super().exec_module(module)
        cut = getattr(module, CUTTING)

        @functools.wraps(cut)
        def unless_whole(model_config: Any, load_config: Any, tp_size: int) -> Any:
            return model_config if tp_size == 1 else cut(model_config, load_config, tp_size)

        setattr(module, CUTTING, unless_whole)


# Its adapters put their tables into pinned memory, which a torch without accelerators refuses to make.
PINNED = "sglang.srt.lora.layers"


class Unpinned(importlib.machinery.SourceFileLoader):
    """Loads the module after torch has learned to do without pinned memory."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace torch's functions, and run it."""
        torch = sys.modules["torch"]
        for name in ("tensor", "empty", "zeros", "ones"):
            setattr(torch, name, _without_pin(getattr(torch, name)))
        torch.Tensor.pin_memory = lambda tensor, *_: tensor
        super().exec_module(module)


def _without_pin(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **named: Any) -> Any:
        named.pop("pin_memory", None)
        return make(*args, **named)

    return made


# It looks up kernels when it is imported, and without them the pictures of all Qwen models go the same way.
LOOKS_UP = "sglang.srt.models.qwen3_5"


class LooksUp(importlib.machinery.SourceFileLoader):
    """Loads the module where each kernel has a name, and no more."""

    def exec_module(self, module: ModuleType) -> None:
        """Run it. Elsewhere a kernel that is looked for is still missing."""
        operators = sys.modules["torch"].ops
        kernels = operators.sgl_kernel
        operators.sgl_kernel = Hollow("torch.ops.sgl_kernel")
        try:
            super().exec_module(module)
        finally:
            operators.sgl_kernel = kernels


class Corrector(importlib.abc.MetaPathFinder):
    """Finds the module to be corrected, before all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Its own spec with another loader, or None."""
        loader = {CORRECTED: Corrected, PINNED: Unpinned, LOOKS_UP: LooksUp}.get(fullname)
        if loader is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = loader(fullname, spec.origin)
        return spec


def install() -> None:
    """Add the finders, once."""
    if not any(isinstance(found, Finder) for found in sys.meta_path):
        sys.meta_path.append(Finder())
        sys.meta_path.insert(0, Corrector())
