"""Regular expressions of a model, matched in a process of their own.

Invariant: a search ends within its deadline. Python's matching can't be interrupted in a thread and holds up every
other one. What counts is processor time, so that a busy machine refuses no expression that a resting one takes.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
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


def matched(pattern: str, replacement: str | None, texts: list[str], limit_s: float = MATCH_S) -> list[Match]:
    """As `search`, in a process that may take `limit_s` of the processor's time. Raises Unmatched."""
    asked, null = json.dumps([pattern, replacement, texts]).encode(), subprocess.DEVNULL
    command = [sys.executable, "-I", "-S", __file__, str(limit_s)]
    try:
        done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, stderr=null, timeout=WAIT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise Unmatched(f"pattern: matching took longer than {WAIT_S:g} s: write a simpler expression") from error
    except subprocess.CalledProcessError as error:
        much = f"longer than {limit_s:g} s" if error.returncode == -signal.SIGVTALRM else "too much memory"
        raise Unmatched(f"pattern: matching took {much}: write a simpler expression") from error
    problem, matches = json.loads(done.stdout)
    if problem is not None:
        raise Unmatched(problem)
    return [Match(*row) for row in matches]


def main() -> int:
    """Answer one line of JSON with [error or None, matches]; a search that takes longer than the argument says ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.read())
    signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))  # its signal ends the process
    try:
        reply: list[Any] = [None, search(*asked)]
    except Unmatched as error:
        reply = [str(error), []]
    sys.stdout.write(json.dumps(reply))
    return 0


if __name__ == "__main__":
    sys.exit(main())
