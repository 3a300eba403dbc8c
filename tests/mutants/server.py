"""Runs tests on one mutant after another in forks of a process that has loaded what all tests load.

Started in a copy of the tree with what to load as arguments. Each line of its input is a job, each line of its output
the answer: the code that pytest ended with (none where it did not end in time), and the last of what it wrote.
Invariant: a mutant lives in one fork and in the copy's one file, which holds the source again before the answer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHARED = (
    "asyncio", "sqlite3", "msgspec", "pytest", "hypothesis", "hypothesis.strategies", "pytest_asyncio.plugin",
    "pytest_timeout", "_hypothesis_pytestplugin",
)  # fmt: skip
FLAGS = ["-x", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


def carry_out(job: dict[str, Any], output: str) -> int | None:
    """Pytest's exit code or None, in a fork whose processes are all gone afterwards."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        with open(output, "wb", buffering=0) as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        import pytest

        os._exit(int(pytest.main([*FLAGS, *job["tests"]])))
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended], [], [], job["limit_s"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.close(ended)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ready else None


def main() -> None:
    """Answer jobs until there are no more."""
    sys.path.insert(0, os.getcwd())
    for name in (*SHARED, *sys.argv[1:]):
        importlib.import_module(name)
    with tempfile.NamedTemporaryFile(prefix="mutant-") as output:
        for number, line in enumerate(sys.stdin):
            job = json.loads(line)
            began = time.monotonic()
            path = Path(job["file"]) if job.get("file") else None
            sys.dont_write_bytecode = path is not None  # the first, clean run fills the caches
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1" if path is not None else ""
            if path is None:
                code = carry_out(job, output.name)
            else:
                kept, status = path.read_bytes(), path.stat()
                path.write_text(job["source"])
                # Python knows a file by its second and size: by a time of its own no mutant is taken for another, even
                # by processes that the tests start and that heed no environment.
                os.utime(path, (status.st_atime, status.st_mtime + 1000 + number))
                try:
                    code = carry_out(job, output.name)
                finally:
                    path.write_bytes(kept)
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            tail = Path(output.name).read_bytes()[-3000:].decode("utf-8", "replace")
            answer = {"code": code, "seconds": time.monotonic() - began, "tail": tail}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
