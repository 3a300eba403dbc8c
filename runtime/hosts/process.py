"""Actors in a child process, here or on another machine, seen from the main host.

Invariant: while the child lives, messages for its actors go to it. When it is lost, every ask to its actors fails at
once. Its process group is killed and reaped before a new child starts; on a machine that can't be reached it has then
stopped by itself. Later asks wait for the new child up to their deadline. A child that stays silent for long enough is
lost, too.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from runtime.cell import CONFIG_S
from runtime.clock import PINGS, ClockOffset, wall_ahead_s
from runtime.errors import ActorFailed, ActorGone, ComputerRLError, ConfigError, DeadlineExceeded, HostLost, MailboxFull
from runtime.hosts import frames
from runtime.hosts.child import MARGIN_S, STOP_S
from runtime.hosts.launch import Launched
from runtime.logs.writer import HOST_BEATS, HOST_LOST, HOST_OUTPUT, HOST_RESTARTS, HOST_STARTED, STALL
from runtime.messaging.message import Envelope
from runtime.messaging.node import MAX_PARKED, Node
from runtime.program import boot_id, check_origin
from runtime.spec import HostSpec, WireSpec
from runtime.supervision import GiveUp, RestartBudget
from runtime.waits import ActorStatus, TaskScope, waiting


class Hub(Protocol):
    """What a process host needs of the system."""

    def route(self, envelope: Envelope) -> None:
        """Take an envelope that came from the child. Never waits."""

    def host_lost(self, host: str, names: Collection[str], reason: str) -> None:
        """The child and the actors `names` in it are gone."""

    def give_up(self, name: str, reason: str) -> None:
        """Something can't be kept alive."""


STATUS_TIMEOUT_S = 5.0

ChildLink = frames.Link[frames.FromChild | frames.FromMain]
Answer = frames.CarriedOut | frames.Statuses


