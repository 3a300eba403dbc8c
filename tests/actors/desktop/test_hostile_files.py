"""What a guest's own user can put where its task's file should be, on one real desktop, read once it is frozen.

Each is refused by name or bounded, the read as a whole is no fault, and the task whose file it is has failed.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import hostile
import pytest
from conftest import Guest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal
from actors.desktop.pool.leased import view_of
from apis.tasks.osworld import HOME, Evaluator, Task
from apis.tasks.registry import FAMILIES
from apis.tasks.verify.verify import (
    FileView,
    Sheet,
    SheetCell,
    TaskVerdict,
    WantedFile,
    Workbook,
    verify,
)

KINDS = {f"kind{number}.xlsx": wanted for number, (wanted, _) in enumerate(hostile.KINDS.values())}
SOURCE = Path(hostile.__file__).read_bytes()
MADE_S = 60.0

# Runs in the guest; says at the end what its user could not make.
MAKE = """
import contextlib, os, socket, subprocess, sys
sys.path.insert(0, ".")
import hostile

not_made = []

@contextlib.contextmanager
def attempt(what):
    try:
        yield
    except OSError as error:
        not_made.append(f"{what}: {error.strerror}")

for number, (_, make) in enumerate(hostile.KINDS.values()):
    with open(f"kind{number}.xlsx", "wb") as file:
        file.write(make())
with attempt("links"):
    os.symlink("/etc/passwd", "link.xlsx")
    os.symlink("/etc", "linked")
    os.symlink("../../../../../../etc/passwd", "dots")
    os.symlink("/proc/self/environ", "proc")
    os.symlink("loop", "loop")
    os.mkdir("inner")
    os.symlink("..", "inner/up")
with attempt("pipe"):
    os.mkfifo("pipe.xlsx")
with attempt("plug"):
    socket.socket(socket.AF_UNIX).bind("plug.xlsx")
with attempt("hard link to a system file"):
    os.link("/etc/passwd", "hard.xlsx")
with attempt("character device"):
    os.mknod("device.xlsx", 0o20666, os.makedev(1, 3))
with attempt("block device"):
    os.mknod("disk.xlsx", 0o60666, os.makedev(7, 0))
with attempt("sparse file"):
    with open("sparse.xlsx", "wb") as file:
        file.truncate(1 << 42)
with attempt("locked"):
    with open("locked.xlsx", "wb") as file:
        os.fchmod(file.fileno(), 0)
    os.mkdir("shut")
    open("shut/x.xlsx", "wb").close()
    os.chmod("shut", 0)
with attempt("a file in place of a folder"):
    open("folder", "wb").close()
with attempt("a folder in place of a file"):
    os.mkdir("sheet.xlsx")
