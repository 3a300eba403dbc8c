"""The program that keeps and unpacks the guest's code on SSH machines, run as it is sent: as text."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from actors.desktop.providers import ssh_place
from actors.desktop.providers.ssh_code import GuestArchive, archive
from apis.apps.application import GUEST


def ran(
    code: GuestArchive, verb: str, folder: Path, *words: str, sent: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command = code.command(verb, str(folder), *words)
    return subprocess.run(["/bin/sh", "-c", command], input=sent, capture_output=True, check=False, timeout=30)


def kept_in(folder: Path) -> Path:
    return folder / f"computerrl.{os.geteuid()}"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The archive where the program keeps it."""
    assert ran(archive(), "keep", tmp_path, sent=archive().data).stdout == b"send\nheld\n"
    return kept_in(tmp_path) / archive().digest


def test_an_archive_is_asked_for_once_and_unpacked_whole(tmp_path: Path, kept: Path):
    assert ran(archive(), "keep", tmp_path).stdout == b"held\n"
    session = tmp_path / "session"
    assert ran(archive(), "unpack", tmp_path, str(session), "ls", str(session)).stdout == b"guest\nhome\nrun\n"
    for source in GUEST.rglob("*"):
        if source.is_file() and source.suffix not in (".md", ".pyc"):
            assert (session / "guest" / source.relative_to(GUEST)).read_bytes() == source.read_bytes()
    assert (session / "home/.config").is_dir()
    assert {stat.S_IMODE(path.stat().st_mode) for path in session.rglob("*") if path.is_dir()} == {0o700}


@pytest.mark.parametrize("harm", ["gone", "changed", "longer", "link", "pipe"])
def test_what_is_not_the_archive_is_never_unpacked_and_is_replaced(tmp_path: Path, kept: Path, harm: str):
    kept.unlink()
    if harm == "changed":
        kept.write_bytes(archive().data[:-1] + b"!")
    elif harm == "longer":
        kept.write_bytes(archive().data + b"!")
    elif harm == "link":
        (tmp_path / "elsewhere").write_bytes(archive().data)
        kept.symlink_to(tmp_path / "elsewhere")
    elif harm == "pipe":
        os.mkfifo(kept)
    session = tmp_path / "session"
    assert ran(archive(), "unpack", tmp_path, str(session), "echo", "ran").stdout == b"wanted\n"
    assert not session.exists()
    assert ran(archive(), "keep", tmp_path, sent=archive().data).stdout == b"send\nheld\n"
    assert ran(archive(), "unpack", tmp_path, str(session), "echo", "ran").stdout == b"ran\n"


def test_bytes_that_came_damaged_are_not_kept(tmp_path: Path):
    short = ran(archive(), "keep", tmp_path, sent=archive().data[:-1])
    assert short.returncode
    assert b"damaged" in short.stderr
    assert list(kept_in(tmp_path).iterdir()) == []


def test_a_folder_of_another_user_is_not_used(tmp_path: Path):
    kept_in(tmp_path).symlink_to(tmp_path)
    assert b"no folder of this user" in ran(archive(), "keep", tmp_path, sent=archive().data).stderr


def test_old_archives_and_parts_go_when_a_new_one_comes(tmp_path: Path):
    own = kept_in(tmp_path)
    own.mkdir()
    now = time.time()
    ages = {f"{n:064x}": 60 * n for n in range(1, 6)}
    ages |= {f"{ssh_place.PART}new": 500, f"{ssh_place.PART}old": ssh_place.KEPT_S + 9, "f" * 64: ssh_place.KEPT_S + 9}
    for name, age in ages.items():
        (own / name).touch()
        os.utime(own / name, (now - age, now - age))
    ran(archive(), "keep", tmp_path, sent=archive().data)
    newest = {archive().digest, *(f"{n:064x}" for n in range(1, ssh_place.KEPT))}
    assert {path.name for path in own.iterdir()} == {f"{ssh_place.PART}new", *newest}
