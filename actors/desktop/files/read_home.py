"""Reads a guest's HOME from the host. The guest does not help and is not trusted.

Invariant: this process never opens a path that the guest controls. A worker with the guest's own rights opens it, with
bounds of size and time. The worker's answer is checked against the order.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Container
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.files import office
from actors.desktop.files.office import READER_UID
from actors.desktop.providers.sandbox.owners import lends_users
from apis.documents.read.bounds import Bounds
from apis.tasks.verify.manifest import MANIFEST, Manifest
from apis.tasks.verify.verify import BYTES, KINDS, OFFICE, ComparedDocument, Database, WantedFile, Workbook
from runtime.errors import ConfigError


def _packages() -> str:
    """The folder of the package that reads workbooks. Raises ConfigError where it is missing."""
    spec = importlib.util.find_spec("openpyxl")
    if spec is None or spec.origin is None:
        raise ConfigError("the package openpyxl is missing, which reads what desktops hold; mend it with: make setup")
    return str(Path(spec.origin).parents[1])


ROOT = Path(__file__).resolve().parents[3]
# Isolated from the environment; the program's own folder comes last on the path, before the package that reads
# workbooks. Without `site` it starts in milliseconds. numpy, which openpyxl would load, reserves too much memory.
_STARTS = """import sys
sys.path.extend(sys.argv[1:])
sys.modules.update(numpy=None, lxml=None, PIL=None)
from actors.desktop.files.worker import main
main()"""
WORKER = (sys.executable, "-I", "-S", "-c", _STARTS, str(ROOT), _packages())
WORKER_S = 30.0


class ReadRefusal(StrEnum):
    """Why a path was not read."""

    MISSING = "missing"
    BAD_PATH = "bad_path"  # absolute, or with .. or NUL in it
    LINK = "link"
    NOT_REGULAR = "not_regular"
    TOO_BIG = "too_big"
    FORBIDDEN = "forbidden"  # the guest took away its own right to read it
    NOT_A_WORKBOOK = "not_a_workbook"
    NOT_A_DATABASE = "not_a_database"  # no SQLite file
    ENCRYPTED = "encrypted"
    ZIP_BOMB = "zip_bomb"  # unpacks to more than its bounds, or packs many members into the same bytes
    XML_ENTITY = "xml_entity"  # has a document type or entities of its own
    TOO_SLOW = "too_slow"  # used up the processor time of one file, or of all
    BROKE_READER = "broke_reader"  # the parser crashed on it


class CensusLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a look at all of a HOME; a file beyond those of bytes is known by its inode and times."""

    paths: int = 24_000  # a sandbox's disk has fewer inodes
    chars: int = 4 << 20  # of all paths
    depth: int = 40  # of folders in folders
    file_bytes: int = 4 << 20
    bytes: int = 64 << 20
    cpu_s: float = 3.0


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one read of a HOME."""

    file_bytes: int = 16 << 20
    total_bytes: int = 64 << 20
    paths: int = 256
    listing: int = 4096  # names in one folder
    cpu_s: float = 6.0  # for all files: far less than WORKER_S, which is a fault and no refusal
    workbook: Bounds = Bounds()
    census: CensusLimits = CensusLimits()


class FileSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One path of HOME: a file's bytes or document, a folder's names (sorted; folders end in "/"), or a refusal.

    Of HOME itself there may be the manifest.
    """

    path: str
    data: bytes | None = None
    names: list[str] | None = None
    database: Database | None = None
    workbook: Workbook | None = None
    office: ComparedDocument | None = None
    manifest: Manifest | None = None
    refusal: ReadRefusal | None = None


class _Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int | None = None
    as_: str = "bytes"
    names: list[str] | None = None
    refusal: ReadRefusal | None = None


def parse(wanted: list[WantedFile], output: bytes) -> list[FileSeen]:
    """The worker's answer as values. Raises DesktopFault when it is not what was ordered."""
    head, _, body = output.partition(b"\n")
    try:
        results = msgspec.json.decode(head, type=list[_Result])
        if [result.path for result in results] != [want.path for want in wanted]:
            raise fault(FaultCause.OUTSIDE_VIEW, "the reading worker answered something else than was ordered")
        if sum(result.size or 0 for result in results) != len(body):
            raise fault(FaultCause.OUTSIDE_VIEW, "the reading worker's answer has another size than it says")
        seen, at = [], 0
        for result in results:
            data = None if result.size is None else body[at : at + result.size]
            at += result.size or 0
            if data is not None and result.as_ == MANIFEST:
                seen.append(FileSeen(path=result.path, manifest=msgspec.json.decode(data, type=Manifest)))
            elif data is not None and result.as_ in KINDS:
                document: Any = msgspec.json.decode(data, type=KINDS[result.as_])
                seen.append(FileSeen(path=result.path, **{result.as_: document}))
            else:
                seen.append(FileSeen(path=result.path, data=data, names=result.names, refusal=result.refusal))
    except msgspec.DecodeError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"the reading worker's answer: {error}"[:300]) from error
    return seen


