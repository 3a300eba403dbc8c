"""A running `computerrl serve-env` and a session at it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openenv.core import GenericEnvClient

READY = re.compile(r"serving \d+ tasks at (http://token:[\w-]+@127\.0\.0\.1:\d+)")


@contextmanager
def served(*words: str) -> Iterator[str]:
    """The address with the token of a server of these tasks, which has to end well on SIGTERM."""
    command = [sys.executable, "-P", "-m", "actors.cluster.cli", "serve-env", *words, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            found = READY.match(line := server.stdout.readline())
            assert found, line
            yield found[1]
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait(120)
    assert status == 0


def session(address: str) -> Any:
    """A client with a session of its own."""
    return GenericEnvClient(base_url=address, message_timeout_s=60).sync()
