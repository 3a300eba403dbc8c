"""What one step of a desktop costs the entry point of a run whose desktops and engines are on other machines.

Every figure is processor time of the entry point's side alone. What desktops and engines compute is on other
machines, so the entry point's process, which is one interpreter, is what all of them share. Steps are stored by the
processes that play, in the folder that all machines share. Desktops and engines are processes of this machine. They
come in by the run's door at the address that other machines use, by TLS.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import os
import random
import shutil
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from actors.replay.config import DemosConfig, LedgerSettings, ReplayConfig
from actors.replay.messages import (
    Commit,
    Outcome,
    Phase,
    PhaseRef,
    Reservation,
    Reserve,
    Sampling,
    Serving,
    SetPhase,
    StepRef,
)
from actors.sampler.messages import Generate, Generated, VersionSpan
from actors.sampler.router import DispatchSettings
from runtime.actor import Actor, handles
from runtime.hosts import door
from runtime.messaging.message import BlobRef, Done, Request, Version
from runtime.messaging.refs import Ref
from runtime.system import ActorSpec, ActorSystem, HostSpec, PlacerSpec
from runtime.system import run as run_loop
from tests.bench.report import Measured, Target, median, show
from tests.bench.seats.standins import reference_round

STEP_S = 2.0  # between two steps of a desktop
PROMPTS = (700, 4_000, 16_000)  # tokens of a prompt: the compact form, between, the published form
SHOWN = 4_000  # the prompt by which all desktops are counted
ANSWER = 32  # tokens
STEPS, AT_ONCE = 400, 16
COUNTS = (2_000, 10_000)
ROUNDS = 20  # reference rounds before each part
TIMEOUT_S = 120.0
VERSION = Version(lineage=0, step=0)
EPISODES_AT_ONCE, EPISODE_STEPS = 64, 12
PLAY_S = (0.5, 1.5)  # that an episode takes, evenly drawn: episodes end at different times, as in a run
WARM, EPISODES = 64, 400  # not counted; counted
WAIT_S = 20.0
T = TypeVar("T")


FAR_AWAY = "192.0.2.1:9"  # an address of no machine: the way there begins at this machine's own address


def own_address() -> str:
    """This machine's address for other machines; that of its loopback where it has no network."""
    try:
        return door.towards(FAR_AWAY)
    except OSError:
        return "127.0.0.1"


class StepsWanted(Request[Done]):
    """Ask `to` for so many answers to prompts of so many tokens."""

    to: str
    steps: int
    tokens: int


class FarSeats(Actor):
    """A stand-in for a process with seats."""

    @handles(StepsWanted, slow_after_s=TIMEOUT_S)
    async def play(self, msg: StepsWanted) -> Done:
        """Play `msg.steps` steps, some of them at a time."""
        target, prompt = self.ctx.ref(msg.to), [7] * msg.tokens

        async def some(first: int) -> None:
            for n in range(first, msg.steps, AT_ONCE):
                sampling = Sampling(temperature=1.0, max_new_tokens=ANSWER)
                await target.ask(
                    Generate(rid=f"{msg.to}.{n}", prompt_ids=prompt, sampling=sampling), timeout_s=TIMEOUT_S
                )

        await asyncio.gather(*(some(first) for first in range(AT_ONCE)))
        return Done()


class FarSampler(Actor):
    """A stand-in for a sampler and its engine."""

    @handles(Generate, concurrent=True)
    async def generate(self, _: Generate) -> Generated:
        """Answer every request alike."""
        spans = [VersionSpan(version=VERSION, start=0, end=ANSWER)]
        return Generated(output_ids=[7] * ANSWER, logprobs=[-0.5] * ANSWER, spans=spans, finish="stop", cached_tokens=0)


class Options(msgspec.Struct, frozen=True):
    """There is nothing to choose."""


