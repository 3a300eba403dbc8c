"""Folders of generated functions: what they declare, and that they are what a person accepted.

Invariant: a folder is used only while its files have the digest that `apis accept` wrote. Its code stays text here.
`COMPUTERRL_APIS` names the folders of a process, and of all that it starts: DIR, or DIR@DIGEST.
"""

from __future__ import annotations

import hashlib
import keyword
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from apis.functions.declaration import Function, Parameter, Tool
from apis.functions.values import Unfit, fit
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program

PLACES_ENV = "COMPUTERRL_APIS"
API, CASES, CODE, ACCEPTED = "api.json", "cases.json", "code.json", "accepted.txt"
T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9_]{2,39}\Z")]
Owner = Annotated[str, msgspec.Meta(pattern=r"\A[A-Z][A-Za-z0-9]{2,39}\Z")]
Sentence = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029]{4,300}\Z")]  # on one line
# A module of the guest's own, and the text that its class `App` is made with.
Helpers = Annotated[str, msgspec.Meta(pattern=r"\A(guest(\.[a-z][a-z0-9_]*)+( [ -~]{1,100})?)?\Z")]
Module = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,39}\Z")]
Argv = Annotated[
    list[Annotated[str, msgspec.Meta(pattern=r"\A[!-~]([ -~]{0,98}[!-~])?\Z")]], msgspec.Meta(max_length=12)
]
WindowClass = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][a-z0-9._-]{0,59}\Z")]
Params = Annotated[dict[Name, Parameter], msgspec.Meta(max_length=6)]
NUMBERS = ("integer", "number", "text", "line", "names")  # kinds whose limits are numbers
# How many limits a parameter of each kind has, at least and at the most.
KINDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("integer", "number"), (2, 2)),
    **dict.fromkeys(("text", "line", "names"), (1, 1)),
    "choice": (2, 30),
    "path": (0, 8),
    **dict.fromkeys(("boolean", "folder", "cell", "range", "column", "sheet", "rgb", "entry"), (0, 0)),
}


class BuiltFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One function in `api.json`."""

    does: Sentence
    params: Params = {}


class Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `api.json` holds; the guest reads it, too."""

    app: Name
    owner: Owner
    title: Sentence
    helpers: Helpers
    imports: list[Module]
    functions: Annotated[dict[Name, BuiltFunction], msgspec.Meta(max_length=64)]
    # Of an application that is not here: program and words that start it, and its windows' classes.
    argv: Argv = []
    windows: Annotated[list[WindowClass], msgspec.Meta(max_length=4)] = []
    # Of an MCP server whose tools they are: its command, or its URL. `code.json` then names the tools.
    server: Annotated[list[str], msgspec.Meta(max_length=20)] = []

    def declared(self) -> tuple[Function, ...]:
        """The functions as prompts, the grammar and calls read them."""
        return tuple(declared(self.owner, name, each.does, each.params) for name, each in self.functions.items())


def declared(owner: str, name: str, does: str, params: Mapping[str, Parameter]) -> Function:
    """A function as prompts, the grammar and calls read it."""
    return Function(owner, name, Tool, tuple(takes.named(each) for each, takes in params.items()), does)


def unsound(name: str, params: Mapping[str, Parameter]) -> str:
    """Why a function can't be declared so, in words for who wrote it; "" where it can."""
    if bad := [each for each in (name, *params) if keyword.iskeyword(each) or each == "app"]:
        return f"{bad[0]} can't be a name"
    for each, takes in params.items():
        if why := _unsound(takes):
            return f"{each}: {why}"
        try:
            if takes.default is not msgspec.UNSET:
                fit(takes.named(each), takes.default)
        except Unfit as error:
            return str(error)
    return ""


def _unsound(takes: Parameter) -> str:
    kind, (low, high), numbers = takes.kind, KINDS.get(takes.kind, (0, 0)), takes.kind in NUMBERS
    if kind not in KINDS:
        return f"kind {kind[:40]!r}; known: {', '.join(KINDS)}"
    if not low <= len(takes.limits) <= high:
        return f"a {kind} has {low} to {high} limits"
    if not all(isinstance(limit, str) != numbers for limit in takes.limits):
        return f"the limits of a {kind} are {'numbers' if numbers else 'texts'}"
    if kind in ("text", "line", "names") and not 1 <= float(takes.limits[0]) <= 4000:
        return f"a {kind} has at most 4000 characters or items"
    if not all(text.isprintable() and len(text) <= 300 for text in (takes.means, *map(str, takes.limits))):
        return "what it means and its limits are one line each, of at most 300 characters"
    return ""


