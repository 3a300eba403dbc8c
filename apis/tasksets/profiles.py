"""What the browser's profile says of its settings, in the form of the published getters.

Invariant: what the policy may have written is taken for JSON of any shape: a value that is not there is the browser's
default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from apis.tasks.metrics.metric import UnreadableResult, document
from apis.tasks.osworld import HOME, Getter
from apis.tasks.verify.verify import FileView, Read

PROFILE = ".config/chromium"
PREFERENCES = f"{PROFILE}/Default/Preferences"
SECURE = f"{PROFILE}/Default/Secure Preferences"  # where extensions stand
LOCAL_STATE = f"{PROFILE}/Local State"
# Databases: the file, the table, and which of its columns a metric is given.
DATABASES = {
    "cookie_data": ("Cookies", "cookies", ("name", "host_key")),
    "history": ("History", "urls", ("url", "title", "last_visit_time")),
}


def files_of(kind: str) -> list[str]:
    """Paths below HOME that the getter `kind` reads; none where it is no getter of the profile."""
    if kind in DATABASES:
        return [f"{PROFILE}/Default/{DATABASES[kind][0]}"]
    return list(_SETTINGS[kind][0]) if kind in _SETTINGS else []


def value_of(getter: Getter, read: Read) -> Any:
    """The value of a getter of the profile."""
    kind = str(getter["type"])
    if kind in DATABASES:
        return _rows(read(files_of(kind)[0]), *DATABASES[kind][1:])
    paths, found = _SETTINGS[kind]
    return found(*(_json(read(path)) for path in paths))


def _rows(view: FileView, table: str, columns: tuple[str, ...]) -> Any:
    """Rows of a table; None where there is no such."""
    try:
        return document(view, "database").rows(table, *columns)
    except UnreadableResult:
        return None


def _json(view: FileView) -> dict[str, Any]:
    """The object that a file holds; an empty one for anything else."""
    try:
        found = json.loads(view.data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _yes(value: Any) -> str:
    return "true" if value is True else "false"


def _extensions(*files: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the profile says of each extension that was added to it."""
    for file in files:
        listed = _at(file, "extensions", "settings")
        yield from (one for one in (listed.values() if isinstance(listed, dict) else ()) if isinstance(one, dict))


def _paths(*files: dict[str, Any]) -> list[str]:
    """Where extensions lie, with the published HOME in place of the guest's."""
    paths = [str(one["path"]) for one in _extensions(*files) if isinstance(one.get("path"), str)]
    return [f"{HOME}/{path.split('/', 3)[3]}" if path.count("/") > 2 and path.startswith("/home/") else path
            for path in paths]  # fmt: skip


def _names(*files: dict[str, Any]) -> list[str]:
    names = [_at(one, "manifest", "name") for one in _extensions(*files)]
    return [name for name in names if isinstance(name, str)]


_Setting = tuple[tuple[str, ...], Callable[..., Any]]  # the files, and what they say
_SETTINGS: dict[str, _Setting] = {
    "bookmarks": ((f"{PROFILE}/Default/Bookmarks",), lambda p: p.get("roots", {})),
    "chrome_font_size": ((PREFERENCES,), lambda p: _at(p, "webkit", "webprefs") or {"default_font_size": 16}),
    "chrome_language": ((LOCAL_STATE,), lambda p: _at(p, "intl", "app_locale") or "en-US"),
    "data_delete_automacally": (
        (PREFERENCES,),
        lambda p: _yes(_at(p, "profile", "default_content_setting_values") is not None),
    ),
    "default_search_engine": (
        (PREFERENCES,),
        lambda p: _at(p, "default_search_provider_data", "template_url_data", "short_name") or "Google",
    ),
    "enable_do_not_track": ((PREFERENCES,), lambda p: _yes(_at(p, "enable_do_not_track"))),
    "enable_enhanced_safety_browsing": ((PREFERENCES,), lambda p: _yes(_at(p, "safebrowsing", "enhanced"))),
    "enable_safe_browsing": ((PREFERENCES,), lambda p: _yes(_at(p, "safebrowsing", "enabled"))),
    "enabled_experiments": ((LOCAL_STATE,), lambda p: _at(p, "browser", "enabled_labs_experiments") or []),
    "find_installed_extension_name": ((PREFERENCES, SECURE), _names),
    "find_unpacked_extension_path": ((PREFERENCES, SECURE), _paths),
    "new_startup_page": (
        (PREFERENCES,),
        lambda p: _yes(_at(p, "session", "restore_on_startup") in (None, 5)),
    ),
    "profile_name": ((PREFERENCES,), lambda p: _at(p, "profile", "name")),
}
KNOWN = {*DATABASES, *_SETTINGS}
