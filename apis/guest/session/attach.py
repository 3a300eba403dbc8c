"""What runs where the host's SSH connection asks for the agent: gives its input and output to the session, and waits.

Invariant: it ends when the agent does, and holds nothing that the agent needs.
"""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

DOOR = "agent.sock"  # of the session's folder
FDS = 3  # input, output, errors


def main(argv: list[str]) -> int:
    """Have the session start the agent here."""
    parser = argparse.ArgumentParser(prog="attach")
    parser.add_argument("--run", type=Path, required=True)
    args = parser.parse_args(argv)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as session:
        session.connect(str(args.run / DOOR))
        socket.send_fds(session, [b"."], range(FDS))
        session.recv(1)  # nothing comes but the end
    return 0
