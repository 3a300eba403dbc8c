"""Starts a host on the machine that Ray chose, passes on its output and reports how it ended.

Invariant: the host's process group ends with this process or by `kill`, and its folder is removed. Standard library
only: this module travels by value to a process whose import path may have other modules named `runtime`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

MARK = "computerrl-host-"  # how folders of hosts are named; then comes this process's number
MAX_LINE = 2000
MAX_LINES = 1000  # that wait to be fetched; the oldest go first
MOST_LATE = 100  # reads after its end: something that it left may go on writing
WAIT_S = 20.0


def remove_left() -> None:
    """Remove what killed processes of this kind left on this machine."""
    for entry in os.scandir(tempfile.gettempdir()):
        owner = entry.name.removeprefix(MARK).partition("-")[0]
        if entry.name.startswith(MARK) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            shutil.rmtree(entry.path, ignore_errors=True)


class FarProcess:
    """One life of a host. `order` is a dict of plain values (`frames.PlaceHost`): it travels by value, too."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = ""
        self._begun = threading.Event()
        # The host dies with its parent, by which the kernel means the thread that has forked it: this thread stays.
        threading.Thread(target=self._run, name="host", daemon=True).start()

    def where(self) -> dict[str, Any]:
        """The machine's name, its node in the cluster and the host's process number."""
        self._begun.wait()
        if self._process is None:
            raise OSError(self._failed)
        ray = sys.modules.get("ray")
        node = ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else ""
        return {"machine": socket.gethostname(), "node": node, "pid": self._process.pid}

    def watch(self) -> tuple[list[str], int | None]:
        """Lines said since the last call, and the exit code once the host has ended; waits a while for either."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._code is not None, WAIT_S)
            lines, self._lines = self._lines, []
            return lines, self._code

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _run(self) -> None:
        remove_left()
        folder = tempfile.mkdtemp(prefix=f"{MARK}{os.getpid()}-")
        try:
            output = self._start(folder)
        except OSError as error:
            self._failed = f"the host can't be started: {error}"
            shutil.rmtree(folder, ignore_errors=True)
            self._begun.set()
            return
        self._begun.set()
        assert self._process is not None
        rest, waited, late = b"", os.pidfd_open(self._process.pid), 0
        sources = [output, waited]
        try:
            while late < MOST_LATE:
                ready, _, _ = select.select(sources, [], [])
                if output not in ready:
                    break  # it has ended, and all that it output has been read
                late += waited in ready
                if chunk := os.read(output, 65_536):
                    *lines, rest = (rest + chunk).split(b"\n")
                    rest = rest[:MAX_LINE]
                    self._say(lines)
                else:
                    sources.remove(output)
            self._say([rest] if rest else [])
        finally:
            self.kill()  # what the host has left in its group; the number is not given away before `wait`
            code = self._process.wait()
            os.close(waited)
            os.close(output)
            shutil.rmtree(folder, ignore_errors=True)
            with self._changed:
                self._code = code
                self._changed.notify_all()

    def _start(self, folder: str) -> int:
        """Start the host; returns the descriptor of what it says."""
        order, parent = self._order, os.getpid()
        run_dir = os.path.join(folder, order["run"])  # what a run makes on a machine is called by this folder's name
        os.mkdir(run_dir)
        names, families = tuple(order["names"]), tuple(order["families"])
        kept = {k: v for k, v in os.environ.items() if k in names or k.startswith(families)}
        if os.path.isdir(os.path.join(order["root"], "runtime")):
            kept["PYTHONPATH"] = order["root"]  # the same checkout is here; else this machine has the package installed
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runtime.hosts.child", f"--parent={parent}", f"--run-dir={run_dir}"]
                + order["arguments"],
                stdin=subprocess.PIPE,
                stdout=write_end,
                stderr=write_end,
                env={**kept, **order["env"]},
                cwd=folder,
                start_new_session=True,
            )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and says so
            self._process.stdin.write(order["ticket"])
            self._process.stdin.close()
        return read_end

    def _say(self, lines: list[bytes]) -> None:
        if lines:
            with self._changed:
                self._lines += [line[:MAX_LINE].decode(errors="replace") for line in lines]
                del self._lines[:-MAX_LINES]
                self._changed.notify_all()
