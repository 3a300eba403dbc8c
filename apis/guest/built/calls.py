"""Calls of generated functions, each answered by a worker that is killed at its deadline.

A worker that ended, was killed or wrote something else is the function's fault: `Refused` of kind `function_crashed`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from guest import Refused

WORKER = Path(__file__).with_name("worker.py")
PLACE = Path(__file__).resolve().parents[1] / "accepted"  # a folder of each accepted API, with its api.json
CALL_S = 8.0  # less than the agent waits
ANSWER_BYTES = 256 << 10
SAID_CHARS = 5000  # as of every other function


class Worker:
    """One process."""

    def __init__(self) -> None:
        given: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-I", str(WORKER)]
        self._process: subprocess.Popen[bytes] = subprocess.Popen(command, start_new_session=True, **given)

    def ask(self, job: dict[str, Any], timeout_s: float = CALL_S) -> dict[str, Any]:
        """The answer to a job. Raises Refused `function_crashed`, and the process has ended then."""
        assert self._process.stdin is not None
        number = os.urandom(8).hex()  # so that no function answers for the next one
        try:
            self._process.stdin.write(json.dumps(job | {"i": number}).encode() + b"\n")
            self._process.stdin.flush()
            answer: Any = json.loads(self._line(time.monotonic() + timeout_s))
            if not isinstance(answer, dict) or answer.pop("i", "") != number:
                raise ValueError("no answer")
        except (OSError, ValueError, RecursionError) as error:
            self.stop()
            how = f"did not end within {timeout_s:g} s" if isinstance(error, TimeoutError) else "ended its process"
            raise Refused("function_crashed", f"{job['name']} {how}") from None
        return answer

    def _line(self, until: float) -> bytes:
        out, line = self._process.stdout, b""
        assert out is not None
        while not line.endswith(b"\n"):
            if not select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            piece = os.read(out.fileno(), ANSWER_BYTES)
            line += piece
            if not piece or len(line) > ANSWER_BYTES:
                raise ValueError("no line")
        return line

    @property
    def ended(self) -> bool:
        """Whether it takes no job any more. Its number stays its own until `stop`."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def stop(self) -> None:
        """Kill it with all that it started, once: its number is another's later."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


class Calls:
    """The functions of accepted APIs, and those that are offered to this desktop alone."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._jobs: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}  # by owner and name, with its worker
        for file in sorted(PLACE.glob("*/api.json")):
            api = json.loads(file.read_text())
            for each in api["functions"]:
                given = {"helpers": api.get("helpers", ""), "imports": api.get("imports", [])}
                self.offer(api["owner"], each["name"], each["code"], worker=file.parent.name, **given)

    def offer(  # noqa: PLR0917 - what a function is
        self, owner: str, name: str, source: str, helpers: str, imports: list[str], worker: str = ""
    ) -> None:
        """Have a function from here on; functions of one `worker`, or of one owner, run in one process."""
        job = {"do": "call", "source": source, "name": name, "helpers": helpers, "imports": imports}
        self._jobs[owner, name] = (worker or owner, job)

    def has(self, owner: str, name: str) -> bool:
        """Whether there is this function."""
        return (owner, name) in self._jobs

    def call(self, owner: str, name: str, arguments: dict[str, Any]) -> str:
        """What a function says. Raises Refused."""
        worker, job = self._jobs[owner, name]
        if worker in self._workers and self._workers[worker].ended:
            self._workers.pop(worker).stop()
        if worker not in self._workers:
            self._workers[worker] = Worker()
        answer = self._workers[worker].ask(job | {"arguments": arguments})
        said = {kind: str(text).encode("utf-8", "replace").decode() for kind, text in answer.items()}
        if "says" in said:
            return said["says"][:SAID_CHARS]
        if "refuses" in said:
            raise Refused("tool_failed", said["refuses"][:500])
        raise Refused("function_crashed", said.get("fails", "no answer")[-400:])

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
