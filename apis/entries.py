"""What other installed packages bring: task families, applications and metrics, by entry points.

An entry point is used or refused by a line that names its package, itself and the reason. What it brings comes after
the program's own and replaces none of it. A package that is installed is trusted like the program itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, NoReturn

from runtime.errors import ConfigError

FAMILIES, APPLICATIONS, METRICS = GROUPS = (
    "computerrl.families", "computerrl.applications", "computerrl.metrics",
)  # fmt: skip


class Brought:
    """One entry point of another package."""

    def __init__(self, point: EntryPoint) -> None:
        self.name = point.name
        self.package = f"{point.dist.name} {point.dist.version}" if point.dist else "a package without a name"
        self._point = point

    def load(self) -> Any:
        """What it names. Raises ConfigError."""
        try:
            return self._point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the package's own code: whatever it raises is said as its fault
            self.refuse(f"can't be loaded: {type(error).__name__}: {error}", error)

    def module(self, name: str) -> ModuleType:
        """A module of the package. Raises ConfigError."""
        try:
            return import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            self.refuse(f"{name} can't be loaded: {type(error).__name__}: {error}", error)

    def refuse(self, why: str, error: BaseException | None = None) -> NoReturn:
        """Raise ConfigError: `why` it can't be used."""
        where = f"package {self.package}, entry point {self._point.group}: {self.name} = {self._point.value}"
        raise ConfigError(f"{where}: {' '.join(why.split())}; mend or uninstall the package") from error

    def checked(self, brought: Any, kind: type, taken: Container[str], name: str) -> None:
        """Refuse `brought` where it is no `kind`, is not called as the entry point, or its name is `taken`."""
        if not isinstance(brought, kind):
            self.refuse(f"it is a {type(brought).__name__}, and no {kind.__module__}.{kind.__name__}")
        if getattr(brought, name) in taken:
            self.refuse(f"there is a {kind.__name__} {getattr(brought, name)} already: give it another name")


@lru_cache(maxsize=1)
def _all() -> tuple[EntryPoint, ...]:
    """Of all three groups, in an order that does not depend on where packages lie."""
    points = [point for group in GROUPS for point in entry_points(group=group)]
    return tuple(sorted(points, key=lambda point: (point.dist.name if point.dist else "", point.name)))


def brought(group: str) -> Iterator[Brought]:
    """The entry points of one of `GROUPS`, by package and name."""
    return (Brought(point) for point in _all() if point.group == group)


def declaring(package: ModuleType, name: str) -> Iterator[ModuleType]:
    """The modules below `package`, at any depth and by their names, that declare `name`."""
    for module_name in sorted(each.name for each in walk_packages(package.__path__, f"{package.__name__}.")):
        module = import_module(module_name)
        if hasattr(module, name):
            yield module
