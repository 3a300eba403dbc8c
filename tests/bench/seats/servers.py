"""Servers of simulated desktops for as long as a block lasts.

Invariant: no server and no key outlives the block, nor the process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import msgspec

from actors.desktop.config import MachineConfig
from runtime.errors import ConfigError
from tests.bench.seats import guests


@contextlib.contextmanager
def serving(
    folder: Path, count: int, screen: str, desktops: int, changed: float = guests.CHANGED
) -> Iterator[list[MachineConfig]]:
    """`count` servers with room for `desktops` each, their keys in `folder`; `changed` is a share of the elements.

    Raises ConfigError.
    """
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    host_key.write_private_key(folder / "host_key")
    client_key.write_private_key(folder / "client_key")
    client_key.write_public_key(folder / "client_keys")
    config = guests.GuestsConfig(
        host_key=str(folder / "host_key"),
        client_keys=str(folder / "client_keys"),
        screen=screen,
        parent=os.getpid(),
        changed=changed,
    )
    command = [sys.executable, "-m", guests.__name__, msgspec.json.encode(config).decode()]
    with contextlib.ExitStack() as running:
        made = []
        for _ in range(count):
            server = running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            running.callback(server.kill)
            said = server.stdout.readline() if server.stdout else ""
            if not said:
                raise ConfigError("a server of simulated desktops has ended; its reason stands above")
            made.append(
                MachineConfig(
                    host="127.0.0.1",
                    port=int(said),
                    user="bench",
                    client_key=str(folder / "client_key"),
                    host_key=host_key.export_public_key().decode(),
                    desktops=desktops,
                )
            )
        yield made
