"""Files of HOME: for the set-up of a task, and as the functions of applications are given them.

Invariant: nothing outside HOME is read or written. A path that leads out of it, by its words or by a link, is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from guest import Refused

FILE_MAX_BYTES = 4 << 20


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts:
        raise Refused("bad_path", "a path is relative to HOME")
    return pure.parts


def _folder(parts: tuple[str, ...], make: bool) -> int:
    """A descriptor of HOME/parts, each component opened without following a link."""
    folder = os.open(os.environ["HOME"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            raise Refused("bad_path", f"{part[:200]}: {error.strerror}") from error
        finally:
            os.close(folder)
        folder = below
    return folder


def _file(path: str, flags: int) -> int:
    parts = _parts(path)
    folder = _folder(parts[:-1], make=bool(flags & os.O_CREAT))
    try:
        return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder)
    except OSError as error:
        raise Refused("bad_path", f"{path[:200]}: {error.strerror}") from error
    finally:
        os.close(folder)


def read_file(path: str) -> bytes:
    """A regular file's bytes. Raises Refused."""
    with os.fdopen(_file(path, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_MAX_BYTES:
            raise Refused("bad_path", f"no regular file of at most {FILE_MAX_BYTES} bytes")
        return file.read(FILE_MAX_BYTES)


def write_file(path: str, data: bytes, executable: bool = False, append: bool = False) -> None:
    """Make or replace a file, with its folders, or add to one. Raises Refused."""
    if len(data) > FILE_MAX_BYTES:
        raise Refused("bad_request", f"at most {FILE_MAX_BYTES} bytes")
    mode = os.O_APPEND if append else os.O_TRUNC
    with os.fdopen(_file(path, os.O_WRONLY | os.O_CREAT | mode), "wb") as file:
        file.write(data)
        if executable:
            os.fchmod(file.fileno(), 0o755)


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
    paths: list[str] = []
    left = FILES
    for number, (above, folders, names) in enumerate(os.walk(folder)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if number >= FOLDERS:
            return paths, True
        looked = sorted(names)[:left]
        paths += [os.path.join(above, n) for n in looked if n.rpartition(".")[2].lower() in wanted and "." in n]
        left -= len(names)
        if left < 0:
            return paths, True
    return paths, False


HEAD_BYTES = 4096
IMAGE_MAX_BYTES = 64 << 20
MAX_PIXELS = 50_000_000  # four bytes each once it is drawn
DRAWN = (400, 300)  # pixels of a drawing that doesn't say its size
_WIDTH, _HEIGHT = (re.compile(rb'\s%s="(\d+(?:\.\d+)?)(?:px)?"' % name) for name in (b"width", b"height"))
_BOX = re.compile(rb'\sviewBox="[-\d.]+[ ,]+[-\d.]+[ ,]+(\d+(?:\.\d+)?)[ ,]+(\d+(?:\.\d+)?)"')


def image_size(path: str) -> tuple[int, int] | None:
    """Width and height in pixels; None for a file that is no image."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    if b"<svg" in head:
        return _of_drawing(head)
    from PIL import Image, UnidentifiedImageError  # late, as below: it takes longer than most desktops need it

    try:
        with Image.open(path) as image:
            wide, high = image.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        return None
    return (wide, high) if wide > 0 and high > 0 else None


def refuse_large(path: str, argument: str) -> None:
    """Raise Refused for a file that is too large to be drawn into a document."""
    name = os.path.basename(path)[:80]
    if os.path.getsize(path) > IMAGE_MAX_BYTES:
        raise wrong(f"{argument}: at most {IMAGE_MAX_BYTES >> 20} MiB, and {name} is larger")
    if _too_large(path):
        raise wrong(f"{argument}: {name} has more than {MAX_PIXELS} pixels")


def _too_large(path: str) -> bool:
    """Whether an image has more than `MAX_PIXELS`, as far as its head can be read here; small files can."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.size[0] * image.size[1] > MAX_PIXELS
    except Image.DecompressionBombError:
        return True
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        return False


def _of_drawing(head: bytes) -> tuple[int, int]:
    start = head[head.index(b"<svg") :].partition(b">")[0] + b">"
    width, height = _WIDTH.search(start), _HEIGHT.search(start)
    box = _BOX.search(start)
    size = (width[1], height[1]) if width and height else box.groups() if box else ()
    wide, high = (round(float(part)) for part in size) if size else DRAWN
    return (wide, high) if wide > 0 and high > 0 else DRAWN
