"""The applications a model can meet, under the names used everywhere else.

Invariant: an application is declared once, in its folder below `apis.applications`. Commands are argument lists; no
shell ever sees them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class App:
    """`name` is the project's; `wm_classes` are compared in lower case; `published` is what `Agent.open_app` takes.

    Of one that is `single`, a second start without a file shows nothing new.
    """

    name: str
    wm_classes: tuple[str, ...]
    published: str | None = None
    argv: tuple[str, ...] = ()
    optional: bool = False  # set-up does not install it
    single: bool = False


# Neither a first-start wizard, a splash screen nor the documents of a crash; the guest adds where it listens.
OFFICE = ("soffice", "--norestore", "--nologo", "--nofirststartwizard")

APPS: tuple[App, ...] = (
    App("text_editor", ("mousepad", "gedit", "featherpad"), "gedit", ("mousepad",)),
    App("file_manager", ("pcmanfm", "nautilus", "thunar"), "files", ("pcmanfm",)),
    App("terminal", ("xterm", "gnome-terminal-server", "uxterm"), "terminal", ("xterm",)),
    App("libreoffice_calc", ("libreoffice-calc",), "libreoffice calc", (*OFFICE, "--calc")),
    App("libreoffice_writer", ("libreoffice-writer",), "libreoffice writer", (*OFFICE, "--writer")),
    App("libreoffice_impress", ("libreoffice-impress",), "libreoffice impress", (*OFFICE, "--impress")),
    App("vlc", ("vlc",), "vlc", ("vlc",)),
    App("code", ("code", "codium"), "vs code", ("code",), optional=True, single=True),
    App("google_chrome", ("chromium-browser", "chromium", "google-chrome"), "chrome", ("chromium",)),
)

PROGRAMS = {app.argv[0] for app in APPS if app.argv} | {"libreoffice"}  # what opens a window when it is started
APP_NAMES = tuple(app.name for app in APPS)
# What else people call them: without the maker, as published, and by program.
ALIASES = {
    alias: app.name
    for app in APPS
    for alias in (
        app.name.removeprefix("libreoffice_").removeprefix("google_"),
        (app.published or app.name).replace(" ", "_"),
        *(app.argv[:1] if app.argv[:1] != OFFICE[:1] else ()),
    )
    if alias not in APP_NAMES
}
_BY_CLASS = {wm_class: app.name for app in APPS for wm_class in app.wm_classes}
_BY_PUBLISHED = {app.published: app for app in APPS if app.published}
_BY_NAME = {app.name: app for app in APPS}


def app_of_class(wm_class: str) -> str | None:
    """The application a window belongs to, or None for a window of no known one."""
    return _BY_CLASS.get(wm_class.lower())


def app_published(published: str) -> App | None:
    """The application published as `published`; None when there is none here."""
    return _BY_PUBLISHED.get(published)


def app_named(name: str) -> App:
    """Raises KeyError for a name not in `APP_NAMES`."""
    return _BY_NAME[name]
