"""The process that reads a guest's files. `read_home.py` starts it. It drops its rights, reads, answers and ends.

Invariant: the worker reads only regular files below the given folder and follows no link on the way. Before it looks at
the guest's files it has the guest's user, no other right, and bounded memory and processor time. A document is parsed
in a child of its own, so what ends the child refuses that file alone. The bound on all files together is far below what
ends this process, so a guest's files never look like a fault of the worker.

Standard library only, and parsers only where a document is wanted, so that it starts in milliseconds. Input: one JSON
line, and the bytes of files that were read elsewhere. Output: one JSON line of results, then the files' bytes, or
documents and the manifest as JSON, in the same order.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys

from actors.desktop.files import census
from apis.documents.read import RefusedError

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than most files take to be read
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from apis.documents.read.bounds import Bounds

CPU_S = 20
SPARE_BYTES = 256 << 20


def document(data: bytes, kind: str, bounds: dict[str, int], left: int, left_s: float) -> bytes:
    """The document as JSON, within its bounds and what is left for all; the kernel counts whole seconds.

    Raises census.UnreadError.
    """
    from apis.documents.read.bounds import Bounds

    answer_bytes, cpu_s = min(bounds["answer_bytes"], left), min(bounds["cpu_s"], int(left_s) + 1)
    try:
        return parsed(data, Bounds(**{**bounds, "answer_bytes": answer_bytes, "cpu_s": cpu_s}), kind)
    except RefusedError as refused:
        raise census.UnreadError(str(refused)) from None


_REFUSED, _ANSWERED, _LACKS = b"r", b"a", b"l"
_PIECE = 1 << 20
_CRASHED, _UNLIMITED = 1, 2  # exit statuses of a child


class ChildLostError(Exception):
    """The child was ended from outside or lacks a package, so nothing is known about the file."""


def parsed(data: bytes, bounds: Bounds, kind: str = "workbook") -> bytes:
    """The workbook, or another `kind` of document (`apis.tasks.verify.verify.KINDS`), as JSON.

    Raises RefusedError, ChildLostError, and KeyError for a kind that is not known.
    """
    from apis.documents.read.parse import PACKAGES, PARSERS  # only where a document is wanted

    parser = PARSERS[kind]
    if kind in PACKAGES:
        with contextlib.suppress(ImportError):  # the child says which package it lacks
            importlib.import_module(PACKAGES[kind])
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _child(parser, data, bounds, writes)
    os.close(writes)
    answer = bytearray()
    try:
        while piece := os.read(reads, _PIECE):
            answer += piece
            if len(answer) > bounds.answer_bytes:
                os.kill(child, signal.SIGTERM)
                break
    finally:
        os.close(reads)
        _, status = os.waitpid(child, 0)
    if len(answer) > bounds.answer_bytes:
        raise RefusedError("too_big")
    if os.WIFSIGNALED(status):
        ended_by = os.WTERMSIG(status)
        if ended_by == signal.SIGXCPU:
            raise RefusedError("too_slow")
        if ended_by in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
            raise RefusedError("broke_reader")
        raise ChildLostError(f"the parser was ended by signal {ended_by}")
    if answer[:1] == _REFUSED:
        raise RefusedError(answer[1:].decode())
    if answer[:1] == _LACKS:
        raise ChildLostError(f"the parser of a {kind}: {answer[1:].decode('utf-8', 'replace')}")
    if os.WEXITSTATUS(status) == _UNLIMITED:
        raise ChildLostError("the parser could not be given its limits")
    if answer[:1] != _ANSWERED or os.WEXITSTATUS(status):
        raise RefusedError("broke_reader")
    return bytes(answer[1:])


def _child(parser: Callable[[bytes, Bounds], dict[str, Any]], data: bytes, bounds: Bounds, writes: int) -> None:
    """Parse and say how it went; never returns."""
    ended = _UNLIMITED
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_s, hard))
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        memory = bounds.memory_bytes if hard == resource.RLIM_INFINITY else min(bounds.memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        ended = _CRASHED
        try:
            answer = _ANSWERED + json.dumps(parser(data, bounds), allow_nan=False).encode()
        except RefusedError as refused:
            answer = _REFUSED + str(refused).encode()
        except MemoryError:
            answer = _REFUSED + b"too_big"
        except ImportError as error:
            answer = _LACKS + str(error).encode("utf-8", "replace")[:300]
        view = memoryview(answer)
        while view:
            view = view[os.write(writes, view) :]
        ended = 0
    finally:
        os._exit(ended)  # whatever was raised: nothing of the parent's may run here


def drop_rights(uid: int, memory_bytes: int) -> None:
    """Become `uid` for good, when there is a right to; bound memory and processor time."""
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    """Read the order, become harmless, answer."""
    order = json.loads(sys.stdin.buffer.readline())
    # The folder itself is the host's path; opened first, so that a guest that locks it up can't make a fault of it.
    folder = order["home"]
    home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC) if folder else -1
    drop_rights(int(order["uid"]), SPARE_BYTES + 3 * int(order["total_bytes"]))
    results, blobs = census.read_all(home, order, sys.stdin.buffer.read(), document)
    out = sys.stdout.buffer
    out.write(json.dumps(results).encode() + b"\n")
    for blob in blobs:
        out.write(blob)
    out.flush()
