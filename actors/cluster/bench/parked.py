"""What an episode costs the ledger while many seats wait for work.

Invariant: the same number of episodes is played at once in both columns, so the columns differ by the seats that wait
alone. The figures are processor time of the process, in which the ledger, its thread and the seats live.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import tempfile
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.bench.ledger import step_of
from actors.cluster.bench.report import Measured, Target, show
from actors.replay.config import DemosConfig, LedgerSettings, ReplayConfig
from actors.replay.messages import Commit, Outcome, PhaseRef, Reservation, Reserve, Serving, SetPhase, StepRef
from actors.replay.values import Phase
from runtime.errors import ConfigError
from runtime.messaging.message import BlobRef, Version
from runtime.messaging.refs import Ref
from runtime.processor import process_s
from runtime.system import ActorSpec, ActorSystem
from runtime.system import run as run_loop

AT_ONCE = 64  # episodes under way
STEPS = 12  # of each
PLAY_S = (0.5, 1.5)  # that an episode takes, evenly drawn: episodes end at different times, as in a run
WARM, EPISODES = 64, 400  # not counted; counted
GROWTH = 1.5
WAIT_S, TIMEOUT_S = 20.0, 120.0
MOST = 3_500  # a mailbox and a handler have bounds
VERSION = Version(lineage=0, step=0)


class ParkedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """With so many seats waiting, the processor milliseconds of an episode."""

    parked: int
    episode_ms: float


class ParkedResult(Measured, frozen=True, kw_only=True):
    """All that `bench parked` prints."""

    played: int = EPISODES
    figures: list[ParkedFigures]


class _Seats:
    """Seats that play nothing: each asks for work, waits as an episode lasts, and commits it."""

    def __init__(self, replay: Ref) -> None:
        self._replay = replay
        self._offsets = itertools.count(0, 3000)
        self._random = random.Random(0)  # noqa: S311 - of times
        self.played = 0
        self.progress = asyncio.Event()

    def _step(self) -> StepRef:
        offset = next(self._offsets)
        blob = BlobRef(segment="bench-000000.seg", offset=offset, size=2900, digest=f"{offset:032x}")
        return step_of(blob, VERSION)

    async def live(self, name: str) -> None:
        for number in itertools.count():
            request = Reserve(seat=name, request_id=f"{name}.{number}", wait_s=WAIT_S)
            work = await self._replay.ask(request, timeout_s=TIMEOUT_S)
            if not isinstance(work, Reservation):
                continue
            await asyncio.sleep(self._random.uniform(*PLAY_S))
            steps = [self._step() for _ in range(STEPS)]
            outcome = Outcome(success=False, reason="not_verified")
            done = Commit(token=work.token, seat=name, outcome=outcome, steps=steps, wall_s=1.0, busy_s=1.0)
            await self._replay.ask(done, timeout_s=TIMEOUT_S)
            self.played += 1
            self.progress.set()

    async def until(self, episodes: int) -> None:
        while self.played < episodes:
            self.progress.clear()
            async with asyncio.timeout(TIMEOUT_S):
                await self.progress.wait()


def _settings() -> LedgerSettings:
    rules = ReplayConfig(groups_per_step=AT_ONCE // 16, group_size=8, max_staleness=1)
    tasks = [f"text_editor/train/{number}" for number in range(4000)]
    return LedgerSettings(
        seed=0, train_tasks=tasks, demo_tasks=[], max_turns=STEPS, demos=DemosConfig(count=0), rules=rules
    )


async def _one(folder: Path, parked: int) -> ParkedFigures:
    async with ActorSystem(folder) as system:
        await system.spawn(
            ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=_settings(), mailbox=8192)
        )
        replay = system.ref("replay")
        demo, rl = PhaseRef(phase=Phase.DEMO, index=0), PhaseRef(phase=Phase.RL, index=1)
        await replay.ask(SetPhase(expected=demo, next=rl, cause="bench", evidence={}), timeout_s=TIMEOUT_S)
        await replay.ask(Serving(sampler="bench", version=VERSION), timeout_s=TIMEOUT_S)
        seats = _Seats(replay)
        tasks = [asyncio.ensure_future(seats.live(f"desktop/{n}")) for n in range(AT_ONCE + parked)]
        try:
            await seats.until(WARM)
            before, began = seats.played, process_s()
            await seats.until(before + EPISODES)
            used_s, played = process_s() - began, seats.played - before
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return ParkedFigures(parked=parked, episode_ms=1e3 * used_s / played)


async def episode(folder: Path) -> float:
    """Processor milliseconds of an episode of `STEPS` steps where no seat waits."""
    return (await _one(folder, 0)).episode_ms


def measure(parked: int) -> ParkedResult:
    """Measure with no seat waiting and with `parked`. Raises ConfigError."""
    if not 1 <= parked <= MOST:
        raise ConfigError(f"--seats is {parked}: from 1 to {MOST}")
    load, folder = os.getloadavg()[0], Path(tempfile.mkdtemp(prefix="computerrl-parked-"))
    try:
        figures = [run_loop(_one(folder / str(count), count)) for count in (0, parked)]
    finally:
        shutil.rmtree(folder)
    none, many = figures
    name = f"an episode with {parked} seats waiting, to one with none"
    target = Target(name=name, measured=many.episode_ms / none.episode_ms, bound=GROWTH, unit="times")
    return ParkedResult(load_at_start=load, figures=figures, targets=[target])


def _tell(found: ParkedResult) -> None:
    rows = [(one.parked, f"{one.episode_ms:.2f}") for one in found.figures]
    output.table(("SEATS WAITING", "EPISODE ms"), rows)


def run(parked: int, *, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed."""
    return show(measure(parked), _tell, as_json=as_json, note=f", {AT_ONCE} episodes of {STEPS} steps at once")
