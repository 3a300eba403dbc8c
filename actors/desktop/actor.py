"""A seat: takes work from the ledger, plays it on a desktop of the pool, and reports the result.

Invariant: the seat answers every reservation with exactly one Commit or Release. A reservation that the seat can't
answer outlives it in the ledger, which takes the reservation back. A desktop on which an episode was played is thrown
away.
"""

from __future__ import annotations

import asyncio
import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from actors.desktop import demonstrators
from actors.desktop import memo as memos
from actors.desktop.answers import POLICY, Answerer, EndpointAnswers, SampledAnswers
from actors.desktop.config import DesktopsConfig, EndpointConfig, Member, SeatConfig, key_of
from actors.desktop.endpoint import Endpoint
from actors.desktop.episode import Episode, PlayedEpisode, Stage, StageClock
from actors.desktop.memo import Memo
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import Recorder
from actors.desktop.scene import NOT_REMEMBERED, DesktopScene, RememberedScene
from actors.errors import DesktopFault, FencedOff
from actors.replay import messages as ledger
from policy.tokenizer import Tokenizer
from runtime.actor import Actor, handles
from runtime.errors import ComputerRLError, StoreError
from runtime.logs.events import declare
from runtime.messaging.message import Done, Request
from runtime.messaging.refs import TRANSIENT
from runtime.supervision import Quarantine
from runtime.waits import waiting

# t0 and t1 are seconds of the run's clock: the span of the episode, for seeing what overlaps it.
EPISODE_ENDED = declare(
    "episode_ended", "info",
    lane=str, task=str, token=int, success=bool, reason=str, detail=str, steps=int, well_formed=int, t0=float, t1=float,
)  # fmt: skip
# A seat's seconds by stage between t0 and t1; the spans of one life lie end to end and begin with `idle`.
# `waited_for` is what that idle time was spent on: "work" of the ledger, or the "ledger" itself, which did not answer.
SEAT_TIME = declare("seat_time", "info", t0=float, t1=float, waited_for=str, seconds=dict[str, float])
EPISODE_FAULTED = declare("episode_faulted", "warning", task=str, cause=str, detail=str, token=int)
LEDGER_SILENT = declare("ledger_silent", "warning", what=str, cause=str)
SEAT_QUARANTINED = declare("seat_rests", "warning", cause=str, faults=int)
SEAT_LET_BACK = declare("seat_let_back", "info", faults=int)

RESERVE_WAIT_S = 20.0
RESERVE_MARGIN_S = 10.0  # for the ledger to say that there is no work
REPORT_TIMEOUT_S = 60.0  # one try
REPORT_GIVE_UP_S = 300.0  # all tries: longer than a slow disk or a restart takes
LEDGER_BACK_S = 1.0  # pause after the ledger did not answer; it is restarted by its supervisor meanwhile
POOL_WAIT_S = 30.0  # for a host or image to be let back, before it is looked at again
DRAIN_SLOW_S = 3600.0  # its wait has a limit of its own
EPISODE, PROBE = 0, 1  # what a seat is used for, as its quarantine counts it


class DesktopSeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one controller is started with."""

    seat: SeatConfig
    desktops: DesktopsConfig
    model: str  # folder of tokenizer.json
    samplers: list[str]  # names of sampler actors
    fit_seats: int = 0  # lower the limits to what this machine has room for, with so many seats; 0: they fit already
    noise: float = 0.0  # how often a demonstrator takes a harmless wrong step
    demonstrators: list[Member] = []  # [] has the tasks' oracles alone
    endpoint: EndpointConfig | None = None  # answers evaluations in place of the samplers
    replay: str = "replay"

    @property
    def remembers(self) -> tuple[str | int, ...]:
        """What a memo is opened by: it is the process's, and stays until that begins again."""
        seat = self.seat
        return () if seat.memo == "off" else (seat.memo, seat.memo_file, seat.settle_ms)


class Drain(Request[Done]):
    """Take no more work; answered once the ledger has the report on all that was taken."""


