"""The applications a model can meet, under the names used everywhere else."""

from __future__ import annotations

from apis.apps.application import OFFICE, App, declared

BY_FOLDER = declared()
APPS = tuple(BY_FOLDER.values())

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
OPENS = {ending: app.name for app in APPS for ending in app.opens}  # the application of a file by its name's ending
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
