"""A look at all of a HOME from outside: what it tells apart, what it never follows, where it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.files import census
from actors.desktop.files.read_home import CensusLimits, ReadLimits, ReadRefusal, parse, read_home
from actors.desktop.providers import ssh
from apis.tasks.verify.manifest import MANIFEST, Deed, Entry, Manifest, changes
from apis.tasks.verify.verify import WantedFile, digest_of

USER = 29_999 if os.geteuid() == 0 else os.geteuid()


def given_to_guest(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, USER, -1)


async def look(folder: Path, limits: CensusLimits | None = None) -> Manifest:
    """The manifest as the unprivileged worker gives it."""
    given_to_guest(folder)
    (seen,) = await read_home(
        str(folder), USER, [WantedFile("", MANIFEST)], ReadLimits(census=limits or CensusLimits())
    )
    assert seen.manifest is not None
    return seen.manifest


def at_once(folder: Path, limits: CensusLimits | None = None) -> Manifest:
    """The same without a worker."""
    home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = census.take(home, msgspec.structs.asdict(limits or CensusLimits()))
    finally:
        os.close(home)
    return msgspec.convert(found, Manifest)


async def test_it_tells_everything_apart_and_follows_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    (home / "docs" / "a").write_bytes(b"one\n")
    (home / "docs" / "no").write_bytes(b"secret")
    (home / "out").symlink_to("/etc")
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(str(home / "plug"))
    (home / "sparse").touch()
    os.truncate(home / "sparse", 200 << 30)
    os.mkfifo(bytes(home) + b"/\xff\n")
    (home / "\\xff\n").mkdir()
    (home / "locked").mkdir()
    (home / "locked" / "in").touch()
    given_to_guest(home)
    (home / "docs" / "no").chmod(0)
    (home / "locked").chmod(0)
    found = await look(home)
    assert found.cut == ""
    assert found.entries.pop("sparse").mark.startswith("unread ")
    one = digest_of(b"one\n")
    kinds = {path: entry.kind for path, entry in found.entries.items()}
    assert found.entries["docs/a"] == Entry("file", 4, 0o644, one)
    assert found.entries["out"].mark == "/etc"
    assert kinds == {
        "": "folder", "docs": "folder", "docs/a": "file", "docs/no": "file" if USER == os.geteuid() == 0 else "locked",
        "out": "link", "pipe": "other", "plug": "other", "\\xff\n": "other", "\\\\xff\n": "folder", "locked": "locked",
    }  # fmt: skip


async def test_a_home_that_can_not_be_opened_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    given_to_guest(home)
    home.chmod(0)
    (seen,) = await read_home(str(home), USER, [WantedFile("", MANIFEST)], ReadLimits())
    assert seen.manifest is not None
    assert "locked" in seen.manifest.cut


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (CensusLimits(paths=20), "paths"),
        (CensusLimits(chars=200), "paths"),
        (CensusLimits(depth=5), "deeper"),
        (CensusLimits(cpu_s=-1.0), "time"),
    ],
)
def test_it_is_bounded_and_says_where_it_ended(tmp_path: Path, limits: CensusLimits, says: str) -> None:
    (tmp_path / "/".join("abcdefg")).mkdir(parents=True)
    for name in range(30):
        (tmp_path / "a" / f"file-{name}").touch()
    found = at_once(tmp_path, limits)
    assert says in found.cut
    assert len(found.entries) <= 37
    assert at_once(tmp_path, CensusLimits(paths=38)).cut == "", "HOME itself is the last"
    assert at_once(tmp_path, CensusLimits(paths=37)).cut


def test_a_file_that_was_not_read_can_not_be_changed_unseen(tmp_path: Path) -> None:
    limits = CensusLimits(file_bytes=3)
    (tmp_path / "big").write_bytes(b"12345")
    before = at_once(tmp_path, limits)
    was = os.stat(tmp_path / "big")
    assert not list(changes(before, at_once(tmp_path, limits)))
    (tmp_path / "big").write_bytes(b"54321")
    os.utime(tmp_path / "big", ns=(was.st_atime_ns, was.st_mtime_ns))
    assert [change.deed for change in changes(before, at_once(tmp_path, limits))] == [Deed.CHANGED]


def test_what_programs_hoard_does_not_keep_files_of_people_from_being_read(tmp_path: Path) -> None:
    limits = CensusLimits(bytes=4)
    (tmp_path / "Documents").mkdir()
    (tmp_path / "Documents" / "a").write_bytes(b"1234")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "a").write_bytes(b"1234")
    found = at_once(tmp_path, limits).entries
    assert found["Documents/a"].mark == digest_of(b"1234")
    assert found[".cache/a"].mark.startswith("unread ")


def test_attributes_owners_and_second_names_are_seen_and_home_itself(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_bytes(b"x")
    before = at_once(tmp_path)
    os.setxattr(tmp_path / "a", "user.note", b"loot")
    os.link(tmp_path / "b", tmp_path / "twin")
    (tmp_path / "c").chmod(0o4644)
    if os.geteuid() == 0:
        os.chown(tmp_path / "d", USER, USER)
    tmp_path.chmod(0o777)
    found = {change.path: change.deed for change in changes(before, at_once(tmp_path)) if change.path != "twin"}
    wanted = {"": Deed.OPENED, "a": Deed.MARKED, "b": Deed.MARKED, "c": Deed.OPENED}
    assert found == wanted | ({"d": Deed.MARKED} if os.geteuid() == 0 else {})


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        (".~lock.a.docx#", b",agent,desktop,28.11.2026 15:04,file:///home/agent/.config/libreoffice/4;", "note"),
        (".~lock.a.docx#", b"loot\n", "file"),
        (".~lock.a.docx#", b"loot,agent,desktop,28.11.2026 15:04,file:///home/agent/.config/libreoffice/4;", "file"),
        (".~lock.a.docx#", b",agent,desktop,28.11.2026 15:04,file:///home/agent/.config/libreoffice/4;loot", "file"),
        ("lock", b",agent,desktop,28.11.2026 15:04,file:///home/agent/.config/libreoffice/4;", "file"),
    ],
)
def test_a_note_of_an_office_is_told_from_a_file_of_that_name(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert at_once(tmp_path).entries[name].kind == kind


def test_it_says_which_files_hold_what_is_sought(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (census.PIECE - 4) + b"what was to go" + b"x" * 9)
    (tmp_path / "b").write_bytes(b"what was to stay")
    (tmp_path / "c").write_bytes(b" brut \n")
    (tmp_path / "d").write_bytes(b"brutal\n")
    (tmp_path / "e").write_bytes(b"brut\n" + b"x" * 300)
    home = os.open(tmp_path, os.O_RDONLY)
    try:
        bounds = msgspec.structs.asdict(CensusLimits())
        found = census.take(home, bounds, [b"brut".hex(), b"what was to go".hex()])["entries"]
    finally:
        os.close(home)
    assert {name: found[name][4] for name in "abcde"} == {"a": "holds 1", "b": "", "c": "holds 0", "d": "", "e": ""}


NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name)


@given(st.sets(NAMES.filter(lambda name: name not in (b".", b"..")), max_size=5))
def test_different_names_are_different_paths(tmp_path_factory: pytest.TempPathFactory, names: set[bytes]) -> None:
    home = bytes(tmp_path_factory.mktemp("names"))
    for name in names:
        Path(os.fsdecode(home + b"/" + name)).touch()
    found = at_once(Path(os.fsdecode(home)))
    assert len(found.entries) == 1 + len(names)
    assert msgspec.json.decode(json.dumps(msgspec.to_builtins(found)), type=Manifest) == found


def test_it_runs_as_text_on_another_machine(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    run = [sys.executable, "-I", "-S", "-c", ssh.RUN]
    wanted, seen = [WantedFile("", MANIFEST), WantedFile("a")], {}
    for folder in (tmp_path, tmp_path / "no"):
        order = ssh.order_of(str(folder), wanted, ReadLimits())
        done = subprocess.run(run, input=order + ssh.PROGRAM, capture_output=True, check=True)
        seen[folder.name] = parse(wanted, done.stdout)
    whole, file = seen[tmp_path.name]
    assert (whole.manifest, file.data) == (at_once(tmp_path), b"x")
    whole, file = seen["no"]
    assert whole.manifest is not None
    assert "can't be opened" in whole.manifest.cut
    assert file.refusal is ReadRefusal.FORBIDDEN
