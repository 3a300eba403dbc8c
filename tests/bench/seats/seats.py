"""`make bench NAME="capacity seats"`: what one desktop process takes for each step of its seats, and how many it holds.

The controllers, their pool, SSH provider, episodes, prompts, tokenizer, grammar, recorder and ledger are a
run's own, over real connections. Simulated are the desktops (`guests.py`) and the sampler (`standins.py`). Costs are
processor time, next to that of a reference round in the same seconds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.config import models
from actors.cluster.config.suggest import hint
from actors.cluster.runs.run import raise_file_limit
from actors.desktop.actor import DesktopController, DesktopSeat
from actors.desktop.config import SEATS_ENV, DesktopsConfig, MachineConfig, PoolConfig, SeatConfig, SshConfig
from actors.replay.actor import ReplayActor
from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.messages import Figures, GetFigures, Phase, PhaseRef, SetPhase
from actors.settings import DemosConfig
from apis.prompts import FORMS
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.system import ActorSpec, ActorSystem, HostSpec
from runtime.system import run as run_system
from tests.bench.report import Measured, Target, median, show
from tests.bench.seats import standins
from tests.bench.seats.standins import REFERENCE_MS, GetProcessReading, GetStepsAsked, ProcessReading
from tests.simulated_desktops import CHANGED, SCREENS, serving

FED = {"compact": 250.0, "published": 120.0}  # seats that a core is to feed with a step every `FED_PERIOD_S`
FED_PERIOD_S = 2.0
SEAT_KIB = 400.0
REFERENCE_EVERY_S = 0.5
AT_WORK = 0.95  # of the seats: the others are between two episodes
CONTROLLERS, STUB, LEDGER = "desktops/0", "sampler/0", "replay"
GROUP, TURNS, WARM_POOL, BOOTS = 8, 12, 8, 32
ASK_S, LOOK_S = 300.0, 2.0
ANSWERS: dict[str, tuple[str, str]] = {
    "compact": ("menu -> click\nAgent.click(e2)", "done\nAgent.exit(success=True)"),
    "published": (
        "<think>menu</think>\n```python\nAgent.click([60, 36])\n```",
        "<think>done</think>\n```python\nAgent.exit(success=True)\n```",
    ),
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    seats: int = 100
    format: str = "compact"
    screen: str = "sheet"
    changed: float = CHANGED  # share of a screen's elements with other texts at each step
    seconds: float = 30.0
    period_s: float = FED_PERIOD_S  # of one seat, from a prompt to its answer
    model: str = ""  # folder of a tokenizer; "": the bundled model's
    servers: int = 2  # of simulated desktops
    begin_s: float = 600.0  # for every seat to take a step


class SeatsResult(Measured, frozen=True, kw_only=True):
    """What was measured, over `wall_s` seconds with the seats at work."""

    options: Options
    wall_s: float
    steps: int
    episodes: int
    faults: dict[str, int]
    busy: int  # seats with an episode at the end
    prompt_tokens: float | None  # of a prompt, in the mean
    controller_ms: float | None  # processor time of the desktop process for a step
    reference_ms: float | None  # of a reference round in those seconds
    main_ms: float | None  # of the ledger, and of the stand-in for the sampler
    seat_kib: float  # memory that only the desktop process has, for each seat but the first


def _refuse_unless_sound(wanted: Options) -> None:
    least = {"seats": 2, "servers": 1, "seconds": 1, "period_s": 0, "begin_s": 1}
    for name, bound in least.items():
        if getattr(wanted, name) < bound:
            raise ConfigError(f"--{name.removesuffix('_s')} is {getattr(wanted, name):g}: at least {bound}")
    if not 0 <= wanted.changed <= 1:
        raise ConfigError(f"--changed is {wanted.changed:g}: a share, from 0 to 1")
    for name, given, known in (("screen", wanted.screen, SCREENS), ("format", wanted.format, FORMS)):
        if given not in known:
            raise ConfigError(f"--{name} {given}: {hint(given, known)}")


def _ledger(wanted: Options) -> LedgerSettings:
    groups = -(-2 * wanted.seats // GROUP)  # enough work for all seats without a learner
    return LedgerSettings(
        seed=0,
        train_tasks=[f"text_editor/train/{number}" for number in range(20_000, 22_000)],
        demo_tasks=[],
        max_turns=TURNS,
        demos=DemosConfig(count=0),
        rules=ReplayConfig(groups_per_step=groups, group_size=GROUP),
        incarnation="bench",
    )


def _seat(wanted: Options, machines: list[MachineConfig], model: str) -> DesktopSeat:
    pool = PoolConfig(warm_pool=WARM_POOL, boots_at_once=BOOTS, boot_timeout_s=120.0, lease_s=86_400.0)
    patient = SeatConfig(
        format=wanted.format,
        screenshots="last",
        lease_timeout_s=wanted.begin_s,
        call_timeout_s=120.0,
        generate_timeout_s=120.0 + 2 * wanted.period_s,
        setup_timeout_s=120.0,
        verify_timeout_s=120.0,
    )  # a machine that is busy with other programs is no fault of the seats
    desktops = DesktopsConfig(provider=SshConfig(machines=machines), pool=pool)
    return DesktopSeat(seat=patient, desktops=desktops, model=model, samplers=[STUB])


class _Reading(msgspec.Struct, frozen=True):
    """All counts at one moment."""

    at: float
    controller: ProcessReading
    main: ProcessReading
    drawn: standins.StepsAsked
    ledger: Figures


class _Stand:
    """The actors, from the first seat to the last reading."""

    def __init__(self, system: ActorSystem, wanted: Options, seat: DesktopSeat) -> None:
        self._system = system
        self._wanted = wanted
        self._seat = seat

    async def _read(self) -> _Reading:
        async def look(name: str) -> ProcessReading:
            return await self._system.ref(name).ask(GetProcessReading(), timeout_s=ASK_S)

        return _Reading(
            at=time.monotonic(),
            controller=await look("look/desktops"),
            main=await look("look/main"),
            drawn=await self._system.ref(STUB).ask(GetStepsAsked(), timeout_s=ASK_S),
            ledger=await self._system.ref(LEDGER).ask(GetFigures(), timeout_s=ASK_S),
        )

    async def measure(self, load: float) -> SeatsResult:
        """Start everything, wait until each seat is at work, and measure."""
        wanted, ask = self._wanted, self._system.ref
        await self._system.spawn(ActorSpec(name=LEDGER, factory=ReplayActor, config=_ledger(wanted)))
        demo, rl = PhaseRef(phase=Phase.DEMO, index=0), PhaseRef(phase=Phase.RL, index=1)
        await ask(LEDGER).ask(SetPhase(expected=demo, next=rl, cause="counted", evidence={}), timeout_s=ASK_S)
        paced = standins.PacedConfig(self._seat.model, wanted.period_s, TURNS, *ANSWERS[wanted.format])
        await self._system.spawn(
            ActorSpec(name=STUB, factory=standins.PacedSampler, config=paced, mailbox=1 << 16),
            ActorSpec(name="look/main", factory=standins.ProcessLook),
            ActorSpec(name="look/desktops", factory=standins.ProcessLook, host=CONTROLLERS),
        )
        await self._seats(0, 1)
        await self._until(1)
        one = (await self._read()).controller.uss_bytes
        await self._seats(1, wanted.seats)
        begun = await self._until(wanted.seats)
        if begun < wanted.seats:
            raise ConfigError(f"{begun} of {wanted.seats} seats are at work after --begin {wanted.begin_s:g} s")
        before = await self._read()
        rounds = []
        while time.monotonic() < before.at + wanted.seconds:
            rounds.append(await asyncio.to_thread(standins.reference_round))
            await asyncio.sleep(REFERENCE_EVERY_S)
        after = await self._read()
        return _result(wanted, before, after, one, load, median(rounds))

    async def _seats(self, first: int, end: int) -> None:
        await self._system.spawn(
            *(
                ActorSpec(
                    name=f"desktop/{number}", factory=DesktopController, config=self._seat, host=CONTROLLERS,
                    start_timeout_s=600.0,
                )
                for number in range(first, end)
            )
        )  # fmt: skip

    async def _until(self, seats: int) -> int:
        """Wait until `seats` have an episode, and as many steps more were taken, or `begin_s`. How many have one."""
        until = time.monotonic() + self._wanted.begin_s
        steps: int | None = None
        while True:
            busy = (await self._system.ref(LEDGER).ask(GetFigures(), timeout_s=ASK_S)).seats_busy
            drawn = (await self._system.ref(STUB).ask(GetStepsAsked(), timeout_s=ASK_S)).steps
            steps = drawn if steps is None and busy >= seats else steps
            if steps is not None and drawn >= steps + seats:
                return seats
            if time.monotonic() > until:
                return min(busy, seats)
            output.line(f"  {busy} of {seats} seats have an episode, {drawn} steps", to=sys.stderr)
            await asyncio.sleep(LOOK_S)


def _result(
    wanted: Options, before: _Reading, after: _Reading, one: int, load: float, reference_ms: float | None
) -> SeatsResult:
    steps = after.drawn.steps - before.drawn.steps
    faults = {
        cause: count - before.ledger.faults.get(cause, 0)
        for cause, count in after.ledger.faults.items()
        if count > before.ledger.faults.get(cause, 0)
    }

    def each_ms(seconds: float) -> float | None:
        return 1e3 * seconds / steps if steps else None

    controller_ms = each_ms(after.controller.cpu_s - before.controller.cpu_s)
    seat_kib = (after.controller.uss_bytes - one) / 1024 / (wanted.seats - 1)
    # On a core that has nothing else to do. Beside busy programs each step takes more time, as a reference round does.
    alone_ms = controller_ms * REFERENCE_MS / reference_ms if controller_ms and reference_ms else None
    fed = 1e3 * FED_PERIOD_S / alone_ms if alone_ms else None
    busy = float(after.ledger.seats_busy)
    feeds = f"seats a core feeds at a step per {FED_PERIOD_S:g} s, {wanted.format}"
    targets = [
        Target(name="faults", measured=float(sum(faults.values())), bound=0.0, unit="episodes"),
        Target(name="seats at work", measured=busy, bound=wanted.seats * AT_WORK, unit="of them", at_least=True),
        Target(name=feeds, measured=fed, bound=FED[wanted.format], unit="seats", at_least=True),
        Target(name="memory of a seat", measured=seat_kib, bound=SEAT_KIB, unit="KiB"),
    ]
    return SeatsResult(
        load_at_start=load,
        targets=targets,
        options=wanted,
        wall_s=after.at - before.at,
        steps=steps,
        episodes=sum(after.ledger.episodes.values()) - sum(before.ledger.episodes.values()),
        faults=faults,
        busy=after.ledger.seats_busy,
        prompt_tokens=(after.drawn.prompt_tokens - before.drawn.prompt_tokens) / steps if steps else None,
        controller_ms=controller_ms,
        reference_ms=reference_ms,
        main_ms=each_ms(after.main.cpu_s - before.main.cpu_s),
        seat_kib=seat_kib,
    )


def measure(wanted: Options) -> SeatsResult:
    """Measure in a temporary folder. Raises ConfigError."""
    _refuse_unless_sound(wanted)
    load = os.getloadavg()[0]
    raise_file_limit()
    model = str(Path(wanted.model).resolve() if wanted.model else models.bundled())
    Tokenizer.load(model)
    results: list[SeatsResult] = []
    room = -(-(wanted.seats + WARM_POOL + BOOTS) // wanted.servers)
    hosts = [HostSpec(name=CONTROLLERS, env=dict(SEATS_ENV))]

    async def play(folder: Path, machines: list[MachineConfig]) -> None:
        async with ActorSystem(folder / "run", hosts=hosts) as system:
            results.append(await _Stand(system, wanted, _seat(wanted, machines, model)).measure(load))

    with tempfile.TemporaryDirectory(prefix="computerrl-seats-") as folder:
        with serving(Path(folder), wanted.servers, wanted.screen, room, wanted.changed) as machines:
            run_system(play(Path(folder), machines))
    return results[0]


def run(wanted: Options) -> int:
    """Measure and print; 1 when a target is missed."""
    return show(measure(wanted))