with attempt("deep"):
    here = os.open(".", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
with attempt("name that is no UTF-8"):
    os.mkdir("names")
    open(b"names/\\xff\\x1b]0;x\\x07\\n", "wb").close()
subprocess.Popen(["sh", "-c", "while :; do head -c 4096 /dev/zero; done > grows.xlsx"])
with open("not_made", "w") as file:
    file.write("\\n".join(not_made))
with attempt("many files"):
    os.mkdir("many")
    for number in range(20_000):
        open(f"many/{number}", "wb").close()
"""

ODD = {
    "link.xlsx": ReadRefusal.LINK,
    "linked": ReadRefusal.LINK,
    "linked/passwd": ReadRefusal.LINK,
    "dots": ReadRefusal.LINK,
    "proc": ReadRefusal.LINK,
    "loop": ReadRefusal.LINK,
    "inner/up/hostile.py": ReadRefusal.LINK,
    "pipe.xlsx": ReadRefusal.NOT_REGULAR,
    "plug.xlsx": ReadRefusal.NOT_REGULAR,
    "hard.xlsx": ReadRefusal.MISSING,
    "device.xlsx": ReadRefusal.MISSING,
    "disk.xlsx": ReadRefusal.MISSING,
    "sparse.xlsx": ReadRefusal.TOO_BIG,
    "locked.xlsx": ReadRefusal.FORBIDDEN,
    "shut": ReadRefusal.FORBIDDEN,
    "shut/x.xlsx": ReadRefusal.FORBIDDEN,
    "folder/x": ReadRefusal.MISSING,
    "many": ReadRefusal.TOO_BIG,
    "/etc/passwd": ReadRefusal.BAD_PATH,
    "../run/host_key": ReadRefusal.BAD_PATH,
}
NOT_MADE = {"hard link to a system file", "character device", "block device"}


def task(path: str, func: str) -> Task:
    """A task that is solved when nothing at all is wanted of the file at `path`."""
    rules = {"expected": [] if func == "workbook_is" else ""}
    return Task(
        id="t", snapshot="", instruction="", source="", config=[], trajectory="", related_apps=[],
        evaluator=Evaluator(
            func=func, result={"type": "vm_file", "path": f"{HOME}/{path}", "dest": "x"},
            expected={"type": "rule", "rules": rules},
        ),
    )  # fmt: skip


async def made(guest: Guest) -> None:
    """Write all of it as the guest's user, while the desktop works."""
    await guest("write_file", path="hostile.py", data=SOURCE)
    await guest("write_file", path="make.py", data=MAKE.encode())
    pid = await guest("launch", argv=["/usr/bin/python3", "make.py"])
    until = time.monotonic() + MADE_S
    while pid in await guest("running"):
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
    said = await guest.text("not_made")
    assert said is not None
    assert {line.partition(":")[0] for line in said.splitlines()} == NOT_MADE


async def test_hostile_files_of_the_guest_are_refused_by_name_and_fail_their_task(guest: Guest):
    await made(guest)
    await guest.provider.freeze(guest.desktop)
    wanted = {**KINDS, **ODD, "sheet.xlsx": None, "names": None, "d/" * 250: None, "grows.xlsx": None}
    asked = [WantedFile(path, "workbook" if path.endswith(".xlsx") else "bytes") for path in wanted]

    began = os.times()
    seen = await guest.provider.read_home(guest.desktop, asked, ReadLimits(paths=len(asked), cpu_s=15.0))
    used = sum(os.times()[:4]) - sum(began[:4])

    found = {one.path: one for one in seen}
    for path, refusal in {**KINDS, **ODD}.items():
        assert found[path] == FileSeen(path=path, refusal=ReadRefusal(refusal)), path
    assert found["sheet.xlsx"].names == []
    assert found["names"].names == ["\\xff\x1b]0;x\x07\n"]
    assert found["d/" * 250].names == ["d/"]
    assert found["grows.xlsx"].refusal in (ReadRefusal.NOT_A_WORKBOOK, ReadRefusal.TOO_BIG)
    grown = [await guest.text("grows.xlsx") for _ in range(2)]
    assert grown[0] == grown[1]
    assert used < 20.0

    for one in seen:
        for func in ("workbook_is", "file_text_is", "file_contains"):
            verdict = verify(task("judged", func), lambda _, one=one: view_of(one, guest.desktop.home))
            assert not verdict.success, (one.path, func)
            assert "judged: " in verdict.reason


PLACES = st.sampled_from(["A1", "B2", "B3", "C2", "XFD1048576", "A10", "D4"])
WORDS = st.sampled_from(
    ["=SUM(A1:XFD1048576)", "=SUM(B2:B3", "=" + "(" * 400, "=A1:A1:A1", "of:=[.A1:.B2]", "=$A$1", "9" * 5000, "1e999"]
)
TEXTS = WORDS | st.text(max_size=12)
SHEETS = st.builds(
    Sheet,
    name=st.sampled_from(["Sheet1", "One", ""]) | st.text(max_size=5),
    cells=st.dictionaries(PLACES, st.builds(SheetCell, value=TEXTS | st.floats() | st.booleans()), max_size=5),
)
VIEWS = (
    st.builds(FileView, kind=st.just("workbook"), workbook=st.builds(Workbook, sheets=st.lists(SHEETS).map(tuple)))
    | st.builds(FileView, kind=st.just("file"), data=st.binary(max_size=40) | TEXTS.map(str.encode))
    | st.builds(FileView, kind=st.just("folder"), names=st.lists(TEXTS, max_size=5).map(tuple))
    | st.sampled_from([FileView(kind="missing"), *(FileView(kind="refused", reason=str(why)) for why in ReadRefusal)])
)
JUDGED = [family.task(f"{family.name}/held-out/{number}") for family in FAMILIES.values() for number in range(3)]


@pytest.mark.slow
@settings(max_examples=100, deadline=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(JUDGED), st.lists(VIEWS, min_size=1, max_size=3))
def test_whatever_lies_there_gets_a_verdict(judged: Task, views: list[FileView]):
    """Nothing of a guest's makes it the task's fault, which a ConfigError would be."""
    turn = iter(views * 9)
    assert isinstance(verify(judged, lambda _: next(turn)), TaskVerdict)
