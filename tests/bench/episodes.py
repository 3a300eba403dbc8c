"""What an episode that does nothing costs the ledger."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path

from actors.replay.config import DemosConfig, LedgerSettings, ReplayConfig
from actors.replay.messages import Commit, Outcome, Phase, PhaseRef, Reservation, Reserve, Serving, SetPhase, StepRef
from runtime.messaging.message import BlobRef, Version
from runtime.messaging.refs import Ref
from runtime.program import process_s
from runtime.system import ActorSpec, ActorSystem
from tests.bench.ledger import step_of

AT_ONCE = 64  # episodes under way
STEPS = 12  # of each
PLAY_S = (0.5, 1.5)  # that an episode takes, evenly drawn: episodes end at different times, as in a run
WARM, EPISODES = 64, 400  # not counted; counted
WAIT_S, TIMEOUT_S = 20.0, 120.0
VERSION = Version(lineage=0, step=0)


class _Seats:
    """Seats that play nothing: each asks for work, waits as an episode lasts, and commits it."""

    def __init__(self, replay: Ref) -> None:
        self._replay = replay
        self._offsets = itertools.count(0, 3000)
        self._random = random.Random(0)
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


async def episode(folder: Path) -> float:
    """Processor milliseconds of an episode of `STEPS` steps in the process of the ledger and the seats."""
    async with ActorSystem(folder) as system:
        await system.spawn(
            ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=_settings(), mailbox=8192)
        )
        replay = system.ref("replay")
        demo, rl = PhaseRef(phase=Phase.DEMO, index=0), PhaseRef(phase=Phase.RL, index=1)
        await replay.ask(SetPhase(expected=demo, next=rl, cause="bench", evidence={}), timeout_s=TIMEOUT_S)
        await replay.ask(Serving(sampler="bench", version=VERSION), timeout_s=TIMEOUT_S)
        seats = _Seats(replay)
        tasks = [asyncio.ensure_future(seats.live(f"desktop/{n}")) for n in range(AT_ONCE)]
        try:
            await seats.until(WARM)
            before, began = seats.played, process_s()
            await seats.until(before + EPISODES)
            used_s, played = process_s() - began, seats.played - before
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return 1e3 * used_s / played
