"""An application's API as a folder: how it is driven, functions that a model wrote for it, and their cases.

Invariant: all of it is data, checked as it is decoded. A function's code stays text here. A folder is used only while
its file has the digest that `apis accept` wrote. `COMPUTERRL_APIS` names the folders of a process, and of all that it
starts: DIR, or DIR@DIGEST.
"""

from __future__ import annotations

import contextlib
import hashlib
import keyword
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from apis.functions.declaration import Function, Parameter, Tool
from apis.functions.values import fit, fitted
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program

PLACES_ENV = "COMPUTERRL_APIS"
API, ACCEPTED = "api.json", "accepted.txt"
CODE_BYTES = 8 << 10
REPLACED = ("{home}", "{answer}", "{function}")  # what `apis.apps.check.steps` writes other texts in place of
PROFILE = "Profile"  # the class whose functions are a profile's own snippets
Name = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_]{2,39}\Z")]
Argument = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_]{0,39}\Z")]
Owner = Annotated[str, Meta(pattern=rf"\A(?!{PROFILE}\Z)[A-Z][A-Za-z0-9]{{2,39}}\Z")]
Sentence = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029]{4,300}\Z")]  # on one line
# A module of the guest's own, and the text that its class `App` is made with.
Helpers = Annotated[str, Meta(pattern=r"\A(guest(\.[a-z][a-z0-9_]*)+( [ -~]{1,100})?)?\Z")]
Module = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,39}\Z")]
Argv = Annotated[list[Annotated[str, Meta(pattern=r"\A[!-~]([ -~]{0,98}[!-~])?\Z")]], Meta(max_length=12)]
WindowClass = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9._-]{0,59}\Z")]
Short = Annotated[str, Meta(max_length=2000)]
Scalar = str | int | float | bool | None
Value = Scalar | Annotated[list[Scalar], Meta(max_length=100)]
NUMBERS = ("integer", "number", "text", "line", "names")  # kinds whose limits are numbers
SIZES = NUMBERS[2:]  # and those whose limit is a length
# How many limits a parameter of each kind has, at least and at the most.
KINDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("integer", "number"), (2, 2)),
    **dict.fromkeys(SIZES, (1, 1)),
    "choice": (2, 30),
    "path": (0, 8),
    **dict.fromkeys(("boolean", "folder", "cell", "range", "column", "sheet", "rgb", "entry"), (0, 0)),
}


