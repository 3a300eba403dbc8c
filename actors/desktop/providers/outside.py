"""Reading a guest's HOME from the host, without the guest's help and without trusting it.

Invariant: this process never opens a path that the guest controls; a worker with the guest's own rights does, bounded
in size and time, and what it says is checked against what was ordered.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import msgspec

from actors.desktop.faults import FaultCause, fault

WORKER = Path(__file__).with_name("outside_worker.py")
WORKER_S = 30.0


class Refusal(StrEnum):
    """Why a path was not read."""

    MISSING = "missing"
    BAD_PATH = "bad_path"  # absolute, or with .. or NUL in it
    LINK = "link"
    NOT_REGULAR = "not_regular"
    TOO_BIG = "too_big"
    FORBIDDEN = "forbidden"  # the guest took away its own right to read it


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one read of a HOME."""

    file_bytes: int = 16 << 20
    total_bytes: int = 64 << 20
    paths: int = 256
    listing: int = 4096  # names in one folder


class FileSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One path of HOME: a regular file's bytes, a folder's names (sorted; folders end in "/"), or a refusal."""

    path: str
    data: bytes | None = None
    names: list[str] | None = None
    refusal: Refusal | None = None


class _Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int | None = None
    names: list[str] | None = None
    refusal: Refusal | None = None


def parse(paths: list[str], output: bytes) -> list[FileSeen]:
    """The worker's answer as values. Raises DesktopFault when it is not what was ordered."""
    head, _, body = output.partition(b"\n")
    try:
        results = msgspec.json.decode(head, type=list[_Result])
    except msgspec.DecodeError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"the reading worker's answer: {error}") from error
    if [one.path for one in results] != paths or sum(one.size or 0 for one in results) != len(body):
        raise fault(FaultCause.OUTSIDE_VIEW, "the reading worker answered something else than was ordered")
    seen, at = [], 0
    for one in results:
        data = None if one.size is None else body[at : at + one.size]
        at += one.size or 0
        seen.append(FileSeen(path=one.path, data=data, names=one.names, refusal=one.refusal))
    return seen


def _run(order: bytes) -> bytes:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(WORKER)], input=order, capture_output=True, timeout=WORKER_S, check=False
    )
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise fault(FaultCause.OUTSIDE_VIEW, f"the reading worker ended with {done.returncode}: {''.join(last)[:200]}")
    return done.stdout


async def read_home(home: str, uid: int, paths: list[str], limits: ReadLimits) -> list[FileSeen]:
    """Regular files and folder listings below `home` by relative path, in that order. Raises DesktopFault.

    The path "" lists `home` itself. More than `limits.paths` paths is a ValueError.
    """
    if len(paths) > limits.paths:
        raise ValueError(f"{len(paths)} paths, at most {limits.paths}")
    order = {**msgspec.structs.asdict(limits), "home": home, "uid": uid, "paths": paths}
    try:
        output = await asyncio.to_thread(_run, json.dumps(order).encode())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"the reading worker: {error}"[:300]) from error
    return parse(paths, output)
