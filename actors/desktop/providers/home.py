"""What a desktop gets of this machine: its first HOME, the guest's code, VS Code where `make vscode` has put it.

Settings come from the program's data file alone, so two desktops begin alike on any machine. A LibreOffice profile that
set-up made here only saves that program its first start. An editor that the desktops' users can't read is missing.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from apis.applications import guest_files
from runtime.errors import ConfigError

OFFICE_PROFILE = Path(".config", "libreoffice")
PROFILES = (OFFICE_PROFILE, Path(".config", "GIMP"), Path(".thunderbird"))  # that a template may have
NO_PROFILES: Mapping[Path, Path] = {}
TEMPLATE = "home-template"
_PROJECT = Path(__file__).resolve().parents[3]


class HomeFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Empty folders and file contents, by path relative to HOME."""

    folders: list[str]
    files: dict[str, str]


def load() -> HomeFiles:
    """The data file's content. Raises ConfigError."""
    text = resources.files("deploy.guest").joinpath("home.yaml").read_bytes()
    try:
        home = msgspec.yaml.decode(text, type=HomeFiles)
    except msgspec.DecodeError as error:
        raise ConfigError(f"deploy/guest/home.yaml: {error}") from error
    for path in (*home.folders, *home.files):
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ConfigError(f"deploy/guest/home.yaml: {path!r} does not lie in HOME")
    return home


def user_template() -> Path:
    """Where an installation without a source tree keeps its template."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "computerrl" / TEMPLATE


def office_profile() -> Path | None:
    """LibreOffice's of the finished profiles."""
    return finished().get(OFFICE_PROFILE)


def finished() -> dict[Path, Path]:
    """The finished profiles that set-up has made, by their places in HOME: next to the sources or in the user's cache.

    One that another user made and this one may not read is as good as none.
    """
    places = (user_template(), _PROJECT / ".cache" / TEMPLATE)  # the last one counts
    return {own: place / own for place in places for own in PROFILES if _readable(place / own)}


def _readable(profile: Path) -> bool:
    """Whether it is a folder all of which this user may copy."""
    if not profile.is_dir():
        return False
    for folder, folders, files in os.walk(profile):  # what it may not enter, it leaves out without a word
        inside = [(name, os.R_OK | os.X_OK) for name in folders] + [(name, os.R_OK) for name in files]
        if not all(os.access(os.path.join(folder, name), rights) for name, rights in inside):
            return False
    return os.access(profile, os.R_OK | os.X_OK)


def write(into: Path, profiles: Mapping[Path, Path] = NO_PROFILES) -> None:
    """Make the folder `into` and fill it, with finished `profiles` by their places in it."""
    home = load()
    into.mkdir(mode=0o755, parents=True)
    for folder in home.folders:
        (into / folder).mkdir(parents=True, exist_ok=True)
    for path, content in home.files.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_text(content)
    for own, profile in profiles.items():
        shutil.copytree(profile, into / own, symlinks=True, dirs_exist_ok=True)


def write_guest(into: Path) -> None:
    """Copy the guest's code to a new folder `into`."""
    for name, source in guest_files().items():
        copy = into / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def packed(contents: Mapping[str, bytes | Path], mode: Literal["w", "w:gz"] = "w") -> bytes:
    """A tar file of what lies here, and of texts, by their names in it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as tar:
        for name, content in contents.items():
            if isinstance(content, Path):
                tar.add(content, name, filter=_without_owner)
                continue
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make an entry belong to the user that unpacks it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


EDITOR_PLACE = "COMPUTERRL_VSCODE"  # the variable that names another folder
EDITOR_STAMP = ".computerrl"  # written last by set-up
EDITOR_ELSEWHERE = "/opt/computerrl-vscode"


def editor_place() -> Path | None:
    """The editor's folder, beside the sources or where the variable says; None where it can't be used."""
    return None if editor_lacking() else _editor_folder()


def editor_lacking() -> str:
    """Why there is no editor, in one line; "" where there is one."""
    editor = _editor_folder()
    if not os.path.isfile(editor / EDITOR_STAMP):  # also False where this user may not look
        return "VS Code is not set up"
    closed = _closed(editor)
    return f"VS Code lies where the desktops' users can't go: {closed} is closed to them" if closed else ""


def editor_mend() -> str:
    """The command that makes up for what is editor_lacking."""
    editor = _editor_folder()
    return "make vscode" if _closed(editor) is None else f"export {EDITOR_PLACE}={EDITOR_ELSEWHERE}; make vscode"


def _editor_folder() -> Path:
    own = os.environ.get(EDITOR_PLACE)
    return Path(own).absolute() if own else _PROJECT / ".cache" / "vscode"


def _closed(editor: Path) -> Path | None:
    """The first folder on the way that others may not pass, where this user is not the desktops' own."""
    if os.geteuid() != 0:
        return None
    way = [folder for folder in (*reversed(editor.parents), editor) if os.path.exists(folder)]
    return next((folder for folder in way if not folder.stat().st_mode & stat.S_IXOTH), None)
