"""Regular expressions of a model, matched in a process of their own.

Invariant: a search ends within its deadline, whatever the expression: Python's matching can't be interrupted in a
thread and holds up every other one, so a search that takes too long ends with its process. That process reads and
writes its two pipes and nothing else, stays for the next search, and ends with the agent.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import subprocess
import sys
import time
from typing import Any, NamedTuple

MOST = 2000  # matches of one search
MOST_WRITTEN = 200_000  # characters that take the matches' places
MEMORY_BYTES = 256 << 20


class Match(NamedTuple):
    """Where text `at` matches, in characters, and what takes the match's place; None where nothing was asked for."""

    at: int
    start: int
    end: int
    new: str | None


class Unmatched(Exception):  # noqa: N818 - it becomes a refusal
    """Why there is no result, as a sentence that begins with the argument at fault."""


def search(pattern: str, replacement: str | None, texts: list[str]) -> list[Match]:
    """All matches, as `re.sub` finds them; without a replacement those of no character are left out.

    Raises Unmatched.
    """
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        said = f"pattern: {pattern[:60]!r} is no regular expression: {error}"
        raise Unmatched(f"{said}; write \\ before a sign that stands for itself") from error
    found, written = [], 0
    for at, text in enumerate(texts):
        for match in expression.finditer(text):
            if replacement is None and match.end() == match.start():
                continue
            try:
                new = None if replacement is None else match.expand(replacement)
            except (re.error, IndexError) as error:
                said = f"replacement: {error}"
                raise Unmatched(f"{said}; \\1 is the first group in brackets, \\\\ stands for \\ itself") from error
            written += len(new or "")
            found.append(Match(at, *match.span(), new))
            if len(found) > MOST:
                raise Unmatched(f"pattern: it matches in more than {MOST} places; name fewer paragraphs")
            if written > MOST_WRITTEN:
                raise Unmatched(f"replacement: more than {MOST_WRITTEN} characters in all; name fewer paragraphs")
    return found


class Matcher:
    """The process, started when first needed."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def search(self, pattern: str, replacement: str | None, texts: list[str], timeout_s: float) -> list[Match]:
        """As `search` above, within `timeout_s`. Raises Unmatched."""
        until = time.monotonic() + timeout_s
        child = self._running()
        told = b""
        try:
            child.stdin.write(json.dumps([pattern, replacement, texts]).encode() + b"\n")
            child.stdin.flush()
            while not told.endswith(b"\n"):
                if not select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                    raise Unmatched(f"pattern: matching took longer than {timeout_s:g} s: write a simpler expression")
                part = os.read(child.stdout.fileno(), 1 << 16)
                if not part:
                    raise BrokenPipeError
                told += part
        except Unmatched:
            self.end()
            raise
        except OSError as error:
            self.end()
            raise Unmatched("pattern: matching took too much memory: write a simpler expression") from error
        problem, found = json.loads(told)
        if problem is not None:
            raise Unmatched(problem)
        return [Match(*row) for row in found]

    def _running(self) -> Any:
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-I", "-S", __file__]
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        return self._child

    @property
    def pid(self) -> int | None:
        """The process; None where none waits for a search."""
        return None if self._child is None else self._child.pid

    def end(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def answer(asked: bytes) -> bytes:
    """One line of JSON for one line of JSON: [error or None, matches]."""
    told: tuple[Any, Any]
    try:
        told = (None, search(*json.loads(asked)))
    except Unmatched as error:
        told = (str(error), [])
    return json.dumps(told).encode() + b"\n"


def main() -> int:
    """Answer until the other end closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(line))
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
