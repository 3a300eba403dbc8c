"""LibreOffice as the reader of documents: in a sandbox of its own, for each verdict a new one.

Invariant: the process has no network, no right of this program's, no file but its own folder, and bounded memory and
time. What is wanted comes first: where LibreOffice does not manage that, this machine is at fault (DesktopFault). What
it does not manage twice after that is a document's own doing.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import command
from actors.desktop.providers.sandbox.owners import lends_users
from apis.documents.read.office import packed
from runtime.errors import ConfigError

READER_UID = 19_999  # who reads what came from a desktop: a user that owns nothing here
PROGRAM = Path("/usr/lib/libreoffice/program/soffice.bin")
VERSION = "soffice --version"
_INSIDE = Path(__file__).with_name("office_inside.py")
_FLAT = {"docx": "fodt", "xlsx": "fods", "odp": "fodp"}
_FORMS = {"docx": "1234", "xlsx": "1234", "odp": "123"}  # of what is wanted, as `office_inside` makes them
MEMORY_BYTES, FILE_BYTES, FILES = 3 << 30, 32 << 20, 512
CPU_S = 60  # of one process
WALL_S = 240.0  # a machine under load takes many times as long as an idle one
PART_BYTES = 16 << 20
TRIES = 2
_AT_ONCE = max(1, (os.cpu_count() or 2) - 1)
# Threads of its own: what waits for a place here keeps no other work from one.
_PLACES = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="office")
_WORK = "/work"
# How LibreOffice ends by what it reads: too slow, out of memory, crashed, out of processor time.
_OWN_DOING = [["late"], *(["ended", str(-number)] for number in (6, 11, 7, 4, 8, 24)), ["ended", "77"]]


@dataclass(frozen=True)
class Pair:
    """A document as an episode left it and as its task wants it, both of one format: "docx", "xlsx" or "odp"."""

    end: bytes
    wanted: bytes
    ending: str


def may_be(data: bytes) -> bool:
    """Whether a file begins as LibreOffice's archives do, with a name in UTF-8; others need not be opened."""
    return data[:4] == b"PK\x03\x04" and bool(data[7:8]) and bool(data[7] & 8)


def release(output: str = "") -> str:
    """Major and minor number in what `VERSION` writes, here or as `said` on another machine; "" for neither."""
    if not output:
        output = subprocess.run(VERSION.split(), capture_output=True, text=True, timeout=WALL_S, check=False).stdout
    return "".join(re.findall(r"^LibreOffice (\d+\.\d+)", output))


async def read(pairs: Sequence[Pair]) -> list[bytes | str]:
    """Of each pair what `apis.documents.read.office.read` takes; where LibreOffice does not open the end, why not.

    Raises DesktopFault for what is no fault of a document, and ConfigError where LibreOffice is not installed.
    """
    return await asyncio.get_running_loop().run_in_executor(_PLACES, _read, pairs)


def _read(pairs: Sequence[Pair]) -> list[bytes | str]:
    """Each pair alone where all together do not end well: one file may break LibreOffice for the others."""
    if not PROGRAM.is_file():
        raise ConfigError(
            "LibreOffice is missing on this machine, and documents are judged by it; install deploy/guest/packages.txt"
        )
    words = ""
    for _ in range(TRIES if len(pairs) == 1 else 1):
        parts, words = _tried(pairs)
        if parts is not None:
            return parts
    if len(pairs) > 1:
        return [part for pair in pairs for part in _read([pair])]
    return [f"LibreOffice ends when it opens it: {words}"]


def _tried(pairs: Sequence[Pair]) -> tuple[list[bytes | str] | None, str]:
    """What came of it; None and a word where a document ended LibreOffice, once it had shown that it works."""
    with tempfile.TemporaryDirectory(prefix="crl-office-") as temporary:
        folder = Path(temporary)
        _lay_out(folder, pairs)
        words = _run(folder)
        if words[-1:] == ["done"]:
            return [
                _collected(folder / "work", f"{at}-{_first(pairs, pair)}", pair) for at, pair in enumerate(pairs)
            ], ""
    if words[:1] == ["known"] and words[1:] in _OWN_DOING:
        return None, " ".join(words[1:])
    raise fault(FaultCause.OUTSIDE_VIEW, f"LibreOffice, which reads documents, ended: {' '.join(words)[-200:]}")


