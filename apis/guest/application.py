"""What the guest knows of an application that has functions.

Invariant: each folder here with a module `application` declares an application, and its functions lie beside that.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import NamedTuple


class Application(NamedTuple):
    """An application with functions. The packages of setup are in deploy/setup/*-packages.txt."""

    owner: str  # class of its functions
    title: str  # by which a model knows it
    classes: tuple[str, ...]  # of its windows, in lower case
    programs: tuple[str, ...] = ()  # what starts it
    office: bool = False  # the office runs its functions inside itself, with the document in front
    prepares: str = ""  # module whose `prepare` is called once, before anything is started
    late: bool = False  # it writes its files a while after a change, and has `keep`, which waits for that
    slow: bool = False  # its window shows before it can be used, and it has `ready`, which tells
    module: str = ""  # of its functions; found by its folder


def declared() -> tuple[Application, ...]:
    """The applications of all folders here."""
    here = Path(__file__).parent
    names = sorted(place.parent.name for place in here.glob("*/application.py"))
    modules = {name: importlib.import_module(f"guest.{name}.application") for name in names}
    return tuple(module.APPLICATION._replace(module=f"guest.{name}.functions") for name, module in modules.items())
