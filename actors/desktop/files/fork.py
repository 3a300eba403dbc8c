"""Parses a hostile file in a child process of its own.

Invariant: whatever the file does to the parser, it ends in an answer or in a refusal of that file. A child that another
program killed, or that lacks a package, is an error of this machine (ChildLostError), no refusal.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.read.parse import PACKAGES, PARSERS

_REFUSED, _ANSWERED, _LACKS = b"r", b"a", b"l"
_PIECE = 1 << 20
_CRASHED, _UNLIMITED = 1, 2  # exit statuses of a child


class ChildLostError(Exception):
    """The child was ended from outside or lacks a package, so nothing is known about the file."""


def parsed(data: bytes, bounds: Bounds, kind: str = "workbook") -> bytes:
    """The workbook, or another `kind` of document (`apis.tasks.verify.verify.KINDS`), as JSON.

    Raises RefusedError, ChildLostError, and KeyError for a kind that is not known.
    """
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
            said = _ANSWERED + json.dumps(parser(data, bounds), allow_nan=False).encode()
        except RefusedError as refused:
            said = _REFUSED + str(refused).encode()
        except MemoryError:
            said = _REFUSED + b"too_big"
        except ImportError as error:
            said = _LACKS + str(error).encode("utf-8", "replace")[:300]
        view = memoryview(said)
        while view:
            view = view[os.write(writes, view) :]
        ended = 0
    finally:
        os._exit(ended)  # whatever was raised: nothing of the parent's may run here
