"""Reading a guest's HOME from outside: what is read, what is refused, and by whom."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import msgspec
import pytest
from hostile import xlsx
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.files import census
from actors.desktop.files import read_home as outside
from actors.desktop.files import worker as forked
from actors.desktop.files import worker as outside_worker
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal, as_wanted, parse, read_home
from actors.errors import DesktopFault
from apis.documents.read.bounds import Bounds
from apis.tasks.verify.manifest import Entry, Manifest
from apis.tasks.verify.verify import WantedFile, Workbook
from runtime.errors import ConfigError

USER = 29_999 if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
def guest_home(tmp_path: Path) -> Path:
    """A HOME with what a hostile guest would put there; the secret lies beside it."""
    folder = tmp_path / "home"
    (folder / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("gold")
    (folder / "docs" / "plum.txt").write_bytes(b"a\n\xff")
    (folder / "docs" / "empty").touch()
    (folder / "big").write_bytes(b"x" * 5000)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "docs" / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    plug = socket.socket(socket.AF_UNIX)
    plug.bind(str(folder / "plug"))
    plug.close()
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, USER, -1)
    (tmp_path / "secret").chmod(0o600)
    return folder


def wants(*paths: str) -> list[WantedFile]:
    return [WantedFile(path) for path in paths]


async def test_regular_files_and_folders_are_read_and_nothing_else(guest_home: Path):
    limits = ReadLimits(file_bytes=4000)
    wanted = {
        "docs/plum.txt": FileSeen(path="docs/plum.txt", data=b"a\n\xff"),
        "docs/empty": FileSeen(path="docs/empty", data=b""),
        "docs": FileSeen(path="docs", names=["deep/", "empty", "plum.txt", "up"]),
        "docs/./deep/": FileSeen(path="docs/./deep/", names=[]),
        "big": ReadRefusal.TOO_BIG,
        "none": ReadRefusal.MISSING,
        "docs/plum.txt/x": ReadRefusal.MISSING,
        "link": ReadRefusal.LINK,
        "linked": ReadRefusal.LINK,
        "linked/secret": ReadRefusal.LINK,
        "docs/up/docs/plum.txt": ReadRefusal.LINK,
        "pipe": ReadRefusal.NOT_REGULAR,
        "plug": ReadRefusal.NOT_REGULAR,
        "../secret": ReadRefusal.BAD_PATH,
        "docs/../../secret": ReadRefusal.BAD_PATH,
        "/etc/passwd": ReadRefusal.BAD_PATH,
        "nul\0": ReadRefusal.BAD_PATH,
        "n" * 300: ReadRefusal.NOT_REGULAR,
    }
    seen = await read_home(str(guest_home), USER, wants(*wanted), limits)
    for one, (path, expected) in zip(seen, wanted.items(), strict=True):
        assert one == (expected if isinstance(expected, FileSeen) else FileSeen(path=path, refusal=expected))


async def test_all_of_it_is_bounded(guest_home: Path):
    seen = await read_home(str(guest_home), USER, wants("big", "big", ""), ReadLimits(total_bytes=8000, listing=3))
    assert [one.refusal for one in seen] == [None, ReadRefusal.TOO_BIG, ReadRefusal.TOO_BIG]
    with pytest.raises(ValueError, match="3 paths"):
        await read_home(str(guest_home), USER, wants("a", "b", "c"), ReadLimits(paths=2))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to lose")
async def test_the_worker_has_no_more_rights_than_the_guest(guest_home: Path):
    (guest_home / "docs" / "plum.txt").chmod(0)
    (guest_home / "docs" / "deep").chmod(0)
    os.chown(guest_home / "big", 0, 0)
    (guest_home / "big").chmod(0o600)
    seen = await read_home(str(guest_home), USER, wants("docs/plum.txt", "docs/deep/x", "big"), ReadLimits())
    assert [one.refusal for one in seen] == [ReadRefusal.FORBIDDEN] * 3
    os.chmod(guest_home, 0)  # a guest that locks its HOME fails its task; it makes no fault
    (seen_one,) = await read_home(str(guest_home), USER, wants("docs/empty"), ReadLimits())
    assert seen_one.refusal is ReadRefusal.FORBIDDEN


@pytest.mark.parametrize(
    "output", [b"", b"[]\n", b'[{"path":"a","size":3}]\nxx', b'[{"path":"b","size":0}]\n', b'[{"path":"a","z":1}]\n']
)
def test_an_answer_to_another_order_is_a_fault(output: bytes):
    with pytest.raises(DesktopFault):
        parse(wants("a"), output)


async def test_a_worker_that_fails_or_hangs_is_a_fault(guest_home: Path, tmp_path: Path, monkeypatch):
    with pytest.raises(DesktopFault, match="No such file"):
        await read_home(str(tmp_path / "gone"), USER, wants("a"), ReadLimits())
    hanging = tmp_path / "hang.py"
    hanging.write_text("import select\nselect.select([], [], [])\n")
    monkeypatch.setattr(outside, "WORKER", (sys.executable, str(hanging)))
    monkeypatch.setattr(outside, "WORKER_S", 0.3)
    with pytest.raises(DesktopFault, match="timed out"):
        await read_home(str(guest_home), USER, wants("a"), ReadLimits())


@pytest.mark.slow
@given(path=st.text(max_size=30) | st.text(alphabet="./ab\0", max_size=12))
def test_any_path_gets_an_answer(path: str, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "any"
    (folder / "a" / "b").mkdir(parents=True, exist_ok=True)
    home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        order = {
            "wanted": [{"path": path, "as_": "bytes"}],
            "file_bytes": 10,
            "total_bytes": 10,
            "listing": 10,
            "cpu_s": 6.0,
            "workbook": {},
        }
        (result,), blobs = census.read_all(home, order, b"", outside_worker.document)
    finally:
        os.close(home)
    assert blobs == []
    assert result["path"] == path
    assert "names" in result or ReadRefusal(result["refusal"])


def test_what_all_files_cost_is_bounded_together(guest_home: Path, monkeypatch: pytest.MonkeyPatch):
    def slow(data: bytes, bounds: Bounds, *_: str) -> bytes:
        until = time.process_time() + 0.06
        while time.process_time() < until:
            pass
        assert bounds.cpu_s == 1
        return data

    monkeypatch.setattr(forked, "parsed", slow)
    limits = ReadLimits(cpu_s=0.1)
    order = msgspec.to_builtins(limits)
    order["wanted"] = [{"path": path, "as_": "workbook"} for path in ("docs/empty", "big", "docs/plum.txt", "docs")]
    home = os.open(guest_home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        results, _ = census.read_all(home, order, b"", outside_worker.document)
    finally:
        os.close(home)
    assert [one.get("refusal") for one in results] == [None, None, "too_slow", "too_slow"]
    assert limits.cpu_s + limits.workbook.cpu_s < outside_worker.CPU_S < outside.WORKER_S


async def test_answers_and_listings_count_towards_the_total(guest_home: Path):
    book = xlsx('<row r="1"><c r="A1" t="inlineStr"><is><t>' + "x" * 3000 + "</t></is></c></row>")
    (guest_home / "a.xlsx").write_bytes(book)
    (guest_home / "a.xlsx").chmod(0o644)
    wanted = [
        WantedFile("a.xlsx", "workbook"),
        WantedFile("a.xlsx", "workbook"),
        WantedFile("docs"),
        WantedFile("docs"),
    ]
    assert len(book) < 2000
    seen = await read_home(str(guest_home), USER, wanted, ReadLimits(total_bytes=5000))
    assert [one.refusal for one in seen] == [None, ReadRefusal.TOO_BIG, None, None]
    seen = await read_home(str(guest_home), USER, wanted[2:], ReadLimits(total_bytes=30))
    assert [one.refusal for one in seen] == [None, ReadRefusal.TOO_BIG]


def test_an_answer_is_cut_at_the_sizes_that_it_says():
    wanted = [
        WantedFile("a"),
        WantedFile("gone"),
        WantedFile("b"),
        WantedFile("c", "workbook"),
        WantedFile("", "manifest"),
        WantedFile("d"),
    ]
    all_of_it = msgspec.json.encode(Manifest(entries={"x": Entry("file", 3)}))
    book = msgspec.json.encode(Workbook(sheets=()))
    said = [
        {"path": "a", "size": 3}, {"path": "gone", "refusal": "missing"}, {"path": "b", "names": ["x/"]},
        {"path": "c", "size": len(book), "as_": "workbook"},
        {"path": "", "size": len(all_of_it), "as_": "manifest"}, {"path": "d", "size": 2},
    ]  # fmt: skip
    whole = b"abc" + book + all_of_it
    found = parse(wanted, msgspec.json.encode(said) + b"\n" + whole + b"de")
    assert found == [
        FileSeen(path="a", data=b"abc"),
        FileSeen(path="gone", refusal=ReadRefusal.MISSING),
        FileSeen(path="b", names=["x/"]),
        FileSeen(path="c", workbook=Workbook(sheets=())),
        FileSeen(path="", manifest=Manifest(entries={"x": Entry("file", 3)})),
        FileSeen(path="d", data=b"de"),
    ]
    for body in (whole + b"d", whole + b"def", b"abc" + b"x" * (len(whole) - 3) + b"de"):
        with pytest.raises(DesktopFault, match="the reading worker"):
            parse(wanted, msgspec.json.encode(said) + b"\n" + body)
    with pytest.raises(DesktopFault, match="something else than was ordered"):
        parse(wanted[:-1], msgspec.json.encode(said) + b"\n")


async def test_of_what_was_read_elsewhere_documents_alone_are_parsed_here():
    book = xlsx('<row r="1"><c r="A1"><v>1</v></c></row>')
    other = xlsx('<row r="1"><c r="A1"><v>2</v></c></row>')
    wanted = [
        WantedFile("a"),
        WantedFile("b", "workbook"),
        WantedFile("gone", "workbook"),
        WantedFile("c", "workbook"),
        WantedFile("d"),
    ]
    wanted.append(WantedFile("e", "workbook"))
    gone = FileSeen(path="gone", refusal=ReadRefusal.MISSING)
    seen = [
        FileSeen(path="a", data=b"abc"),
        FileSeen(path="b", data=book),
        gone,
        FileSeen(path="c", data=b"no workbook"),
        FileSeen(path="d", names=["x"]),
        FileSeen(path="e", data=other),
    ]
    found = await as_wanted(wanted, seen, ReadLimits())
    assert [found[n] for n in (0, 2, 4)] == [seen[n] for n in (0, 2, 4)]
    (last,) = await as_wanted(wanted[5:], seen[5:], ReadLimits())
    assert found[5] == last
    assert last.workbook is not None
    assert found[1].workbook is not None
    assert found[1].workbook != last.workbook
    assert (found[1].path, found[1].data, found[3]) == (
        "b", None, FileSeen(path="c", refusal=ReadRefusal.NOT_A_WORKBOOK),
    )  # fmt: skip
    nothing = [seen[0], gone]
    assert await as_wanted([wanted[0], wanted[2]], nothing, ReadLimits()) is nothing


@pytest.mark.slow
async def test_a_listing_may_have_its_last_name_and_a_file_its_last_byte(guest_home: Path):
    (everything,) = await read_home(str(guest_home), USER, wants("docs"), ReadLimits())
    assert everything.names is not None
    names, chars = len(everything.names), sum(map(len, everything.names))
    for limits, fits in (
        (ReadLimits(listing=names), True),
        (ReadLimits(listing=names - 1), False),
        (ReadLimits(total_bytes=chars), True),
        (ReadLimits(total_bytes=chars - 1), False),
    ):
        (seen,) = await read_home(str(guest_home), USER, wants("docs"), limits)
        assert seen == (everything if fits else FileSeen(path="docs", refusal=ReadRefusal.TOO_BIG)), limits
    for limits, fits in (
        (ReadLimits(file_bytes=5000), True),
        (ReadLimits(file_bytes=4999), False),
        (ReadLimits(total_bytes=5000), True),
        (ReadLimits(total_bytes=4999), False),
    ):
        (seen,) = await read_home(str(guest_home), USER, wants("big"), limits)
        assert (seen.data is not None, seen.refusal is ReadRefusal.TOO_BIG) == (fits, not fits), limits
    (guest_home / "piece").write_bytes(b"x" * ((1 << 20) + 1))  # what is read at once, and a byte
    (guest_home / "piece").chmod(0o644)
    (seen,) = await read_home(str(guest_home), USER, wants("piece"), ReadLimits(file_bytes=1 << 20))
    assert seen.refusal is ReadRefusal.TOO_BIG
    (seen, late) = await read_home(str(guest_home), USER, wants("big", "docs/plum.txt"), ReadLimits(total_bytes=5002))
    assert (seen.data, late.refusal) == (b"x" * 5000, ReadRefusal.TOO_BIG), "what the first took is taken off the rest"
    (seen,) = await read_home(str(guest_home), USER, wants("docs/plum.txt"), ReadLimits(cpu_s=0.0))
    assert seen.refusal is ReadRefusal.TOO_SLOW


@pytest.mark.parametrize("found", [None, ModuleSpec("openpyxl", None)])
def test_a_package_that_reads_files_and_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, found: ModuleSpec | None
) -> None:
    """An empty folder of that name is found, too, as a package without a file."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    with pytest.raises(ConfigError, match="openpyxl is missing"):
        outside._packages()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_what_is_left_of_root_by_the_first_look_at_a_guest_s_files():
    program = (
        "import json, os, resource as r, sys; sys.path.append(sys.argv[1])\n"
        "from actors.desktop.files.worker import drop_rights\n"
        "drop_rights(29999, 1 << 30)\n"
        "limits = [r.getrlimit(one) for one in (r.RLIMIT_CPU, r.RLIMIT_AS, r.RLIMIT_FSIZE)]\n"
        "print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), limits]))"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(outside.ROOT)]
    said = subprocess.run(command, capture_output=True, check=True, extra_groups=[4242]).stdout
    cpu_s = outside_worker.CPU_S
    assert msgspec.json.decode(said) == [
        [29999] * 3, [29999] * 3, [], [[cpu_s, cpu_s], [1 << 30, 1 << 30], [0, 0]],
    ]  # fmt: skip
