"""Regular expressions of a model, matched in a process of their own.

Invariant: a search ends within its deadline. Python's matching can't be interrupted in a thread and holds up every
other one. What counts is processor time, so that a busy machine refuses no expression that a resting one takes.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple

MOST = 2000  # matches of one search
MOST_WRITTEN = 200_000  # characters that take the matches' places
MEMORY_BYTES = 256 << 20
MATCH_S = 1.0  # of processor time
WAIT_S = 7.0  # for the result; less than a call may take


class Match(NamedTuple):
    """Where text `at` matches, in characters, and what takes the match's place; None where nothing was asked for."""

    at: int
    start: int
    end: int
    new: str | None
    rest: bool = False  # it goes on behind something within the match


class Unmatched(Exception):  # noqa: N818 - it becomes a refusal
    """Why there is no result, as a sentence that begins with the argument at fault."""


def search(pattern: str, replacement: str | None, texts: list[str]) -> list[Match]:
    """All matches, as `re.sub` finds them; without a replacement those of no character are left out.

    Raises Unmatched.
    """
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        why = f"pattern: {pattern[:60]!r} is no regular expression: {error}"
        raise Unmatched(f"{why}; write \\ before a sign that stands for itself") from error
    matches, written = [], 0
    for at, text in enumerate(texts):
        for match in expression.finditer(text):
            if replacement is None and match.end() == match.start():
                continue
            try:
                new = None if replacement is None else match.expand(replacement)
            except (re.error, IndexError) as error:
                why = f"replacement: {error}"
                raise Unmatched(f"{why}; \\1 is the first group in brackets, \\\\ stands for \\ itself") from error
            written += len(new or "")
            matches.append(Match(at, *match.span(), new))
            if len(matches) > MOST:
                raise Unmatched(f"pattern: it matches in more than {MOST} places; name fewer paragraphs")
            if written > MOST_WRITTEN:
                raise Unmatched(f"replacement: more than {MOST_WRITTEN} characters in all; name fewer paragraphs")
    return matches


class Matcher:
    """The process, started when first needed; a search may take `limit_s` of its processor time."""

    def __init__(self, limit_s: float = MATCH_S) -> None:
        self._limit_s = limit_s
        self._child: subprocess.Popen[bytes] | None = None

    def search(self, pattern: str, replacement: str | None, texts: list[str]) -> list[Match]:
        """As `search` above, in time. Raises Unmatched."""
        until = time.monotonic() + WAIT_S
        child = self._running()
        reply = b""
        try:
            child.stdin.write(json.dumps([pattern, replacement, texts]).encode() + b"\n")
            child.stdin.flush()
            while not reply.endswith(b"\n"):
                if not select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                    raise Unmatched(f"pattern: matching took longer than {WAIT_S:g} s: write a simpler expression")
                part = os.read(child.stdout.fileno(), 1 << 16)
                if not part:
                    raise BrokenPipeError
                reply += part
        except Unmatched:
            self.end()
            raise
        except OSError as error:
            late = self.end() == -signal.SIGVTALRM
            much = f"longer than {self._limit_s:g} s" if late else "too much memory"
            raise Unmatched(f"pattern: matching took {much}: write a simpler expression") from error
        problem, matches = json.loads(reply)
        if problem is not None:
            raise Unmatched(problem)
        return [Match(*row) for row in matches]

    def _running(self) -> Any:
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-I", "-S", __file__, str(self._limit_s)]
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        return self._child

    @property
    def pid(self) -> int | None:
        """The process; None where none waits for a search."""
        return None if self._child is None else self._child.pid

    def end(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        child.kill()  # no effect where it has ended
        child.communicate()
        return child.returncode


def answer(asked: bytes) -> bytes:
    """One line of JSON for one line of JSON: [error or None, matches]."""
    reply: tuple[Any, Any]
    try:
        reply = (None, search(*json.loads(asked)))
    except Unmatched as error:
        reply = (str(error), [])
    return json.dumps(reply).encode() + b"\n"


def main() -> int:
    """Answer until the other end closes; a search that takes longer than the argument says is the last."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))  # its signal ends the process
        reply = answer(line)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
