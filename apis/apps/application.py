"""The applications, as the host knows them: the program's own in the table below, then those of other packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from apis import entries

# Neither a first-start wizard, a splash screen nor the documents of a crash; the guest adds where it listens.
OFFICE = ("soffice", "--norestore", "--nologo", "--nofirststartwizard")
GUEST = Path(__file__).resolve().parents[1] / "guest"


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


def _office(kind: str, opens: tuple[str, ...]) -> App:
    return App(
        f"libreoffice_{kind}",
        (f"libreoffice-{kind}",),
        f"libreoffice {kind}",
        (*OFFICE, f"--{kind}"),
        opens=opens,
        program="soffice",
        packages="office-packages.txt",
    )


# By the name of the YAML file here and of the folder in `apis/guest` that have its functions. Lists keep this order.
OWN: dict[str, App] = {
    "text_editor": App("text_editor", ("mousepad", "gedit", "featherpad"), "gedit", ("mousepad",)),
    "file_manager": App("file_manager", ("pcmanfm", "nautilus", "thunar"), "files", ("pcmanfm",)),
    "terminal": App("terminal", ("xterm", "gnome-terminal-server", "uxterm"), "terminal", ("xterm",)),
    "calc": _office("calc", ("xlsx", "xls", "ods", "csv")),
    "writer": _office("writer", ("docx", "doc", "odt")),
    "impress": _office("impress", ("pptx", "ppt", "odp")),
    "vlc": App("vlc", ("vlc",), "vlc", ("vlc",), program="vlc", packages="vlc-packages.txt"),
    "code": App(  # its window is one of Chromium's
        "code",
        ("code", "codium"),
        "vs code",
        ("code",),
        optional=True,
        single=True,
        program="chromium",
        packages="chromium-packages.txt",
    ),
    "gimp": App(
        "gimp",
        ("gimp", "gimp-2.10"),
        "gimp",
        ("gimp", "--no-splash", "--batch", '(plug-in-script-fu-server RUN-NONINTERACTIVE "127.0.0.1" 10008 "")'),
        optional=True,
        program="gimp",
        packages="osworld.txt",
    ),
    "chromium": App(
        "google_chrome",
        ("chromium-browser", "chromium", "google-chrome"),
        "chrome",
        ("chromium",),
        late=True,
        program="chromium",
        packages="chromium-packages.txt",
    ),
}


def declared() -> dict[str, App]:
    """Every application by its folder's name. Raises ConfigError for one of another package that can't be used."""
    return OWN | {name: place.module(f"{package.__name__}.app").APP for name, place, package in _brought()}


def modules_brought(part: str) -> Iterator[tuple[str, ModuleType]]:
    """The modules `functions` or `ranking` of other packages' applications, each with its application's name."""
    for name, place, package in _brought():
        if find_spec(f"{package.__name__}.{part}"):
            yield name, place.module(f"{package.__name__}.{part}")


def folders_brought(part: str) -> Iterator[tuple[str, Path]]:
    """The files or folders called `part` in other packages' applications, each with its application's name.

    A folder `guest` belongs into `guest` on a desktop; ConfigError for a name that is taken there.
    """
    for name, place, package in _brought():
        there = Path(package.__path__[0], part)
        if part == "guest" and there.exists() and ((GUEST / name).exists() or not name.isidentifier()):
            place.refuse(f"guest.{name} is taken, or can't be a package's name: name the entry point otherwise")
        if there.exists():
            yield name, there


def _brought() -> Iterator[tuple[str, entries.Brought, ModuleType]]:
    """Other packages' applications: name, entry point and package. Raises ConfigError."""
    for place in entries.brought(entries.APPLICATIONS):
        package = place.load()
        if not isinstance(package, ModuleType) or not hasattr(package, "__path__"):
            place.refuse("it is no package with a module `app`")
        yield place.name, place, package
