"""The applications a model can meet: the program's own in the table below, then those of other packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from apis import built, entries

# Neither a first-start wizard, a splash screen nor the documents of a crash; the guest adds where it listens.
OFFICE = ("soffice", "--norestore", "--nologo", "--nofirststartwizard")
GUEST = Path(__file__).resolve().parent / "guest"
CANVAS = "canvas"  # the guest's own window that shows a picture, and keeps where it was clicked


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
    # No suite's `all` has its tasks: a policy that reads text can't do them.
    "canvas": App(CANVAS, (CANVAS,), argv=(CANVAS,), optional=True),
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


_LEFT_OUT = {".md", ".pyc"}


def guest_files() -> dict[str, Path]:
    """Path below `guest` on a desktop -> the file here. Raises ConfigError for an application that can't be used."""
    places = [("", GUEST), *((f"{name}/", place) for name, place in folders_brought("guest"))]
    own = {
        f"{prefix}{path.relative_to(place)}": path
        for prefix, place in places
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.suffix not in _LEFT_OUT
    }
    return own | built.guest_files()


BY_FOLDER: dict[str, App] = {}
APPS: list[App] = []
APP_NAMES: list[str] = []
PROGRAMS = {"libreoffice"}  # what opens a window when it is started
ALIASES: dict[str, str] = {}  # what else people call them: without the maker, as published, and by program
OPENS: dict[str, str] = {}  # the application of a file by its name's ending
_BY_CLASS: dict[str, str] = {}
_BY_PUBLISHED: dict[str, App] = {}
_BY_NAME: dict[str, App] = {}


def bring(folder: str, app: App) -> None:
    """Have an application from here on; its tables are the same objects to all who read them."""
    BY_FOLDER[folder] = _BY_NAME[app.name] = app
    APPS.append(app)
    APP_NAMES.append(app.name)
    short = app.name.removeprefix("libreoffice_").removeprefix("google_")
    program = () if app.argv[:1] == OFFICE[:1] else app.argv[:1]
    ALIASES.update(dict.fromkeys((short, (app.published or app.name).replace(" ", "_"), *program), app.name))
    ALIASES.pop(app.name, None)
    PROGRAMS.update(app.argv[:1])
    OPENS.update(dict.fromkeys(app.opens, app.name))
    _BY_CLASS.update({each: app.name for each in app.wm_classes if each not in _BY_CLASS})
    if app.published:
        _BY_PUBLISHED.setdefault(app.published, app)


def bring_built(name: str, argv: Sequence[str], windows: Sequence[str]) -> None:
    """Have the application that a built folder or a profile declares, where it is not here."""
    if argv and windows and name not in _BY_NAME:
        bring(name, App(name, tuple(windows), name, tuple(argv), optional=True, program=argv[0]))


for _folder, _app in declared().items():
    bring(_folder, _app)
for _api in built.folders().values():
    bring_built(_api.app, _api.argv, _api.windows)


def app_of_class(wm_class: str) -> str | None:
    """The application a window belongs to, or None for a window of no known one."""
    return _BY_CLASS.get(wm_class.lower())


def app_published(published: str) -> App | None:
    """The application published as `published`; None when there is none here."""
    return _BY_PUBLISHED.get(published)


def app_named(name: str) -> App:
    """Raises KeyError for a name not in `APP_NAMES`."""
    return _BY_NAME[name]