class ProcessHost:
    """One child process and its successors. `launch` begins a life; its second argument says that none has come up."""

    def __init__(
        self, spec: HostSpec, node: Node, hub: Hub, launch: Callable[[HostSpec, bool], Launched], stall_after_s: float
    ) -> None:
        self.name = spec.name
        self.restarts = 0
        self.cpu_s = 0.0  # processor seconds of all its lives, as of their last beats
        self._life_cpu_s = 0.0  # of this life
        self.elsewhere = self.placed = spec.place is not None  # a placed life may be on this machine
        self._spec = spec
        self._node = node
        self._hub = hub
        self._launch = launch
        self._came = False  # whether any life has come up
        self._stall_after_s = stall_after_s
        self._budget = RestartBudget(f"host {spec.name}", spec.restart)
        self._actors: dict[str, WireSpec] = {}
        self._started: dict[str, asyncio.Future[None]] = {}
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._ids = itertools.count()
        self._link: ChildLink | None = None  # set while the child is up
        self._up = asyncio.Event()  # up, or never again
        self._stopping = False
        self._parked = 0
        self._child: Launched | None = None
        self._asked = 0.0  # when the child was last sent a heartbeat, monotonic seconds
        self._beats: dict[int, float] = {}  # when a heartbeat of this life was sent that has had no answer, by its id
        self._heard = asyncio.Event()  # an answer to a heartbeat, however late, or the end of this life
        self._offset = ClockOffset()  # of the child that is up
        self._silence = ""  # why the child was killed, if it was for its silence
        self._pid = 0
        self._scope = TaskScope(lambda name, error: hub.give_up(f"host {spec.name}", f"{name} failed: {error!r}"))
        self._life: asyncio.Task[None] = self._scope.spawn(self._live(), f"host {spec.name}")
        self._scope.spawn(self._watch(), f"watch on {spec.name}")

    def add(self, spec: WireSpec) -> asyncio.Future[None]:
        """Start an actor in the child, now or as soon as it is up."""
        self._actors[spec.name] = spec
        future = self._started[spec.name] = asyncio.get_running_loop().create_future()
        if self._link is not None:
            self._write(frames.Start(specs=[spec]))
        return future

    async def configure(self, specs: Sequence[WireSpec]) -> None:
        """Give actors new configs; a child that is lost meanwhile comes back with them."""
        self._actors.update({spec.name: spec for spec in specs})
        if self._link is not None:
            with suppress(HostLost):
                await self._exchange(lambda key: frames.Configure(id=key, specs=list(specs)), "configure", CONFIG_S)

    async def remove(self, names: Sequence[str]) -> None:
        specs = [self._actors.pop(name) for name in names if name in self._actors]
        if specs and self._link is not None:
            limit = 10.0 + 2 * max(spec.stop_timeout_s for spec in specs)
            # A child that is lost or silent while stopping is killed by `close`; there is nothing more to wait for.
            await asyncio.gather(
                self._exchange(lambda key: frames.StopActors(id=key, names=[s.name for s in specs]), "stop", limit),
                return_exceptions=True,
            )
        for spec in specs:
            future = self._started.pop(spec.name)
            if not future.done():
                future.set_exception(ActorGone(f"{spec.name} was stopped before it had started"))
            elif not future.cancelled():
                future.exception()

    async def send(self, envelope: Envelope) -> None:
        """Pass on to the child, waiting for a restart and for a slow reader up to the deadline. Raises ActorGone."""
        if self._link is None:
            try:
                async with asyncio.timeout(envelope.left_s(self._node.clock.now())):
                    await self._up.wait()
            except TimeoutError as error:
                raise ActorGone(f"{envelope.to} is gone: host {self.name} did not come back in time") from error
        if self._link is None:
            raise ActorGone(f"{envelope.to} is gone: host {self.name} has stopped")
        try:
            await self._link.send(envelope, max(0.001, envelope.left_s(self._node.clock.now())))
        except HostLost as error:
            raise ActorGone(f"{envelope.to} is gone: {error}") from error

    def forward(self, envelope: Envelope) -> None:
        """Pass on what another child sent, without waiting; parked while the child restarts."""
        if self._link is not None and self._write(envelope):
            return
        if self._parked >= MAX_PARKED:
            self._node.refuse(envelope, MailboxFull(f"{self._parked} messages wait for host {self.name}"))
            return
        self._parked += 1
        self._scope.spawn(self._forward_later(envelope), f"parked {envelope.id}")

    def answer(self, envelope: Envelope) -> bool:
        """Pass an answer on; false when the child that asked is gone."""
        return self._write(envelope)

    def tell(self, frame: frames.FromMain) -> None:
        self._write(frame)

    async def statuses(self) -> list[ActorStatus]:
        """What its actors are doing; a silent or lost child's actors say so, and those of one that is not up yet."""
        state = "host_lost" if self._came else "starting"
        machine, unplaced = ("", False) if self._child is None else (self._child.machine, not self._child.pid)
        if self._link is not None:
            try:
                answer = await self._exchange(lambda key: frames.AskStatus(id=key), "status", STATUS_TIMEOUT_S)
                if isinstance(answer, frames.Statuses):
                    return [msgspec.structs.replace(status, machine=machine) for status in answer.actors]
            except DeadlineExceeded:
                state = "host_silent"
            except HostLost:
                state = "host_lost"
        doing = "its host waits for a machine" if unplaced else ""
        unknown = ActorStatus(name="", host=self.name, machine=machine, pid=self._pid, state=state, doing=doing)
        return [msgspec.structs.replace(unknown, name=name) for name in self._actors]

    async def close(self) -> None:
        """Stop the child and everything in its process group. Can be repeated."""
        self._stopping = True
        if self._link is not None:
            self._write(frames.StopHost())
            await asyncio.wait({self._life}, timeout=self._spec.stop_timeout_s)
        await self._scope.close(10.0)

    def _write(self, frame: frames.FromMain) -> bool:
        if self._link is None:
            return False
        try:
            self._link.write(frame)
        except HostLost:
            return False
        return True

    async def _forward_later(self, envelope: Envelope) -> None:
        try:
            await self.send(envelope)
        except ComputerRLError as error:
            self._node.refuse(envelope, error)
        finally:
            self._parked -= 1

    async def _exchange(self, make: Callable[[int], frames.FromMain], what: str, timeout_s: float) -> Answer:
        key = next(self._ids)
        future = self._answers[key] = asyncio.get_running_loop().create_future()
        try:
            async with waiting(self._node.name, f"host/{self.name}", what, timeout_s):
                if not self._write(make(key)):
                    raise HostLost(f"host {self.name} is gone")
                return await future
        finally:
            del self._answers[key]

    async def _live(self) -> None:
        try:
            while not self._stopping:
                error = await self._one_life()
                if self._stopping:
                    return
                decision = self._budget.on_failure(
                    self._node.clock.now(), str(error), curable=not isinstance(error, ConfigError)
                )
                if isinstance(decision, GiveUp):
                    self._hub.give_up(f"host {self.name}", decision.reason)
                    self._fail_starts(ActorFailed(type(error).__name__, decision.reason))
                    return
                self.restarts += 1
                self._node.log.emit(HOST_RESTARTS, name=self.name, delay_s=decision.delay_s, restarts=self.restarts)
                await self._node.clock.sleep(decision.delay_s)
        finally:
            self._up.set()
            self._fail_starts(ActorGone(f"host {self.name} has stopped"))

    def _fail_starts(self, error: ComputerRLError) -> None:
        for future in self._started.values():
            if not future.done():
                future.set_exception(error)

    async def _one_life(self) -> ComputerRLError:
        began = self._asked = time.monotonic()
        self._beats.clear()
        try:
            child = self._launch(self._spec, not self._came)
        except OSError as error:
            return HostLost(f"host {self.name} can't be started: {error}")
        self._pid, self._child, self._silence, self._life_cpu_s = child.pid, child, "", 0.0
        cause: ComputerRLError = HostLost(f"host {self.name} ended")
        output = self._scope.spawn(child.output(self._output), f"output of {self.name}")
        try:
            await self._talk(child, began)
        except ComputerRLError as error:
            cause = error
        finally:
            self._child = None
            self._heard.set()
            limit_s = self._spec.silent_limit_s + STOP_S + MARGIN_S
            code = await child.reap(0.0 if self._stopping else self._asked + limit_s)
        await asyncio.wait({output}, timeout=1.0)
        output.cancel()
        if not self._stopping:
            if code == 0 and self._beats and not self._silence:  # it heard no heartbeat, and this process no answer
                self._silence = f"host {self.name} was silent and stopped by itself"
            if self._silence:
                cause = HostLost(self._silence)
            if not isinstance(cause, ConfigError):
                cause = type(cause)(f"{cause} (exit code {'not known' if code is None else code})")
            names = list(self._actors)
            self._node.log.emit(
                HOST_LOST, name=self.name, machine=child.machine, pid=child.pid, exit_code=code, cause=str(cause),
                actors=names,
            )  # fmt: skip
            self._hub.host_lost(self.name, names, f"host {self.name} was lost, {cause}")
        for future in self._answers.values():
            if not future.done():
                future.set_exception(HostLost(f"host {self.name} was lost"))
        return cause

    async def _talk(self, child: Launched, began: float) -> None:
        """From the child's first word to its last. Raises what ended it otherwise than by its own exit."""
        link: ChildLink = await child.link(frames.FromChild)
        try:
            self._pid = child.pid
            await self._greet(link)
            self._link, self._came = link, True
            self._up.set()
            self._budget.up(self._node.clock.now())
            self._write(frames.Start(specs=list(self._actors.values())))
            took = round(time.monotonic() - began, 3)
            self._node.log.emit(
                HOST_STARTED, name=self.name, machine=child.machine, elsewhere=self.elsewhere, pid=child.pid,
                start_s=took, restarts=self.restarts,
            )  # fmt: skip
            await child.until_exit_or(self._read(link))
        finally:
            self._link = None
            self._up.clear()
            await link.close()

    async def _greet(self, link: ChildLink) -> None:
        async with waiting(self._node.name, f"host/{self.name}", "Hello", self._spec.start_timeout_s):
            hello = await link.receive()
        if hello is None:
            raise HostLost(f"host {self.name} ended before it said hello")
        origin = check_origin()
        if not isinstance(hello, frames.Hello) or hello.build != origin.build:
            raise ConfigError(f"host {self.name} runs other code than this process ({origin}): {hello}")
        if not hello.sees_run:
            where = f"{self._node.run_dir}, which {self._child.machine if self._child else self.name} lacks"
            raise ConfigError(f"the machines of a cluster share the run's folder: mount {where} (deploy/machines.md)")
        self.elsewhere = self.placed and hello.boot != boot_id()
        await self._meet_clock(link)

    async def _meet_clock(self, link: ChildLink) -> None:
        """Find out how far the child's clock is, and tell the child."""
        self._offset = ClockOffset()
        for number in range(PINGS):
            self._asked, sent = time.monotonic(), self._node.clock.now()
            link.write(frames.Beat(id=number))
            async with waiting(self._node.name, f"host/{self.name}", "clock", self._spec.start_timeout_s):
                beaten = await link.receive()
            if not isinstance(beaten, frames.Beaten):
                raise HostLost(f"host {self.name} ended before its clock was known")
            self._offset.heard(sent, beaten.clock, self._node.clock.now())
        link.write(self._set_clock())

    def _set_clock(self) -> frames.SetClock:
        return frames.SetClock(offset_s=self._offset.offset_s, wall_s=wall_ahead_s(self._node.clock))

    async def _read(self, link: ChildLink) -> None:
        while (frame := await link.receive()) is not None:
            match frame:
                case Envelope():
                    self._hub.route(frame)
                case frames.Started():
                    if (future := self._started.get(frame.name)) is not None and not future.done():
                        future.set_result(None)
                case frames.GaveUp():
                    if (future := self._started.get(frame.name)) is not None and not future.done():
                        future.set_exception(ActorFailed("GaveUp", frame.reason))
                    self._hub.give_up(frame.name, frame.reason)
                case frames.Beaten():
                    self._beaten(frame)
                case frames.CarriedOut() | frames.Statuses():
                    if (answer := self._answers.get(frame.id)) is not None and not answer.done():
                        answer.set_result(frame)

    def _output(self, line: str) -> None:
        self._node.log.emit(HOST_OUTPUT, name=self.name, line=line)

    async def _watch(self) -> None:
        """Report a child whose loop does not answer, since its own stall watch can't run then; end one for good."""
        beat_s = max(0.1, min(self._spec.heartbeat_s, self._stall_after_s))
        while True:
            await asyncio.sleep(beat_s / 2)
            if self._link is None:
                continue
            child, key = self._child, next(self._ids)
            self._heard.clear()
            self._asked, self._beats[key] = time.monotonic(), self._node.clock.now()
            if not self._write(frames.Beat(id=key)) or await self._hears(beat_s):
                continue
            since = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self._node.clock.wall() - beat_s))
            self._node.log.emit(
                STALL, who=self._node.name, what="heartbeat", whom=f"host/{self.name}", since=since, waited_s=beat_s,
                cause="silent",
            )  # fmt: skip
            # Waited for once more: the first silence may have been this process's own. A second heartbeat would have
            # the child, cut off, count from a later moment.
            left_s = max(beat_s, self._spec.silent_limit_s - beat_s)
            if not await self._hears(left_s) and child is not None and child is self._child and not self._stopping:
                self._silence = f"host {self.name} was silent for {beat_s + left_s:.0f} s and was killed"
                child.kill()

    async def _hears(self, within_s: float) -> bool:
        """Whether the heartbeat is answered; a child that is lost meanwhile is no silent one."""
        try:
            async with waiting(self._node.name, f"host/{self.name}", "heartbeat", within_s):
                await self._heard.wait()
        except DeadlineExceeded:
            return False
        return True

    def _beaten(self, beaten: frames.Beaten) -> None:
        """What an answer to a heartbeat says counts, however late it comes."""
        if (sent := self._beats.pop(beaten.id, None)) is None:
            return
        self._offset.heard(sent, beaten.clock, self._node.clock.now())
        self._write(self._set_clock())
        self.cpu_s += beaten.cpu_s - self._life_cpu_s
        self._life_cpu_s = beaten.cpu_s
        self._node.log.emit(
            HOST_BEATS, name=self.name, cpu_s=round(beaten.cpu_s, 3), machine_cpu_s=round(beaten.machine_cpu_s, 3),
            lag_s=round(beaten.lag_s, 4), offset_s=round(self._offset.offset_s, 6),
        )  # fmt: skip
        self._heard.set()
