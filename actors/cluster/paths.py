"""Folders that commands write to. Looking at a place changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.errors import ConfigError

RUNS = "runs"  # the default of --runs
MOST_BYTES = 200  # of a run's name: names of its own are made by adding to it
_MEANT = {"last": "the newest run", "base": "the bundled model"}


def refuse_unwritable(path: Path, flag: str) -> None:
    """Raise ConfigError unless the folder `path`, which `flag` named, can be made or written to."""
    try:
        near = nearest_there(path)
        if not near.is_dir():
            raise ConfigError(f"{flag} {path}: {near} is no folder; name another")
        longest = max((len(os.fsencode(part)) for part in path.absolute().relative_to(near).parts), default=0)
        if longest > os.pathconf(near, "PC_NAME_MAX"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        # Asked of the disk itself: /proc and the like grant root the right and refuse the deed.
        with tempfile.TemporaryFile(dir=near):
            pass
    except OSError as error:
        raise ConfigError(f"{flag} {path}: nothing can be written there: {error.strerror}; name another") from None


def refuse_no_file(file: Path, flag: str) -> None:
    """Raise ConfigError unless `file`, which `flag` named, can be a file in a folder that can be written to."""
    folder = file.absolute().parent
    if not os.path.isdir(folder):  # of a name that is too long, too
        raise ConfigError(f"{flag} {file}: there is no folder {file.parent}: make it, or name another")
    most = os.pathconf(folder, "PC_NAME_MAX") - len(".part")  # of what is not whole yet
    if len(os.fsencode(file.name)) > most:
        raise ConfigError(f"{flag} {file.name[:20]}...{file.suffix}: a file's name has at most {most} bytes")
    if file.is_dir():
        raise ConfigError(f"{flag} {file}: a folder; name a file, in it or elsewhere")
    refuse_unwritable(folder, flag)


@contextmanager
def made_whole(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """A new folder to be filled: it is called `folder` once the block has ended, and is gone where that raises.

    Raises OSError.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=mode)
    try:
        yield partial
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def nearest_there(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists. Raises OSError where the path can't be one."""
    near = path.absolute()
    while True:
        try:
            near.lstat()
        except (FileNotFoundError, NotADirectoryError):
            near = near.parent
        else:
            return near


def unnamed(stem: str, begun: float) -> str:
    """A name for what begins at `begun` (epoch seconds) without one; in another millisecond it is another."""
    at = time.strftime("%Y%m%d-%H%M%S", time.localtime(begun))
    return f"{stem}-{at}-{int(begun * 1000) % 1000:03d}"


def named(given: str | None, stem: str) -> str:
    """The name of a run that begins now: the one `given`, or one of its own. Raises ConfigError."""
    name = given or unnamed(stem, time.time())
    refuse_bad_name(name)
    return name


def refuse_bad_name(name: str, flag: str = "--name") -> None:
    """Raise ConfigError for what can't be a run's name."""
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith((".", "-")):
        raise ConfigError(
            f"{flag} {name}: letters, digits, dots, dashes and underscores only, and no dot or dash at the beginning"
        )
    if (size := len(name.encode())) > MOST_BYTES:
        raise ConfigError(f"{flag} {name[:20]}...: {size} bytes long, a run's name has {MOST_BYTES} at most")
    if name in _MEANT:
        raise ConfigError(f"{flag} {name}: {name} stands for {_MEANT[name]}; name it differently")
