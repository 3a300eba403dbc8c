"""A placing engine whose only machine is this one: `python -P -m tests.bench.placed_here`.

What it places comes in by the run's door at an address that other machines would use, where there is one:
what a bench measures of links then has their TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Callable

import msgspec

from runtime.hosts import door
from runtime.hosts.far_process import FarProcess
from runtime.hosts.frames import Machine, PlaceHost
from runtime.hosts.ray import serve

FAR_AWAY = "192.0.2.1:9"  # an address of no machine: the way there begins at this machine's own address


def own_address() -> str:
    """This machine's address for other machines; that of its loopback where it has no network."""
    try:
        return door.towards(FAR_AWAY)
    except OSError:
        return "127.0.0.1"


class HereEngine:
    """Starts hosts with the process that Ray's engine starts on another machine."""

    def __init__(self, _: argparse.Namespace) -> None:
        self._processes: dict[str, FarProcess] = {}  # by life; a bench has a few

    async def connect(self) -> str:
        """The address of the door."""
        return own_address()

    async def machines(self) -> list[Machine]:
        """This one."""
        return [Machine(name=socket.gethostname(), total={}, free={})]

    async def place(self, order: PlaceHost, placed: Callable[[str, int], None], said: Callable[[str], None]) -> int:
        """Start the life and see it to its end."""
        process = self._processes[order.life] = FarProcess(msgspec.to_builtins(order, builtin_types=(bytes,)))
        there = await asyncio.to_thread(process.where)
        placed(there["machine"], there["pid"])
        while True:
            lines, code = await asyncio.to_thread(process.watch)
            for line in lines:
                said(line)
            if code is not None:
                return code

    async def kill(self, life: str) -> None:
        """End the life."""
        if life in self._processes:
            self._processes[life].kill()


if __name__ == "__main__":
    serve(argparse.ArgumentParser(), HereEngine)
