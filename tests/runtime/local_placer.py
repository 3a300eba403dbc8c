"""A placer that places hosts on this very machine: `python -P -m tests.runtime.local_placer`."""

# ruff: noqa: ASYNC110 - a file says when, and what is waited for tells of no changes

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from runtime.errors import ConfigError
from runtime.hosts.door import HostTicket
from runtime.hosts.far_process import FarProcess
from runtime.hosts.frames import Machine, PlaceHost
from runtime.hosts.ray import HostUnreachedError, serve


class LocalEngine:
    """`room` desktops are free in all; `via` is a proxy's port that hosts come in by."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._processes: dict[str, FarProcess] = {}
        self._room = args.room
        self._given_up: set[str] = set()

    async def connect(self) -> str:
        if self._args.unusable:
            raise ConfigError(self._args.unusable)
        return str(self._args.address)

    async def machines(self) -> list[Machine]:
        return [Machine(name="m0", total={"desktops": self._args.room}, free={"desktops": self._room})]

    async def place(self, order: PlaceHost, placed: Callable[[str, int], None], said: Callable[[str], None]) -> int:
        if self._args.via:
            ticket = msgspec.msgpack.decode(order.ticket, type=HostTicket)
            order = msgspec.structs.replace(
                order,
                ticket=msgspec.msgpack.encode(
                    msgspec.structs.replace(ticket, address=f"127.0.0.1:{self._args.via}")
                ),
            )  # fmt: skip
        need = order.resources.get("desktops", 0)
        while self._room < need:
            await asyncio.sleep(0.05)
        self._room -= need
        try:
            process = self._processes[order.life] = FarProcess(msgspec.to_builtins(order, builtin_types=(bytes,)))
            there = await asyncio.to_thread(process.where)
            placed("m0", there["pid"])
            while True:
                lines, code = await asyncio.to_thread(process.watch)
                while self._deaf():
                    if order.life in self._given_up:
                        raise HostUnreachedError("it is not known whether it has ended")
                    await asyncio.sleep(0.05)
                for line in lines:
                    said(line)
                if code is not None:
                    return code
        finally:
            self._room += need

    async def kill(self, life: str) -> None:
        if self._deaf() and self._args.gives_up:
            self._given_up.add(life)
        elif not self._deaf() and life in self._processes:
            self._processes[life].kill()

    def _deaf(self) -> bool:
        return bool(self._args.deaf) and Path(self._args.deaf).exists()


parser = argparse.ArgumentParser()
parser.add_argument("--address", default="127.0.0.1")
parser.add_argument("--room", type=float, default=10.0)
parser.add_argument("--via", type=int, default=0)
parser.add_argument("--deaf", default="")  # while this file is there, it can't reach what it has placed
parser.add_argument("--gives-up", action="store_true")  # what it can't reach and is to end, it says no more of
parser.add_argument("--unusable", default="")
if __name__ == "__main__":
    serve(parser, LocalEngine)