class BoundedParameter(Parameter, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A parameter of the closed set of kinds, with its bounds."""

    def __post_init__(self) -> None:
        (low, high), numbers = KINDS.get(self.kind, (0, 0)), self.kind in NUMBERS
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind[:40]!r}; known: {', '.join(KINDS)}")
        if not low <= len(self.limits) <= high:
            raise ValueError(f"a {self.kind} has {low} to {high} limits")
        if any(isinstance(limit, str) == numbers for limit in self.limits):
            raise ValueError(f"the limits of a {self.kind} are {'numbers' if numbers else 'texts'}")
        if self.kind in SIZES and not all(isinstance(most, int | float) and 1 <= most <= 4000 for most in self.limits):
            raise ValueError(f"a {self.kind} has at most 4000 characters or items")
        if not all(text.isprintable() and len(text) <= 300 for text in (self.means, *map(str, self.limits))):
            raise ValueError("what it means and its limits are one line each, of at most 300 characters")
        if self.default is not msgspec.UNSET:
            fit(self.named("default"), self.default)


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is read after a call, by a profile's name or in a file below HOME, and what it has to be."""

    read: str = ""
    file: Annotated[str, Meta(max_length=200)] = ""
    equals: Short | None = None
    has: Annotated[list[Short], Meta(max_length=8)] = []
    lacks: Annotated[list[Short], Meta(max_length=8)] = []

    def __post_init__(self) -> None:
        if bool(self.read) == bool(self.file):
            raise ValueError("an effect has either `read` or `file`")
        if self.file.startswith(("/", "~")) or ".." in self.file.split("/"):
            raise ValueError("an effect's file is a path below the home folder")
        if self.equals is None and not self.has and not any(self.lacks):
            raise ValueError("an effect says what it equals, has or lacks")


class Right(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call that does what it should: what is prepared, the arguments, part of what is said, and the effects."""

    arguments: dict[str, Value] = {}
    puts: dict[str, Value] = {}
    says: Annotated[str, Meta(max_length=300)] = ""
    effects: Annotated[list[Effect], Meta(max_length=6)] = []

    def __post_init__(self) -> None:
        if not self.effects and not self.says:
            raise ValueError("a right call has neither an effect nor a part of what is said")
        texts = msgspec.json.encode((self.effects, self.puts)).decode()
        if bad := [each for each in REPLACED if each in texts]:
            raise ValueError(f"{bad[0]} can't be in a text")


class Wrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that is refused, and part of the refusal."""

    arguments: dict[str, Value]
    refusal: Annotated[str, Meta(max_length=200)] = ""


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The cases of one function."""

    right: Annotated[list[Right], Meta(min_length=2, max_length=6)]
    wrong: Annotated[list[Wrong], Meta(max_length=4)] = []


class BuiltFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function as it is declared, with its code and cases; or an MCP server's tool, with its name there as code."""

    name: Name
    does: Sentence
    params: Annotated[dict[Argument, BoundedParameter], Meta(max_length=6)] = {}
    serves: Annotated[list[int], Meta(max_length=200)] = []  # numbers of exemplars, from 1
    code: Annotated[str, Meta(max_length=CODE_BYTES)] = ""
    cases: Cases | None = None

    def __post_init__(self) -> None:
        if bad := [each for each in (self.name, *self.params) if keyword.iskeyword(each) or each == "app"]:
            raise ValueError(f"{bad[0]} can't be a name")

    def function(self, owner: str) -> Function:
        """The declaration that prompts, the grammar and calls read."""
        params = tuple(takes.named(name) for name, takes in self.params.items())
        return Function(owner, self.name, Tool, params, self.does)


class Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How an application is driven, and its functions. A profile is one without any, in a file that a person writes.

    Snippets are the person's own code. They run in the desktop like generated functions, and see the same object `app`.
    """

    app: Name  # as in apis.applications
    owner: Owner  # class of the functions
    title: Sentence  # by which a model knows the application
    facts: str = ""  # for the model: what `app` offers, and what to beware of
    example: str = ""  # for the model: a function as it should be written
    argv: Argv = []  # of an application that is not in apis.applications: what starts it,
    windows: Annotated[list[WindowClass], Meta(max_length=4)] = []  # and the classes of its windows, in small letters
    helpers: Helpers = ""  # module of the guest with the class `App`, and the text that it is made with
    imports: list[Module] = []  # modules that generated code may import
    files: dict[str, dict[str, Any]] = {}  # as in a table of cases
    opens: list[str] = []  # words after the application's own command
    window: str = ""  # part of the window's title
    # What an effect reads -> an expression of `app` that gives a text, or lines of which one returns it.
    reads: dict[Argument, str] = {}
    puts: dict[Argument, str] = {}  # name of what a case prepares -> statements of `app` and `value`
    means: dict[str, str] = {}  # for the model: what a name of `reads` or `puts` gives or takes
    saves: str = ""  # statements that save the document, after which files are read
    functions: Annotated[list[BuiltFunction], Meta(max_length=64)] = []
    # Of an MCP server whose tools they are: its command, or its URL.
    server: Annotated[list[str], Meta(max_length=20)] = []

    def __post_init__(self) -> None:
        if len({each.name for each in self.functions}) < len(self.functions):
            raise ValueError("two functions have one name")
        for each in self.functions:
            for right in each.cases.right if each.cases else ():
                fitted(each.function(self.owner), right.arguments)
                read = {effect.read for effect in right.effects if effect.read}
                for what, given, known in (("read", read, self.reads), ("puts", {*right.puts}, self.puts)):
                    if unknown := sorted(given - known.keys()):
                        raise ValueError(f"{what} {unknown[0][:40]!r}; known: {', '.join(known)}")

    def declared(self) -> tuple[Function, ...]:
        """The functions as prompts, the grammar and calls read them."""
        return tuple(each.function(self.owner) for each in self.functions)


def read(folder: Path) -> Api:
    """What a folder holds. Raises ConfigError."""
    file = folder / API
    try:
        api = msgspec.json.decode(disk.read_text(file), type=Api)
        if bare := [each.name for each in api.functions if not each.code]:
            raise ValueError(f"{bare[0]} has no code")
        return api
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or str(error)[:200]}; see deploy/apis") from error


def write(folder: Path, api: Api) -> None:
    """Write what a folder holds. Raises ConfigError."""
    put(folder / API, msgspec.json.format(msgspec.json.encode(api), indent=1) + b"\n")


def put(file: Path, content: bytes) -> None:
    """Write a file of a folder, whole or not at all; a link that came with it is replaced. Raises ConfigError."""
    part = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        part.write_bytes(content)
        part.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise ConfigError(f"{file} can't be written: {error.strerror}") from None


def digest(folder: Path) -> str:
    """Names what a folder declares, its cases and its code. Raises ConfigError."""
    read(folder)
    return hashlib.sha256(disk.read_bytes(folder / API)).hexdigest()[:32]


def accept(folder: Path) -> str:
    """Pin a folder as it is; its digest. Raises ConfigError."""
    pinned = digest(folder)
    put(folder / ACCEPTED, f"{pinned}\n".encode())
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


def _pinned(named: str) -> tuple[Path, str]:
    """The folder of DIR or DIR@DIGEST, and its digest. Raises ConfigError for one that was not accepted as it is."""
    place, mark, wanted = ("", "", "") if Path(named).is_dir() else named.rpartition("@")
    folder = Path(place or named).absolute()
    if (now := accepted(folder)) != wanted and mark:
        raise ConfigError(f"{folder} has changed: this run began with {wanted}, and it is {now} now")
    return folder, now


@lru_cache(maxsize=4)
def _folders(named: str) -> dict[Path, Api]:
    found = {folder: read(folder) for folder, _ in map(_pinned, filter(None, named.split(os.pathsep)))}
    if any(api.server for api in found.values()) and find_spec("mcp") is None:
        raise ConfigError(f"{named}: tools of a server need the package mcp: pip install 'computerrl[mcp]'")
    return found


def folders() -> Mapping[Path, Api]:
    """The accepted folders that this process was given, and what they hold. Raises ConfigError."""
    return _folders(os.environ.get(PLACES_ENV, ""))


def use(named: Sequence[str]) -> dict[Path, Api]:
    """Give this process, and all that it starts, the folders DIR@DIGEST; those that it had not. Raises ConfigError."""
    before = folders()
    for each in named:
        folder, now = _pinned(each)
        if not each.endswith(f"@{now}"):
            raise ConfigError(f"{each}: write the folder as {folder}@{now}")
        if folder not in folders():
            os.environ[PLACES_ENV] = f"{os.environ.get(PLACES_ENV, '')}{os.pathsep}{folder}@{now}"
    return {folder: api for folder, api in folders().items() if folder not in before}


def guest_files() -> dict[str, Path]:
    """Path below `guest` on a desktop -> the file here, of all accepted folders."""
    own = [folder for folder, api in folders().items() if not api.server]
    return {f"accepted/{number}/{API}": folder / API for number, folder in enumerate(own)}


def served(owner: str, name: str) -> tuple[tuple[str, ...], str] | None:
    """The MCP server and the tool that a function is; None for any other function. Raises ConfigError."""
    for api in folders().values():
        for each in api.functions if api.server and api.owner == owner else ():
            if each.name == name:
                return tuple(api.server), each.code
    return None
