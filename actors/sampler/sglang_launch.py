"""Starts SGLang's server in its own environment, bound to the life of the process that asked for it.

    python -P sglang_launch.py PARENT_PID [options of sglang.launch_server]

Invariant: no process of the server outlives this process or the process that asked for it. A guard stays in this
process and ends the whole group when its parent or the server has ended. SGLang's own processes notice the end of
theirs only after their imports, which take long.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import shutil
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _end_all(*_: object) -> None:
    folder = os.environ.get("TMPDIR", "")
    if os.path.basename(folder).startswith("crl-sglang-"):  # made for this server alone
        shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _die_with_parent(parent: int, number: signal.Signals) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        _end_all()


def _end_others() -> None:
    """End all of this group but this process, whose exit status is still to be reported."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getpgid(int(name)) == os.getpgid(0):
                    os.kill(int(name), signal.SIGKILL)
            except ProcessLookupError:  # it has just ended
                continue


def main() -> None:
    """Start the server and guard it; ends with its exit status."""
    parent, guard = int(sys.argv[1]), os.getpid()
    server = os.fork()
    if server == 0:
        _die_with_parent(guard, signal.SIGKILL)
        # Every user may read a command line. A key may begin with "-", which only `=` keeps from being an option.
        key = os.environ.pop("COMPUTERRL_TOKEN", "")
        sys.argv = ["sglang.launch_server", *sys.argv[2:], *([f"--api-key={key}"] if key else [])]
        runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
        return
    signal.signal(signal.SIGTERM, _end_all)
    _die_with_parent(parent, signal.SIGTERM)
    _, status = os.waitpid(server, 0)
    _end_others()
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


# SGLang's processes are spawned: each imports this file again, and must not start another server.
if __name__ == "__main__":
    main()