class DesktopController(Actor):
    """The actor of one seat."""

    config: DesktopSeat

    async def on_start(self) -> None:
        name = self.ctx.name
        self._clock = StageClock(self.ctx.clock.now())
        self._replay = self.ctx.ref(self.config.replay)
        self._samplers = [self.ctx.ref(sampler) for sampler in self.config.samplers]
        self._tokenizer = await self.ctx.shared("tokenizer", self._make_tokenizer)
        only = self.config.seat.memo == "only"  # then no desktop is ever booted
        self._pool = None if only else await self.ctx.shared("desktops", self._make_pool)
        if self._pool and self.config.fit_seats:  # there may be more seats than when the first of them made the pool
            self._pool.fit(self.config.desktops, self.config.fit_seats)
        self._memo = None if self.config.seat.memo == "off" else await self.ctx.shared("memo", self._make_memo)
        self._recorder = await self.ctx.shared("segments", self._make_recorder)
        self._demonstrators = await self.ctx.shared("demonstrators", self._make_demonstrators)
        self._endpoint: Endpoint | None = None
        if self.config.endpoint is not None:
            self._endpoint = await self.ctx.shared("endpoint", self._make_endpoint)
        self._clock = StageClock(self.ctx.clock.now())  # a seat's time begins when its host has desktops
        self._quarantine = Quarantine()
        self._work: ledger.Reservation | None = None
        self._booted: BootedDesktop | None = None  # that the episode got
        self._episode: Episode | None = None
        self._faults = 0
        self._silent_since: float | None = None  # since when the ledger has not answered
        self._draining = False
        self._owes_nothing = asyncio.Event()  # unset from a request for work until it was answered and reported
        self._owes_nothing.set()
        self._life = f"{name}-{uuid.uuid4().hex[:8]}"
        self.ctx.spawn(self._live(), "work")

    async def on_config(self, config: DesktopSeat) -> None:
        """A count of seats that share this machine counts from the next boot, all else from the next episode."""
        # The same count, too: seats that did not come to stay may have lowered the pool's limits.
        if (config.fit_seats or self.config.fit_seats) and (pool := getattr(self, "_pool", None)):
            pool.fit(config.desktops, config.fit_seats)
        self.config = config

    async def on_stop(self) -> None:
        self._report_time()

    async def _make_memo(self) -> Memo:
        seat = self.config.seat
        file = memos.file_of(seat.memo_file, self.ctx.home.parent)
        return await Memo.open(memos.scope(seat, self.config.desktops), file, self.ctx.log, only=seat.memo == "only")

    async def _make_pool(self) -> DesktopPool:
        config = self.config
        return await DesktopPool.open(config.desktops, self.ctx.run_dir, self.ctx.log, fit_seats=config.fit_seats)

    async def _make_tokenizer(self) -> Tokenizer:
        return await asyncio.to_thread(Tokenizer.load, self.config.model)  # seconds, for a large vocabulary

    async def _make_demonstrators(self) -> demonstrators.DemonstratorPool:
        seat, members = self.config.seat, self.config.demonstrators
        return demonstrators.DemonstratorPool(members, seat.format, space=seat.action_space, sight=seat.sight)

    async def _make_endpoint(self) -> Endpoint:
        assert self.config.endpoint is not None
        return Endpoint(self.config.endpoint, key_of(self.config.endpoint, os.environ))

    async def _make_recorder(self) -> Recorder:
        return Recorder(self.ctx.segments(), self.ctx.log)

    @handles(Drain, concurrent=True, slow_after_s=DRAIN_SLOW_S)
    async def drain(self, _: Drain) -> Done:
        """End what it plays. Raises DeadlineExceeded where that takes longer than any lease."""
        self._draining = True
        limit_s = RESERVE_WAIT_S + self.config.desktops.pool.lease_s + REPORT_GIVE_UP_S
        async with waiting(self.ctx.name, self.ctx.name, "the end of its episode", limit_s):
            await self._owes_nothing.wait()
        return Done()

    def doing(self) -> str:
        if not hasattr(self, "_life"):
            return "starting"
        if self._work is None:
            pool = self._pool.quarantined if self._pool else ()
            quarantined = " and ".join((*pool, *(["seat"] * self._quarantine.quarantined)))
            return f"{self._clock.stage} ({quarantined} quarantined)" if quarantined else str(self._clock.stage)
        step = self._episode.step if self._episode else 0
        return f"{self._clock.stage} step {step} of {self._work.task} ({self._work.lane})"

    def _enter(self, stage: Stage) -> None:
        self._clock.enter(stage, self.ctx.clock.now())

    def _report_time(self, waited_for: str = "work") -> None:
        now = self.ctx.clock.now()
        began, seconds = self._clock.since_reported(now)
        if seconds:
            self.ctx.log.emit(SEAT_TIME, t0=began, t1=now, waited_for=waited_for, seconds=seconds)

    async def _live(self) -> None:
        number = 1
        while True:
            if self._quarantine.quarantined:
                await self._wait_out_quarantine()
            if self._pool and self._pool.quarantined:
                await self._wait_for_pool(self._pool)
            if self._recorder.gate.shut:
                with self._resting("disk"):
                    await self._recorder.gate.passed()
            if self._draining and self._owes_nothing.is_set():
                return
            self._owes_nothing.clear()
            # An answer that was lost on its way is asked for again under the same name.
            request = ledger.Reserve(seat=self.ctx.name, request_id=f"{self._life}.{number}", wait_s=RESERVE_WAIT_S)
            try:
                work = await self._replay.ask(request, timeout_s=RESERVE_WAIT_S + RESERVE_MARGIN_S)
            except TRANSIENT as error:
                self._ledger_silent("Reserve", error)
                await asyncio.sleep(LEDGER_BACK_S)
                self._report_time("ledger")
                continue
            self._silent_since = None
            number += 1
            if isinstance(work, ledger.NoWork):
                self._owes_nothing.set()
                self._report_time()
                if work.final:
                    return
                continue
            await self._serve(work)
            self._owes_nothing.set()
            self._report_time()

    async def _serve(self, work: ledger.Reservation) -> None:
        self._work = work
        trace, policy = work.trace, self.config.seat.quarantine
        start, busy = self.ctx.clock.now(), self._clock.busy_s(self.ctx.clock.now())
        self._enter(Stage.LEASING)
        try:
            played = await self._play(work, trace)
            self._enter(Stage.REPORTING)
            await self._recorder.flush(played.steps)
        except (DesktopFault, StoreError) as error:
            of_disk = DesktopFault(ledger.DISK_REFUSES, str(error), ledger.DISK)
            fault = error if isinstance(error, DesktopFault) else of_disk
            self._enter(Stage.REPORTING)
            cause = ledger.Fault(cause=fault.cause, detail=fault.detail[:400], culprit=fault.culprit)
            if fault.cause != ledger.DEFERRED:  # nothing broke, and the ledger says so
                self._faults += 1
                self.ctx.log.emit(
                    EPISODE_FAULTED, trace=trace, task=work.task, cause=cause.cause, detail=cause.detail,
                    token=work.token,
                )  # fmt: skip
            await self._report(ledger.Release(token=work.token, seat=self.ctx.name, fault=cause), trace)
            if self._pool and self._booted is not None:  # what kept a desktop from being had the pool counts itself
                self._pool.faulted(fault)
            own = fault.culprit in ("seat", "host")
            self._quarantine = self._quarantine.faulted(EPISODE, policy, self.ctx.clock.now(), own=own)
            if self._quarantine.quarantined:
                self.ctx.log.emit(SEAT_QUARANTINED, cause=fault.cause, faults=self._faults)
        else:
            self._quarantine = self._quarantine.ended(EPISODE, policy)
            if self._pool and self._booted is not None:
                self._pool.succeeded()
            now = self.ctx.clock.now()
            commit = ledger.Commit(
                token=work.token,
                seat=self.ctx.name,
                outcome=played.outcome,
                steps=played.steps,
                wall_s=now - start,
                busy_s=self._clock.busy_s(now) - busy,
            )
            await self._report(commit, trace)
            self.ctx.log.emit(
                EPISODE_ENDED, trace=trace, lane=str(work.lane), task=work.task, token=work.token,
                success=played.outcome.success, reason=played.outcome.reason, detail=played.detail,
                steps=len(played.steps), well_formed=sum(step.well_formed for step in played.steps), t0=start, t1=now,
            )  # fmt: skip
        finally:
            self._work = self._episode = None
        self._enter(Stage.IDLE)

    async def _play(self, work: ledger.Reservation, trace: str) -> PlayedEpisode:
        self._booted = None
        came, seat = self._clock.stage, self.config.seat

        async def lease() -> DesktopScene:
            nonlocal came
            came = self._clock.stage
            if came is not Stage.LEASING:
                self._enter(Stage.LEASING)
            booted = self._booted = await self._acquire(self.ctx.name)
            if came is not Stage.LEASING:
                self._enter(Stage.SETUP)
            return DesktopScene(work, LeasedDesktop(booted), seat)

        def back() -> None:
            if came is not Stage.SETUP:
                self._enter(Stage.ACTING if came is Stage.GENERATING else came)

        # Demonstrators may read forms of prompts that show what no two desktops have alike.
        memo = self._memo if work.lane is not ledger.Lane.DEMO or work.member == POLICY else None
        scene = None if memo is None else RememberedScene(work.task, memo, lease, back)
        try:
            self._episode = Episode(
                work,
                scene or await lease(),
                answerer=self._answerer(work, trace),
                recorder=self._recorder,
                config=seat,
                enter=self._enter,
            )
            return await self._episode.play()
        finally:
            if scene is not None:
                scene.ended()
            if self._pool and self._booted is not None:
                self._pool.retire(self._booted)

    async def _acquire(self, holder: str) -> BootedDesktop:
        if self._pool is None:
            detail = "desktops.memo is only, and the memo does not know what comes next"
            raise DesktopFault(NOT_REMEMBERED, detail, "memo")
        return await self._pool.acquire(self.config.seat.lease_timeout_s, holder=holder)

    def _answerer(self, work: ledger.Reservation, trace: str) -> Answerer:
        if work.lane is ledger.Lane.DEMO and work.member != POLICY:
            if work.member:
                return self._demonstrators.answers(work, self._tokenizer)
            seat = self.config.seat
            return demonstrators.of_oracle(
                work, self._tokenizer, seat.format, self.config.noise, space=seat.action_space, sight=seat.sight
            )
        if self._endpoint is not None:
            return EndpointAnswers(self._endpoint, work, self.config.seat)
        seat = self.config.seat
        return SampledAnswers(self._samplers, self._tokenizer, work, trace, seat.generate_timeout_s)

    async def _report(self, message: ledger.Commit | ledger.Release, trace: str) -> None:
        """Deliver the report, over a restart of the ledger if need be: a repeat gets the first answer."""
        silent = functools.partial(self._ledger_silent, type(message).__name__)
        with suppress(FencedOff):  # the ledger has given the slot to another seat and says so in its log
            await self._replay.ask_until(
                message, timeout_s=REPORT_TIMEOUT_S, give_up_s=REPORT_GIVE_UP_S, trace=trace, silent=silent
            )
            self._silent_since = None

    def _ledger_silent(self, what: str, error: ComputerRLError) -> None:
        """One line for as long as the ledger does not answer this seat."""
        if self._silent_since is None:
            self._silent_since = self.ctx.clock.now()
            cause = f"{type(error).__name__}: {error}"[:400]
            self.ctx.log.emit(LEDGER_SILENT, what=what, cause=cause)

    @contextmanager
    def _resting(self, waited_for: str = "work") -> Iterator[None]:
        self._enter(Stage.RESTING)
        yield
        self._enter(Stage.IDLE)
        self._report_time(waited_for)

    async def _wait_for_pool(self, pool: DesktopPool) -> None:
        """Take no work while no desktop can be had: a fault of the host must not use up the tasks' retries."""
        with self._resting():
            while not await pool.well(timeout_s=POOL_WAIT_S):
                continue

    async def _wait_out_quarantine(self) -> None:
        """Wait out a quarantine: only a desktop that boots and answers ends it."""
        policy = self.config.seat.quarantine
        with self._resting():
            while self._quarantine.quarantined:
                await asyncio.sleep(self._quarantine.probe_at - self.ctx.clock.now())
                probing = self._quarantine.began(PROBE)
                try:
                    booted = await self._acquire(f"{self.ctx.name} probe")
                except DesktopFault:
                    self._quarantine = probing.faulted(PROBE, policy, self.ctx.clock.now())
                else:
                    if self._pool:
                        self._pool.retire(booted)
                    self._quarantine = probing.ended(PROBE, policy)
        self.ctx.log.emit(SEAT_LET_BACK, faults=self._faults)
