"""Run by the Python of SGLang's environment: starts its server, bound to the life of the process that asked for it.

    python -P sglang_launch.py PARENT_PID [options of sglang.launch_server]

Invariant: the server dies with its parent, and what the server spawned dies with the server: the kernel tells this
process, and SGLang asks the kernel the same for its own. Standard library only, before SGLang is imported.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the server."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
    sys.argv = ["sglang.launch_server", *sys.argv[2:]]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


# SGLang's processes are spawned: each imports this file again, and must not start another server.
if __name__ == "__main__":
    main()
