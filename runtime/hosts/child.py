"""A process host's own side: `python -P -m runtime.hosts.child`.

Invariant: the process dies with its parent, by the kernel's parent-death signal or when its link ends. It starts no
actor before the parent has compared their code.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import socket
import sys
from pathlib import Path

import uvloop

from runtime.cell import traceback_lines
from runtime.clock import RealClock
from runtime.errors import HostLost
from runtime.hosts.frames import (
    AskStatus,
    Beat,
    Beaten,
    FromChild,
    FromMain,
    GaveUp,
    Hello,
    PeersLost,
    Start,
    Started,
    Statuses,
    StopActors,
    StopHost,
    Stopped,
)
from runtime.hosts.inline import InlineHost
from runtime.logs.runtime_events import HOST_STOPPING, SHUTDOWN_FAILED
from runtime.logs.writer import ActorLog
from runtime.messaging.envelope import Envelope
from runtime.messaging.node import Node
from runtime.messaging.transport import Link
from runtime.origin import check_origin
from runtime.processor import machine_s, process_s
from runtime.stall import StallWatch
from runtime.tasks import TaskScope

PR_SET_PDEATHSIG = 1


class ChildHost:
    """Runs what the parent sends and passes on what is not for here."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._link: Link[FromMain | FromChild]
        self._log = ActorLog(Path(args.run_dir), f"host/{args.name}", args.log_level)
        self._node = Node(args.name, Path(args.run_dir), RealClock(), self._log, self)
        self._inline = InlineHost(self._node, args.log_level, self._gave_up)
        self._watch = StallWatch(self._inline, args.stall_after_s)
        self._jobs = TaskScope(self._job_failed)
        self._broken: BaseException | None = None

    async def send(self, envelope: Envelope) -> None:
        """The uplink of the node: all that is not here goes through the main host."""
        await self._link.send(envelope, max(0.001, envelope.left_s()))

    def answer(self, envelope: Envelope) -> bool:
        """The uplink of the node, for answers."""
        try:
            self._link.write(envelope)
        except HostLost:
            return False
        return True

    async def run(self) -> None:
        """Serve until the parent says stop or its end of the link closes."""
        sock = socket.socket(fileno=self._args.fd)
        sock.set_inheritable(False)
        self._link = await Link.of_socket(sock, FromMain)
        origin = check_origin()
        self._link.write(Hello(name=self._args.name, pid=os.getpid(), root=origin.root, build=origin.build))
        self._jobs.spawn(self._watch.run(), "stall watch")
        while (frame := await self._link.receive()) is not None and not isinstance(frame, StopHost):
            self._handle(frame)
            if self._broken is not None:
                raise self._broken
        self._log.emit(HOST_STOPPING, name=self._args.name, asked=frame is not None)
        await self._jobs.close(2.0)
        (failure,) = await asyncio.gather(self._inline.close(), return_exceptions=True)
        if failure is not None:
            cause = f"{type(failure).__name__}: {failure}"
            self._log.emit(SHUTDOWN_FAILED, name=self._args.name, error=cause, traceback=traceback_lines(failure))
        await self._link.close()
        self._log.close()

    def _handle(self, frame: FromMain | FromChild) -> None:
        match frame:
            case Envelope():
                self._node.accept(frame)
            case Start():
                for spec in frame.specs:
                    self._inline.add(spec).add_done_callback(functools.partial(self._started, spec.name))
            case StopActors():
                self._jobs.spawn(self._stop_actors(frame), f"stop {frame.id}")
            case AskStatus():
                self._report(Statuses(id=frame.id, actors=self._inline.statuses()))
            case Beat():
                lag_s = self._watch.take_lag_s()
                self._report(Beaten(id=frame.id, cpu_s=process_s(), machine_cpu_s=machine_s(), lag_s=lag_s))
            case PeersLost():
                self._node.peers_lost(frame.names, frame.reason)

    def _started(self, name: str, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._report(Started(name=name))

    def _gave_up(self, name: str, reason: str) -> None:
        self._report(GaveUp(name=name, reason=reason))

    async def _stop_actors(self, frame: StopActors) -> None:
        await self._inline.remove(frame.names)
        self._report(Stopped(id=frame.id))

    def _report(self, frame: Started | GaveUp | Stopped | Beaten | Statuses) -> None:
        with contextlib.suppress(HostLost):  # `run` is about to see the end of the link and to stop
            self._link.write(frame)

    def _job_failed(self, _name: str, error: BaseException) -> None:
        self._broken = error


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; exit now when it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser(prog="runtime.hosts.child")
    parser.add_argument("--name", required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--stall-after-s", type=float, default=60.0)
    parser.add_argument("--nice", type=int, default=0)
    args = parser.parse_args()
    die_with(args.parent)
    # The terminal's Ctrl-C and its end are the parent's business: it stops its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.nice(args.nice)
    uvloop.run(ChildHost(args).run())


if __name__ == "__main__":
    main()