def decoded(file: Path, kind: type[T]) -> T:
    """What a JSON file of a folder holds. Raises ConfigError."""
    try:
        return msgspec.json.decode(disk.read_text(file), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or str(error)[:200]}") from error


def read(folder: Path) -> Api:
    """What a folder declares. Raises ConfigError."""
    api = decoded(folder / API, Api)
    for name, each in api.functions.items():
        if why := unsound(name, each.params):
            raise ConfigError(f"{folder / API}: {name}: {why}")
    return api


def sources(folder: Path) -> dict[str, str]:
    """The code of each function, as text. Raises ConfigError."""
    code = decoded(folder / CODE, dict[str, str])
    if set(code) != set(read(folder).functions):
        raise ConfigError(f"{folder / CODE}: it has not the functions of {API}")
    return code


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
    return total.hexdigest()[:32]


def accept(folder: Path) -> str:
    """Pin a folder as it is; its digest. Raises ConfigError."""
    pinned, place = digest(folder), folder / ACCEPTED
    try:
        place.unlink(missing_ok=True)  # a link that came with the folder would lead elsewhere
        place.write_text(pinned + "\n")
    except OSError as error:
        raise ConfigError(f"{place} can't be written: {error.strerror}") from None
    return pinned


def accepted(folder: Path) -> str:
    """The digest of a folder that was accepted as it is. Raises ConfigError."""
    now = digest(folder)
    try:
        pinned = disk.read_text(folder / ACCEPTED, 200).strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{folder} is not accepted: see  {program()} apis show {folder},  then apis accept") from None
    if pinned != now:
        raise ConfigError(f"{folder} has changed since it was accepted ({pinned}, now {now}): look and accept it again")
    return now


def _parted(named: str) -> tuple[Path, str]:
    """Folder and digest of DIR@DIGEST; no digest where it names a folder alone."""
    place, _, wanted = named.rpartition("@")
    return (Path(named).absolute(), "") if not place or Path(named).is_dir() else (Path(place).absolute(), wanted)


@lru_cache(maxsize=4)
def _folders(named: str) -> tuple[Path, ...]:
    parts = [_parted(part) for part in named.split(os.pathsep) if part]
    for folder, wanted in parts:
        if (now := accepted(folder)) != wanted and wanted:
            raise ConfigError(f"{folder} has changed: this run began with {wanted}, and it is {now} now")
    return tuple(folder for folder, _ in parts)


def folders() -> tuple[Path, ...]:
    """The accepted folders that this process was given. Raises ConfigError."""
    return _folders(os.environ.get(PLACES_ENV, ""))


def use(named: Sequence[str]) -> list[Path]:
    """Give this process, and all that it starts, the folders DIR@DIGEST; those that it had not. Raises ConfigError."""
    new = []
    for each in named:
        folder, wanted = _parted(each)
        if (now := accepted(folder)) != wanted:
            raise ConfigError(f"{each}: write the folder as {folder}@{now}")
        if folder not in folders():
            places = [*filter(None, [os.environ.get(PLACES_ENV)]), f"{folder}@{now}"]
            os.environ[PLACES_ENV] = os.pathsep.join(places)
            new.append(folder)
    return new


def guest_files() -> dict[str, Path]:
    """Path below `guest` on a desktop -> the file here, of all accepted folders."""
    own = [each for each in folders() if not read(each).server]
    return {f"accepted/{number}/{name}": each / name for number, each in enumerate(own) for name in (API, CODE)}


@lru_cache(maxsize=4)
def _served(places: tuple[Path, ...]) -> dict[tuple[str, str], tuple[tuple[str, ...], str]]:
    served: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}
    for folder in places:
        if server := (api := read(folder)).server:
            if find_spec("mcp") is None:
                raise ConfigError(f"{folder} needs the package mcp: pip install 'computerrl[mcp]'")
            served |= {(api.owner, name): (tuple(server), tool) for name, tool in sources(folder).items()}
    return served


def served(owner: str, name: str) -> tuple[tuple[str, ...], str] | None:
    """The MCP server and the tool that a function is; None for any other function. Raises ConfigError."""
    return _served(folders()).get((owner, name))