def _run(order: bytes) -> bytes:
    done = subprocess.run(WORKER, input=order, capture_output=True, timeout=WORKER_S, check=False)
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise fault(FaultCause.OUTSIDE_VIEW, f"the reading worker ended with {done.returncode}: {''.join(last)[:200]}")
    return done.stdout


async def _ordered(
    order: dict[str, object], wanted: list[WantedFile], limits: ReadLimits, given: bytes
) -> list[FileSeen]:
    if len(wanted) > limits.paths:
        raise ValueError(f"{len(wanted)} paths, at most {limits.paths}")
    bounds = msgspec.to_builtins(limits)
    line = json.dumps({**bounds, **order}).encode() + b"\n"
    try:
        output = await asyncio.to_thread(_run, line + given)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"the reading worker: {error}"[-300:]) from error
    return parse(wanted, output)


async def read_home(home: str, uid: int, wanted: list[WantedFile], limits: ReadLimits) -> list[FileSeen]:
    """What is wanted below `home`: regular files and folder listings, in that order. Raises DesktopFault.

    The path "" lists `home` itself, or as a manifest all that lies in it.

    More than `limits.paths` paths is a ValueError.
    """
    wants = [
        {"path": want.path, "as_": BYTES if want.as_ == OFFICE else want.as_, "sought": want.sought} for want in wanted
    ]
    return await _ordered({"home": home, "uid": uid, "wanted": wants}, wanted, limits, b"")


async def parsed_here(wanted: list[WantedFile], seen: list[FileSeen], limits: ReadLimits) -> list[FileSeen]:
    """Files that were read elsewhere. A worker of this machine parses the wanted documents, but for those that
    `as_wanted` compares. Raises DesktopFault.
    """
    return await _parsed(wanted, seen, limits, {kind for kind in KINDS if kind != OFFICE})


async def as_wanted(wanted: list[WantedFile], seen: list[FileSeen], limits: ReadLimits) -> list[FileSeen]:
    """Files with all documents parsed, and those of the office compared with what is wanted of them, by LibreOffice in
    a sandbox of its own. Raises DesktopFault, and ConfigError where LibreOffice is needed and not installed.
    """
    seen = await parsed_here(wanted, seen, limits)
    if not any(want.as_ == OFFICE for want in wanted):
        return seen
    compared, pairs = list(seen), dict[int, office.Pair]()
    for at, (want, file) in enumerate(zip(wanted, seen, strict=True)):
        if want.as_ != OFFICE or file.data is None:
            continue
        if file.data == want.expected:
            compared[at] = FileSeen(path=file.path, office=ComparedDocument(unsaved=True))
        elif not office.may_be(file.data):
            compared[at] = FileSeen(path=file.path, office=ComparedDocument("it is no file that LibreOffice saved"))
        else:
            pairs[at] = office.Pair(file.data, want.expected, want.path.rpartition(".")[2])
    if not pairs:
        return compared
    for at, made in zip(pairs, await office.read([*pairs.values()]), strict=True):
        if isinstance(made, str):
            compared[at] = FileSeen(path=wanted[at].path, office=ComparedDocument(made))
        else:
            compared[at] = FileSeen(path=wanted[at].path, data=made)
    both = [wanted[at] for at in pairs]
    for at, file in zip(pairs, await _parsed(both, [compared[at] for at in pairs], limits, {OFFICE}), strict=True):
        compared[at] = file
    return compared


async def _parsed(
    wanted: list[WantedFile], seen: list[FileSeen], limits: ReadLimits, kinds: Container[str]
) -> list[FileSeen]:
    books = [
        (want, file.data)
        for want, file in zip(wanted, seen, strict=True)
        if want.as_ in kinds and file.data is not None
    ]
    if not books:
        return seen
    wants = [{"path": want.path, "as_": want.as_, "size": len(data)} for want, data in books]
    given = b"".join(data for _, data in books)
    order: dict[str, object] = {"home": "", "uid": READER_UID if lends_users() else 0, "wanted": wants}
    parsed = iter(await _ordered(order, [want for want, _ in books], limits, given))
    return [
        next(parsed) if want.as_ in kinds and file.data is not None else file
        for want, file in zip(wanted, seen, strict=True)
    ]
