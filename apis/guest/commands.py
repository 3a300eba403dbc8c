"""Commands of task files, run to their end.

Invariant: a command and what it started are gone at the deadline, and its output is bounded. A program that it leaves
behind on purpose lives on, without a hold on the output.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import Any

from guest.errors import Refused

OUT_BYTES = 256 << 10
GRACE_S = 0.3  # for output of what a command left behind


def run(argv: list[str], timeout_ms: int = 10_000, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command in HOME, with `env` besides the session's environment; its exit status and what it wrote.

    The status is None at the deadline. Raises Refused `failed`.
    """
    if not argv or not all(isinstance(part, str) for part in argv):
        raise Refused("bad_request", "argv is a list of strings")
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=os.environ["HOME"],
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except OSError as error:
        raise Refused("failed", f"{argv[0]}: {error.strerror}") from error
    out = _output(child, time.monotonic() + timeout_ms / 1000)
    code = child.poll()
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return {"code": code, "out": out.decode("utf-8", "replace")}


def _output(child: subprocess.Popen[bytes], until: float) -> bytes:
    """What `child` writes until it has ended; what is beyond the bound is read and dropped."""
    assert child.stdout is not None
    kept = bytearray()
    with child.stdout as pipe, selectors.DefaultSelector() as selector:
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if selector.select(min(left, GRACE_S)):
                part = pipe.read(1 << 16)
                if not part:
                    break
                kept += part[: OUT_BYTES - len(kept)]
            elif child.poll() is not None:
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
    return bytes(kept)
