"""Folders of generated functions: what they declare, and that they are what a person accepted.

Invariant: a folder is used only while its files have the digest that `apis accept` wrote. Its code stays text here.
`COMPUTERRL_APIS` names the folders of a process, and of all that it starts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from apis.functions.declaration import Function, Parameter, Tool
from runtime import disk
from runtime.errors import ConfigError

PLACES_ENV = "COMPUTERRL_APIS"
API, CASES, CODE, ACCEPTED = "api.json", "cases.json", "code.json", "accepted.txt"
FUNCTIONS_MOST = 64


class BuiltFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One function in `api.json`."""

    does: str
    params: dict[str, Parameter] = {}


class Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `api.json` holds; the guest reads it, too."""

    app: str
    owner: str
    title: str
    helpers: str
    imports: list[str]
    functions: dict[str, BuiltFunction]

    def declared(self) -> tuple[Function, ...]:
        """The functions as prompts, the grammar and calls read them."""
        return tuple(
            Function(
                self.owner, name, Tool, tuple(takes.named(param) for param, takes in each.params.items()), each.does
            )
            for name, each in self.functions.items()
        )


def read(folder: Path) -> Api:
    """What a folder declares. Raises ConfigError."""
    try:
        api = msgspec.json.decode(disk.read_text(folder / API), type=Api)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{folder / API}: {str(error)[:200]}") from error
    if len(api.functions) > FUNCTIONS_MOST or not all(name.isidentifier() for name in (api.owner, *api.functions)):
        raise ConfigError(f"{folder / API}: at most {FUNCTIONS_MOST} functions, each with a plain name")
    return api


def sources(folder: Path) -> dict[str, str]:
    """The code of each function, as text. Raises ConfigError."""
    try:
        found = msgspec.json.decode(disk.read_text(folder / CODE), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / CODE}: {str(error)[:200]}") from error
    if set(found) != set(read(folder).functions):
        raise ConfigError(f"{folder / CODE}: it has not the functions of {API}")
    return found


def digest(folder: Path) -> str:
    """Names what a folder declares, its cases and its code. Raises ConfigError."""
    sources(folder)
    total = hashlib.sha256()
    for path in (folder / name for name in (API, CASES, CODE)):
        try:
            content = disk.read_bytes(path)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        total.update(b"%d\0" % len(content) + content)
    return total.hexdigest()[:16]


def accept(folder: Path) -> str:
    """Pin a folder as it is; its digest. Raises ConfigError."""
    pinned = digest(folder)
    (folder / ACCEPTED).write_text(pinned + "\n")
    return pinned


def accepted(folder: Path) -> str:
    """The digest of a folder that was accepted as it is. Raises ConfigError."""
    now = digest(folder)
    try:
        pinned = (folder / ACCEPTED).read_text().strip()
    except OSError:
        raise ConfigError(
            f"{folder} is not accepted: look with  computerrl apis show {folder}, then  apis accept"
        ) from None
    if pinned != now:
        raise ConfigError(f"{folder} has changed since it was accepted ({pinned}, now {now}): look and accept it again")
    return now


@lru_cache(maxsize=4)
def _folders(named: str) -> tuple[Path, ...]:
    folders = tuple(Path(part).absolute() for part in named.split(os.pathsep) if part)
    for folder in folders:
        accepted(folder)
    return folders


def folders() -> tuple[Path, ...]:
    """The accepted folders that this process was given. Raises ConfigError."""
    return _folders(os.environ.get(PLACES_ENV, ""))


def use(named: Sequence[str]) -> list[Path]:
    """Give this process, and all that it starts, the folders DIR@DIGEST; those that it had not. Raises ConfigError."""
    new = []
    for each in named:
        place, _, wanted = each.rpartition("@")
        folder = Path(place).absolute()
        if not place or accepted(folder) != wanted:
            raise ConfigError(f"{each}: write the folder as {place or each}@{accepted(Path(place or each).absolute())}")
        if folder not in folders():
            os.environ[PLACES_ENV] = os.pathsep.join([*map(str, folders()), str(folder)])
            new.append(folder)
    return new


def guest_files() -> dict[str, Path]:
    """Path below `guest` on a desktop -> the file here, of all accepted folders."""
    return {
        f"accepted/{number}/{name}": folder / name for number, folder in enumerate(folders()) for name in (API, CODE)
    }
