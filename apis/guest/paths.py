"""Files below HOME, as the functions of applications are given them.

Invariant: a path that leads out of HOME, by its words or by a link, is refused with the argument's name.
"""

from __future__ import annotations

import os
import stat
from urllib.parse import quote, unquote

from guest.errors import Refused

FILES, FOLDERS = 2000, 500  # that are looked at for their endings


def wrong(text: str) -> Refused:
    """A refusal that the model reads: the argument's name and what would be right."""
    return Refused("tool_failed", text)


def home() -> str:
    """The user's folder, without links in its path."""
    return os.path.realpath(os.environ["HOME"])


def _inside(full: str) -> bool:
    return full == home() or full.startswith(home() + os.sep)


def in_home(path: str, argument: str) -> str:
    """The absolute path of a file below HOME whose folder exists; links that lead out are refused."""
    full = os.path.join(home(), os.path.expanduser(path))
    folder = os.path.realpath(os.path.dirname(full))
    if not _inside(folder):
        raise wrong(f"{argument}: the file lies outside the home folder: write a path like ~/Documents/name")
    if not os.path.isdir(folder):
        raise wrong(f"{argument}: there is no folder {os.path.dirname(path)[:80]}")
    full = os.path.join(folder, os.path.basename(full))
    if os.path.lexists(full) and not stat.S_ISREG(os.lstat(full).st_mode):  # a pipe would be waited for
        raise wrong(f"{argument}: {os.path.basename(full)[:80]} is no regular file")
    return full


def there_in_home(path: str, argument: str) -> str:
    """The absolute path of a file below HOME that can be read."""
    full = in_home(path, argument)
    if not os.path.isfile(full):
        raise wrong(f"{argument}: there is no file {path[:80]}")
    if not os.access(full, os.R_OK):
        raise wrong(f"{argument}: {os.path.basename(full)[:80]} may not be read")
    return full


def to_write(path: str, argument: str) -> str:
    """The absolute path of a file below HOME that can be made there, or written over."""
    full = in_home(path, argument)
    there = [full] if os.path.lexists(full) else []
    if not all(os.access(each, os.W_OK) for each in (os.path.dirname(full), *there)):
        raise wrong(f"{argument}: {os.path.basename(full)[:80]} may not be written there: choose another folder")
    return full


def below_home(path: str, argument: str) -> str:
    """The absolute path of a folder below HOME, or of HOME itself; it may be gone."""
    full = os.path.realpath(os.path.join(home(), os.path.expanduser(path)))
    if not _inside(full):
        raise wrong(f"{argument}: the folder lies outside the home folder: write a path like ~/Music")
    return full


def folder_in_home(path: str, argument: str) -> str:
    """The absolute path of a folder below HOME that is there, or of HOME itself."""
    full = below_home(path, argument)
    if not os.path.isdir(full):
        raise wrong(f"{argument}: there is no folder {path[:80]}")
    return full


def any_in_home(path: str, argument: str) -> str:
    """The absolute path of a file or folder below HOME, or to be made there."""
    full = os.path.realpath(os.path.join(home(), os.path.expanduser(path)))
    return full if os.path.isdir(full) and _inside(full) else in_home(path, argument)


def url_of(path: str) -> str:
    """A file's URL."""
    return "file://" + quote(path)


def path_of(place: str) -> str:
    """The path in a file's URL; any other text is a path already, whose % and digits are its own."""
    rest = place.removeprefix("file://")
    return place if rest == place else unquote(rest.removeprefix("localhost"))


def short(path: str) -> str:
    """A path below HOME as a model writes it: ~/Music/a.mp3."""
    return "~" + path.removeprefix(home()) if _inside(path) else path


def with_endings(folder: str, wanted: set[str]) -> tuple[list[str], bool]:
    """Paths with these endings, in order, and whether there was too much to look at; links are not followed."""
    found: list[str] = []
    left = FILES
    for number, (above, folders, names) in enumerate(os.walk(folder)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if number >= FOLDERS:
            return found, True
        looked = sorted(names)[:left]
        found += [os.path.join(above, n) for n in looked if n.rpartition(".")[2].lower() in wanted and "." in n]
        left -= len(names)
        if left < 0:
            return found, True
    return found, False
