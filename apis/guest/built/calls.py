"""Calls of generated functions, each answered by a worker that is killed at its deadline.

A worker that ended, was killed or wrote something else is the function's fault: `Refused` of kind `function_crashed`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from guest import Refused

WORKER = Path(__file__).with_name("worker.py")
PLACE = Path(__file__).resolve().parents[1] / "accepted"  # a folder of each accepted API: api.json and its sources
CALL_S = 8.0  # less than the agent waits
ANSWER_BYTES = 256 << 10
SAID_CHARS = 5000  # as of every other function


class Worker:
    """One process, started when first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: dict[str, Any], timeout_s: float = CALL_S) -> dict[str, Any]:
        """The answer to a job. Raises Refused `function_crashed`."""
        process = self._started()
        assert process.stdin is not None
        number = os.urandom(8).hex()  # so that no function answers for the next one
        try:
            process.stdin.write(json.dumps(job | {"i": number}).encode() + b"\n")
            process.stdin.flush()
            answer: Any = json.loads(self._line(process, time.monotonic() + timeout_s))
            if not isinstance(answer, dict) or answer.get("i") != number:
                raise ValueError("no answer")
            del answer["i"]
        except TimeoutError:
            self.stop()
            raise Refused("function_crashed", f"{job['name']} did not end within {timeout_s:g} s") from None
        except (OSError, ValueError, RecursionError):
            self.stop()
            raise Refused("function_crashed", f"{job['name']} ended its process") from None
        return answer

    def _line(self, process: subprocess.Popen[bytes], until: float) -> bytes:
        assert process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not ready.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                piece = os.read(process.stdout.fileno(), ANSWER_BYTES)
                line += piece
                if not piece or len(line) > ANSWER_BYTES:
                    raise ValueError("no line")
        return line

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._process

    def stop(self) -> None:
        """Kill it with all that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None


class Calls:
    """The functions of accepted APIs, and of sources that are being tried."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._jobs: dict[tuple[str, str], tuple[str, dict[str, Any]]] | None = None

    def has(self, owner: str, name: str) -> bool:
        """Whether an accepted API has this function."""
        return (owner, name) in self._accepted()

    def call(self, owner: str, name: str, arguments: dict[str, Any]) -> str:
        """What an accepted function says. Raises Refused."""
        folder, job = self._accepted()[owner, name]
        return self._said(folder, job | {"arguments": arguments})

    def tried(self, worker: str, **job: Any) -> str:
        """What a function says: `source`, `name`, `arguments`, `helpers`, `imports`. Raises Refused.

        Functions of one `worker` run in one process.
        """
        return self._said(f"tried {worker}", job)

    def looked(self, source: str, name: str, params: list[str], imports: list[str]) -> dict[str, Any]:
        """What is wrong with a source, and its mutants. Raises Refused."""
        worker = Worker()
        try:
            return worker.ask({"do": "look", "source": source, "name": name, "params": params, "imports": imports})
        finally:
            worker.stop()

    def stop(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.stop()

    def _said(self, worker: str, job: dict[str, Any]) -> str:
        answer = self._workers.setdefault(worker, Worker()).ask({"do": "call", **job})
        said = {kind: str(text).encode("utf-8", "replace").decode() for kind, text in answer.items()}
        if "says" in said:
            return said["says"][:SAID_CHARS]
        if "refuses" in said:
            raise Refused("tool_failed", said["refuses"][:500])
        raise Refused("function_crashed", said.get("fails", "no answer")[-400:])

    def _accepted(self) -> dict[tuple[str, str], tuple[str, dict[str, Any]]]:
        if self._jobs is None:
            self._jobs = {}
            for file in sorted(PLACE.glob("*/api.json")):
                api = json.loads(file.read_text())
                for name, source in json.loads(file.with_name("code.json").read_text()).items():
                    job = {"source": source, "name": name, "helpers": api["helpers"], "imports": api["imports"]}
                    self._jobs[api["owner"], name] = (file.parent.name, job)
        return self._jobs
