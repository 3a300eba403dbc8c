"""What the host knows of an application.

Invariant: commands are argument lists; no shell ever sees them.
"""

from __future__ import annotations

from dataclasses import dataclass

# Neither a first-start wizard, a splash screen nor the documents of a crash; the guest adds where it listens.
OFFICE = ("soffice", "--norestore", "--nologo", "--nofirststartwizard")


@dataclass(frozen=True)
class App:
    """`name` is the project's; `wm_classes` are compared in lower case; `published` is what `Agent.open_app` takes.

    A second start of a `single` application without a file shows nothing new.
    """

    name: str
    wm_classes: tuple[str, ...]
    published: str | None = None
    argv: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()  # ends of the names of files that it opens for a set-up
    optional: bool = False  # set-up does not install it
    single: bool = False
    late: bool = False  # it writes what was changed a while later; an episode's end waits for that
    program: str = ""  # in /usr/bin, which a task on it needs; "": every desktop has it
    packages: str = ""  # the list in deploy/setup that has the program