def _lay_out(folder: Path, pairs: Sequence[Pair]) -> None:
    work = folder / "work"
    work.mkdir()
    for number, pair in enumerate(pairs):
        like = _first(pairs, pair)
        (work / f"{like}.want.{pair.ending}").write_bytes(pair.wanted)
        (work / f"{number}-{like}.end.{pair.ending}").write_bytes(pair.end)
    (work / "profile").mkdir()
    profile = home.office_profile()
    if profile is not None:
        shutil.copytree(profile / "4" / "user", work / "profile" / "user")
    shutil.copy(_INSIDE, folder / "inside.py")
    folder.chmod(0o711)
    (folder / "inside.py").chmod(0o644)
    if lends_users():
        for place, folders, files in os.walk(work):
            for name in (".", *folders, *files):
                os.chown(os.path.join(place, name), READER_UID, READER_UID)


def _first(pairs: Sequence[Pair], pair: Pair) -> int:
    """The number of the first pair of which the same is wanted: LibreOffice makes it once for all of these."""
    return next(at for at, other in enumerate(pairs) if (other.wanted, other.ending) == (pair.wanted, pair.ending))


def _run(folder: Path) -> list[str]:
    """The words that the sandbox said, and how it ended where that is not for us to see."""
    identity = READER_UID if lends_users() else os.geteuid()
    with command.filter_opened(command.filter_program(user_namespaces=False)) as filter_fd:
        argv = _command(folder, filter_fd)
        process = command.started(argv, identity, [filter_fd], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=WALL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0] + b" it takes too long here"
    return output[-4000:].decode("utf-8", "replace").split()


def _command(folder: Path, filter_fd: int) -> list[str]:
    limits = [f"--as={MEMORY_BYTES}", f"--fsize={FILE_BYTES}", f"--cpu={CPU_S}:{CPU_S + 10}"]
    return [
        *command.limited(FILES), *limits,
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "judge",
        *(("--seccomp", str(filter_fd)) if filter_fd >= 0 else ()),
        *command.programs(),
        "--proc", "/proc", "--dev", "/dev", "--size", str(command.SMALL_BYTES), "--tmpfs", "/tmp",  # noqa: S108
        "--bind", str(folder / "work"), _WORK, "--ro-bind", str(folder / "inside.py"), "/inside.py",
        "--remount-ro", "/", "--chdir", _WORK, "--clearenv", "--setenv", "PATH", command.PATH, "--setenv", "HOME",
        _WORK, "--setenv", "LANG", "C.UTF-8", command.PYTHON, "-I", "/inside.py", _WORK, f"{_WORK}/profile",
    ]  # fmt: skip


def _collected(work: Path, number: str, pair: Pair) -> bytes | str:
    """Files of the sandbox, none of them a link: only its own folder could be written."""
    refused = _file(work / f"{number}.refused")
    if refused is not None:
        return f"LibreOffice does not open it: {refused.decode('utf-8', 'replace')[:200]}"
    at, flat = f"{number.partition('-')[2]}.want", _FLAT[pair.ending]
    places = {"end.flat": f"{number}.end.{flat}", "numbers": f"{number}.numbers"}
    for form in _FORMS[pair.ending]:
        places |= {form: f"{at}.{form}.{pair.ending}", f"{form}.flat": f"{at}.{form}.{flat}"}
    parts = {"end": pair.end}
    for name, place in places.items():
        data = _file(work / place)
        if data is None:
            return f"LibreOffice makes nothing of it ({name})"
        parts[name] = data
    return packed(parts)


def _file(path: Path) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        data = file.read(PART_BYTES + 1)
    return data if len(data) <= PART_BYTES else None
