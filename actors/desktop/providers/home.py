"""The HOME that a desktop starts with.

Invariant: what is written depends on nothing but the data file that comes with the program, so two desktops begin
alike on any machine.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path, PurePosixPath

import msgspec

from runtime.errors import ConfigError


class HomeFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Empty folders and file contents, by path relative to HOME."""

    folders: list[str]
    files: dict[str, str]


def load() -> HomeFiles:
    """The data file's content. Raises ConfigError."""
    text = resources.files("deploy.guest").joinpath("home.yaml").read_bytes()
    try:
        found = msgspec.yaml.decode(text, type=HomeFiles)
    except msgspec.DecodeError as error:
        raise ConfigError(f"deploy/guest/home.yaml: {error}") from error
    for path in (*found.folders, *found.files):
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ConfigError(f"deploy/guest/home.yaml: {path!r} does not lie in HOME")
    return found


def write(into: Path) -> None:
    """Make the folder `into` and fill it."""
    found = load()
    into.mkdir(mode=0o755, parents=True)
    for folder in found.folders:
        (into / folder).mkdir(parents=True, exist_ok=True)
    for path, content in found.files.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_text(content)