class PartCost(msgspec.Struct, frozen=True, kw_only=True):
    """Processor milliseconds of a step in the entry point's process."""

    name: str
    step_ms: float

    def cores(self, desktops: int) -> float:
        """The cores of the entry point that `desktops` desktops take."""
        return desktops / STEP_S * self.step_ms / 1e3


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
        return StepRef(
            blob=blob, prompt_tokens=900, response_tokens=20, well_formed=True, oldest=VERSION, newest=VERSION,
            function="click", line=f"{offset:016x}", surprisal=4.0,
        )  # fmt: skip

    async def live(self, name: str) -> None:
        for number in itertools.count():
            request = Reserve(seat=name, request_id=f"{name}.{number}", wait_s=WAIT_S)
            work = await self._replay.ask(request, timeout_s=TIMEOUT_S)
            if not isinstance(work, Reservation):
                continue
            await asyncio.sleep(self._random.uniform(*PLAY_S))
            steps = [self._step() for _ in range(EPISODE_STEPS)]
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
    rules = ReplayConfig(groups_per_step=EPISODES_AT_ONCE // 16, group_size=8, max_staleness=1)
    tasks = [f"text_editor/train/{number}" for number in range(4000)]
    return LedgerSettings(
        seed=0, train_tasks=tasks, demo_tasks=[], max_turns=EPISODE_STEPS, demos=DemosConfig(count=0), rules=rules
    )


async def episode(folder: Path) -> float:
    """Processor milliseconds of an episode of `EPISODE_STEPS` steps in the process of the ledger and the seats."""
    async with ActorSystem(folder) as system:
        await system.spawn(
            ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=_settings(), mailbox=8192)
        )
        replay = system.ref("replay")
        demo, rl = PhaseRef(phase=Phase.DEMO, index=0), PhaseRef(phase=Phase.RL, index=1)
        await replay.ask(SetPhase(expected=demo, next=rl, cause="bench", evidence={}), timeout_s=TIMEOUT_S)
        await replay.ask(Serving(sampler="bench", version=VERSION), timeout_s=TIMEOUT_S)
        seats = _Seats(replay)
        tasks = [asyncio.ensure_future(seats.live(f"desktop/{n}")) for n in range(EPISODES_AT_ONCE)]
        try:
            await seats.until(WARM)
            before, began = seats.played, time.process_time()
            await seats.until(before + EPISODES)
            used_s, played = time.process_time() - began, seats.played - before
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return 1e3 * used_s / played


class ScaleResult(Measured, frozen=True, kw_only=True):
    """All that `make bench NAME="capacity scale"` prints."""

    tls: bool  # False where this machine has no address but its loopback's
    star_ms: dict[int, float]  # tokens of a prompt -> passing a request and its answer on, between hosts of the door
    routed_ms: dict[int, float]  # the same with the router in between
    parts: list[PartCost]  # at `SHOWN` tokens
    reference_ms: float | None  # of a reference round, between the parts


async def _passed_on(folder: Path) -> tuple[dict[int, float], dict[int, float]]:
    """Milliseconds of a step in this process by prompt: straight to a sampler, and by the router."""
    hosts = [HostSpec(name=name, place={}) for name in ("players", "samplers")]
    placer = PlacerSpec(module="tests.runtime.local_placer", arguments=("--address", own_address()))
    direct, routed = dict[int, float](), dict[int, float]()
    async with ActorSystem(folder, hosts=hosts, placer=placer) as system:
        router = ActorSpec(
            name="router",
            factory="actors.sampler.router:DispatchActor",
            config=DispatchSettings(samplers=["sampler/0"]),
        )
        await system.spawn(
            ActorSpec(name="sampler/0", factory=FarSampler, host="samplers"),
            router,
            ActorSpec(name="player", factory=FarSeats, host="players"),
        )
        player = system.ref("player")
        for tokens in PROMPTS:
            for name, costs in (("sampler/0", direct), ("router", routed)):
                await player.ask(StepsWanted(to=name, steps=AT_ONCE, tokens=tokens), timeout_s=TIMEOUT_S)
                began = time.process_time()
                await player.ask(StepsWanted(to=name, steps=STEPS, tokens=tokens), timeout_s=TIMEOUT_S)
                costs[tokens] = 1e3 * (time.process_time() - began) / STEPS
    return direct, routed


def measure() -> ScaleResult:
    """Measure all parts, one after another."""
    load, folder = os.getloadavg()[0], Path(tempfile.mkdtemp(prefix="computerrl-scale-"))
    rounds: list[float] = []

    def timed(part: Coroutine[Any, Any, T]) -> T:
        rounds.extend(reference_round() for _ in range(ROUNDS))
        return run_loop(part)

    try:
        star, routed = timed(_passed_on(folder / "star"))
        episode_ms = timed(episode(folder / "ledger"))
    finally:
        shutil.rmtree(folder)
    parts = [
        PartCost(name="star", step_ms=star[SHOWN]),
        PartCost(name="router", step_ms=max(0.0, routed[SHOWN] - star[SHOWN])),
        PartCost(name="ledger", step_ms=episode_ms / EPISODE_STEPS),
    ]
    total = sum(part.cores(COUNTS[0]) for part in parts)
    target = Target(name=f"cores of the entry point at {COUNTS[0]:,} desktops", measured=total, bound=1.0, unit="cores")
    return ScaleResult(
        load_at_start=load,
        tls=not ipaddress.ip_address(own_address()).is_loopback,
        star_ms=star,
        routed_ms=routed,
        parts=parts,
        reference_ms=median(rounds),
        targets=[target],
    )


def run(_: Options) -> int:
    """Measure and print; 1 when a target is missed."""
    return show(measure())
