"""A process host's own side: `python -P -m runtime.hosts.child`.

Invariant: the process dies with its parent, by the kernel's parent-death signal or when its link ends. It starts no
actor before the main host has compared their code. Away from the main host it stops when it has had no heartbeat for
`silent_limit_s`, and has ended `STOP_S` later even if its loop hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec
import uvloop

from runtime import disk
from runtime.cell import InlineHost, StallWatch, traceback_lines
from runtime.clock import RunClock
from runtime.errors import HostLost
from runtime.hosts import frames
from runtime.hosts.door import MARK, HostTicket, enter
from runtime.logs.writer import HOST_STOPPING, SHUTDOWN_FAILED, host_log
from runtime.messaging.message import Envelope
from runtime.messaging.node import Node
from runtime.program import Below, boot_id, check_origin, die_with, machine_s
from runtime.waits import TaskScope

STOP_S = 15.0  # that a host has to stop by itself; then it is killed
MARGIN_S = 5.0  # for a heartbeat that was under way when the machine was cut off


class DeadMan:
    """Counts from the last heartbeat. With a limit of 0 nothing is counted: the parent is on this machine."""

    def __init__(self, limit_s: float, grace_s: float) -> None:
        self._limit_s, self._grace_s = limit_s, grace_s
        self._fed = time.monotonic()
        self._rest = threading.Event()
        if limit_s:
            threading.Thread(target=self._watch, name="dead man", daemon=True).start()

    def fed(self) -> None:
        self._fed = time.monotonic()

    def rest(self) -> None:
        self._rest.set()

    def left_s(self) -> float | None:
        """Seconds until the host has to stop, None where nothing is counted."""
        return max(0.0, self._fed + self._limit_s - time.monotonic()) if self._limit_s else None

    def _watch(self) -> None:
        while (left_s := self._fed + self._limit_s + self._grace_s - time.monotonic()) > 0:
            if self._rest.wait(left_s):
                return
        os.killpg(0, signal.SIGKILL)  # the host leads a group of its own


class ChildHost:
    """Runs what the parent sends and passes on what is not for here."""

    def __init__(self, args: argparse.Namespace, ticket: HostTicket | None) -> None:
        self._args, self._ticket = args, ticket
        self._link: frames.Link[frames.FromMain | frames.FromChild]
        self._clock = RunClock()
        run_dir, home = Path(args.run_dir), Path(args.home or args.run_dir)
        self._sees_run = ticket is None or _marked(home, ticket)
        self._log = host_log(home if self._sees_run else run_dir, args.name, args.log_level, self._clock)
        self._node = Node(args.name, run_dir, self._clock, self._log, self)
        self._node.ticket, self._node.home = ticket, home
        self._inline = InlineHost(self._node, self._gave_up)
        self._watch = StallWatch(self._inline, args.stall_after_s)
        self._below = Below() if args.counts_below else None
        self._dead_man = DeadMan(args.silent_limit_s, STOP_S)
        self._jobs = TaskScope(self._job_failed)
        self._starting = 0  # actors
        self._broken: BaseException | None = None

    async def send(self, envelope: Envelope) -> None:
        await self._link.send(envelope, max(0.001, envelope.left_s(self._clock.now())))

    def answer(self, envelope: Envelope) -> bool:
        try:
            self._link.write(envelope)
        except HostLost:
            return False
        return True

    async def run(self) -> None:
        self._link = await self._linked()
        origin = check_origin()
        hello = frames.Hello(
            name=self._args.name, pid=os.getpid(), root=origin.root, build=origin.build, boot=boot_id(),
            sees_run=self._sees_run,
        )  # fmt: skip
        self._link.write(hello)
        self._jobs.spawn(self._watch.run(), "stall watch")
        while (frame := await self._next()) is not None and not isinstance(frame, frames.StopHost):
            self._handle(frame)
            if self._broken is not None:
                raise self._broken
        if frame is not None:
            self._dead_man.rest()
        self._log.emit(HOST_STOPPING, name=self._args.name, asked=frame is not None)
        await self._jobs.close(2.0)
        (failure,) = await asyncio.gather(self._inline.close(), return_exceptions=True)
        if failure is not None:
            cause = f"{type(failure).__name__}: {failure}"
            self._log.emit(SHUTDOWN_FAILED, name=self._args.name, error=cause, traceback=traceback_lines(failure))
        await self._link.close()
        self._log.close()

    async def _linked(self) -> frames.Link[frames.FromMain | frames.FromChild]:
        """The link to the main host: the socket that this process was born with, or by the ticket on its input."""
        if self._ticket is not None:
            return frames.Link(*await enter(self._ticket), frames.FromMain)
        sock = socket.socket(fileno=self._args.fd)
        sock.set_inheritable(False)
        return await frames.Link.of_socket(sock, frames.FromMain)

    async def _next(self) -> frames.FromMain | frames.FromChild | None:
        """The next frame; None where the link has ended, or where the main host has given this life up by now."""
        try:
            async with asyncio.timeout(self._dead_man.left_s()):
                return await self._link.receive()
        except (HostLost, TimeoutError):
            return None

    def _handle(self, frame: frames.FromMain | frames.FromChild) -> None:
        match frame:
            case Envelope():
                self._node.accept(frame)
            case frames.Start():
                self._starting += len(frame.specs)
                for spec in frame.specs:
                    self._inline.add(spec).add_done_callback(functools.partial(self._started, spec.name))
            case frames.Configure():
                self._jobs.spawn(self._configure(frame), f"configure {frame.id}")
            case frames.StopActors():
                self._jobs.spawn(self._stop_actors(frame), f"stop {frame.id}")
            case frames.AskStatus():
                self._report(frames.Statuses(id=frame.id, actors=self._inline.statuses()))
            case frames.Beat():
                self._dead_man.fed()
                self._report(self._beaten(frame))
            case frames.SetClock():
                self._clock.set(frame.offset_s, frame.wall_s)
            case frames.PeersLost():
                self._node.peers_lost(frame.names, frame.reason)

    def _started(self, name: str, future: asyncio.Future[None]) -> None:
        self._starting -= 1
        if not self._starting:  # what is there by now stays: no later look for garbage has to go through it
            gc.freeze()
        if not future.cancelled() and future.exception() is None:
            self._report(frames.Started(name=name))

    def _gave_up(self, name: str, reason: str) -> None:
        self._report(frames.GaveUp(name=name, reason=reason))

    async def _stop_actors(self, frame: frames.StopActors) -> None:
        await self._inline.remove(frame.names)
        self._report(frames.CarriedOut(id=frame.id))

    async def _configure(self, frame: frames.Configure) -> None:
        await self._inline.configure(frame.specs)
        self._report(frames.CarriedOut(id=frame.id))

    def _beaten(self, frame: frames.Beat) -> frames.Beaten:
        clock, lag_s = self._clock.own.now(), self._watch.take_lag_s()
        cpu_s = time.process_time() + (0.0 if self._below is None else self._below.read_s())
        return frames.Beaten(id=frame.id, clock=clock, cpu_s=cpu_s, machine_cpu_s=machine_s(), lag_s=lag_s)

    def _report(
        self, frame: frames.Started | frames.GaveUp | frames.CarriedOut | frames.Beaten | frames.Statuses
    ) -> None:
        with contextlib.suppress(HostLost):  # `run` is about to see the end of the link and to stop
            self._link.write(frame)

    def _job_failed(self, _name: str, error: BaseException) -> None:
        self._broken = error


def _marked(home: Path, ticket: HostTicket) -> bool:
    """Whether this machine has the run's folder at the same path."""
    try:
        return disk.read_text(home / MARK) == ticket.mark
    except (OSError, UnicodeDecodeError):
        return False


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser(prog="runtime.hosts.child")
    parser.add_argument("--name", required=True)
    parser.add_argument("--fd", type=int)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--home", default="")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--stall-after-s", type=float, default=60.0)
    parser.add_argument("--silent-limit-s", type=float, default=0.0)
    parser.add_argument("--counts-below", action="store_true")
    args = parser.parse_args()
    die_with(args.parent)
    # The terminal's Ctrl-C and its end are the parent's business: it stops its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ticket = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=HostTicket) if args.fd is None else None
    uvloop.run(ChildHost(args, ticket).run())


if __name__ == "__main__":
    main()
