"""`make bench NAME=desktops`: what an action, a boot and an oracle's episode cost on real desktops of this machine.

Every figure is measured in this very command. Bounds are multiples of the reference workload (`reference.py`), which
runs in between, so they hold on slow and on busy machines. Actions are typed and planned as a model's are, and every
click goes elsewhere than the click before it. An episode's time is all of it: the desktop's boot, its guest, this
process and its children for the verifier. Desktops come one after the other, so no neighbour is counted.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time

import msgspec

from actors.cluster import output
from actors.cluster.checks.desk import provider, sandbox_set
from actors.cluster.config import models
from actors.desktop.config import PoolConfig, SandboxConfig, screen_of
from actors.desktop.link import LinkDown
from actors.desktop.player import Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault, GuestRefused
from apis.actions.gui import AnyAction, Click, Hotkey, Type
from apis.observation import SCREEN, Observation
from apis.plans.action import SETTLE, plan
from apis.tasks import registry as tasks
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from tests.bench import reference, stage
from tests.bench.reference import ROUNDS, Reference, ReferenceRound, middle
from tests.bench.report import Measured, Target, median, multiple, percentile, show

PARTS = ("act", "settle", "observe")
UNDO = {"text_editor": ("ctrl", "z"), "terminal": ("ctrl", "u"), "libreoffice_calc": ("esc",)}
# In rounds of the reference workload: a click with settle and observation, and its observation alone, at the median.
CLICK = {"text_editor": 0.28, "file_manager": 0.42, "terminal": 0.13, "libreoffice_calc": 1.3}
OBSERVE = {"text_editor": 0.14, "file_manager": 0.3, "terminal": 0.04, "libreoffice_calc": 0.9}
ANSWER = {True: 1.0, False: 2.0}  # light, Calc: wall time of a click but for the wait until nothing changes
BOOT = 3.2
QUIET_MS = float(SETTLE.args["quiet_ms"])
EPISODE = {"light": 9.0, "Calc": 32.0, "office": 70.0, "Chromium": 20.0, "VLC": 20.0}
# By kind of episode: the applications of which a family needs one, with light ones.
OFFICE = frozenset({"libreoffice_calc", "libreoffice_writer", "libreoffice_impress"})
KINDS = {
    "light": stage.LIGHT,
    "Calc": frozenset({"libreoffice_calc"}),
    "office": OFFICE,
    "Chromium": frozenset({"google_chrome"}),
    "VLC": frozenset({"vlc"}),
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure; 0 leaves a part out."""

    apps: str = ",".join(stage.APPS)
    actions: int = 60  # of each kind and application
    boots: int = 10
    episodes: int = 10  # of each kind
    kinds: str = "light,Calc"
    screen: str = "x".join(map(str, SCREEN))  # of episodes
    overrides: list[str] = msgspec.field(default_factory=list)  # keys of desktops.provider
    targets: bool = True


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Many actions of one kind in one application: milliseconds on the wall and of processors, guest and host."""

    app: str
    action: str
    n: int
    wall_ms: dict[str, float | None]  # median by part, and of all in `all`
    cpu_ms: dict[str, float | None]
    wall_p95_ms: float | None
    reference: ReferenceRound


class Boots(msgspec.Struct, frozen=True, kw_only=True):
    """Boots one after the other, until the agent said that it is ready."""

    n: int
    cpu_s: float | None  # median, guest and host
    wall_p50_s: float | None
    wall_p95_s: float | None
    reference: ReferenceRound


class OracleEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Oracle episodes one after the other."""

    kind: str
    screen: str  # WIDTHxHEIGHT in pixels
    n: int
    successes: int
    faults: int
    families: list[str]
    cpu_s: float | None  # mean of everything
    wall_p50_s: float | None  # from a leased desktop to the outcome
    steps: float  # mean
    reference: ReferenceRound


class DesktopsResult(Measured, frozen=True, kw_only=True):
    """Everything measured."""

    actions: list[Cost]
    boots: Boots | None
    episodes: list[OracleEpisodes]


def _progress(text: str) -> None:
    output.line(f"  {text}", to=sys.stderr)


def places(observation: Observation, app: str) -> list[tuple[int, int]]:
    """Two places of which a click on each changes something when the other was clicked before."""
    shown = [e for e in observation.elements if e.window == observation.active and e.w > 0 and e.h > 0]
    if app == "file_manager":
        icons = [e for e in shown if e.name.endswith(".txt")]
        if len(icons) > 1:
            return [(icons[0].cx, icons[0].cy), (icons[-1].cx, icons[-1].cy)]
    if app == "libreoffice_calc":
        cells = {e.name: e for e in shown if e.tag == "table-cell"}
        pair = [cells[name] for name in ("A5", "B9", "A3", "B4", "C8") if name in cells][:2]
        if len(pair) > 1:
            return [(cell.cx, cell.cy) for cell in pair]
    largest = max(shown, key=lambda e: e.w * e.h, default=None)
    if largest is None:
        return [(400, 250), (500, 400)]
    return [(largest.x + 60, largest.y + 30), (largest.x + 90, largest.y + largest.h // 3)]


async def actions(made: SandboxProvider, app: str, count: int, beside: Reference) -> list[Cost]:
    """`count` clicks, then `count` typings and hotkeys in turns, in `app` on a desktop of its own."""
    costs = []
    async with stage.desktop(made, app) as booted:
        observation = await stage.observe(booted.link)
        where = places(observation, app)
        clicks: list[AnyAction] = [Click(coordinates=where[n % 2]) for n in range(count)]
        if app in UNDO:
            pair: list[AnyAction] = [Type(text="kiwi"), Hotkey(keys=UNDO[app])]
        else:
            pair = [Hotkey(keys=("right",)), Hotkey(keys=("left",))]
        for kind, each in (("click", clicks), ("type and hotkey", [pair[n % 2] for n in range(count)])):
            _progress(f"{app}: {count} x {kind}")
            wall: dict[str, list[float]] = {part: [] for part in (*PARTS, "all")}
            cpu: dict[str, list[float]] = {part: [] for part in wall}
            rounds = [await beside.round()]
            for number, action in enumerate(each, 1):
                observation = await _action(made, booted, action, observation, wall, cpu)
                if number % max(1, count // ROUNDS) == 0:
                    rounds.append(await beside.round())
            costs.append(
                Cost(
                    app=app,
                    action=kind,
                    n=count,
                    wall_ms={part: median(values) for part, values in wall.items()},
                    cpu_ms={part: median(values) for part, values in cpu.items()},
                    wall_p95_ms=percentile(wall["all"], 0.95),
                    reference=middle(rounds),
                )
            )
    return costs


async def _action(
    made: SandboxProvider,
    booted: stage.Booted,
    action: AnyAction,
    observation: Observation,
    wall: dict[str, list[float]],
    cpu: dict[str, list[float]],
) -> Observation:
    """Act, settle and observe; the clocks are read outside the parts that they bound."""
    calls = list(plan(action, observation).calls)
    acts = [call for call in calls if call.method != "settle" or call is not calls[-1]]
    sums = [0.0, 0.0]
    for part in PARTS:
        used = (await made.probe(booted.desktop)).cpu_s
        own, began = time.process_time(), time.perf_counter()
        if part == "observe":
            observation = await stage.observe(booted.link)
        else:
            await stage.carry_out(booted.link, acts if part == "act" else calls[len(acts) :])
        wall[part].append(1e3 * (time.perf_counter() - began))
        own = time.process_time() - own
        cpu[part].append(1e3 * (own + (await made.probe(booted.desktop)).cpu_s - used))
        sums = [sums[0] + wall[part][-1], sums[1] + cpu[part][-1]]
    wall["all"].append(sums[0])
    cpu["all"].append(sums[1])
    return observation


async def boots(made: SandboxProvider, count: int, beside: Reference) -> Boots:
    """Boot and destroy `count` desktops."""
    _progress(f"{count} boots")
    guest, host, wall = [], [], []
    rounds = [await beside.round()]
    for _ in range(count):
        own = time.process_time()
        booted = await stage.boot(made)
        host.append(time.process_time() - own)
        wall.append(booted.wall_s)
        guest.append((await made.probe(booted.desktop)).cpu_s)
        await booted.link.close()
        await made.destroy(booted.desktop)
        rounds.append(await beside.round())
    both = [a + b for a, b in zip(guest, host, strict=True)]
    return Boots(
        n=count,
        cpu_s=median(both) if all(guest) else None,  # where no control group can be made, nothing counts guests
        wall_p50_s=median(wall),
        wall_p95_s=percentile(wall, 0.95),
        reference=middle(rounds),
    )


def families(kind: str) -> list[str]:
    """The families that need an application of `kind` and, with it, none but the office's and the light ones."""
    apps = KINDS[kind]
    return [
        name
        for name, family in tasks.FAMILIES.items()
        if not apps.isdisjoint(family.apps)
        and (apps | stage.LIGHT | OFFICE).issuperset(family.apps)
        and (kind != "light" or stage.LIGHT.issuperset(family.apps))
    ]


async def episodes(sandbox: SandboxConfig, kind: str, screen: str, count: int, beside: Reference) -> OracleEpisodes:
    """Play `count` held-out instances of a kind's families in turns, each on a desktop of its own, one by one."""
    _progress(f"{count} {kind} episodes by oracle at {screen}")
    named, (width, height) = families(kind), screen_of(screen)
    tokenizer = Tokenizer.load(models.locate(""))
    plays: list[Play] = []
    rounds = [await beside.round()]
    made = await SandboxProvider.start(sandbox, f"bench-{os.getpid()}")
    began = _cpu_s()
    pool = DesktopPool(made, DesktopSpec(width=width, height=height), PoolConfig(warm_pool=0))
    try:
        for number in range(count):
            task = f"{named[number % len(named)]}/held-out/{number}"
            plays.append(await Player(pool).play(task, demonstrated(tokenizer), seed=number))
            rounds.append(await beside.round())
    finally:
        await pool.close()
    host = (_cpu_s() - began) / count
    guests = [play.boot_cpu_s + play.cpu_s for play in plays]
    return OracleEpisodes(
        kind=kind,
        screen=screen,
        n=count,
        successes=sum(play.success for play in plays),
        faults=sum(len(play.faults) for play in plays),
        families=named,
        cpu_s=host + sum(guests) / count if all(guests) else None,
        wall_p50_s=median([play.wall_s for play in plays]),
        steps=sum(len(play.steps) for play in plays) / count,
        reference=middle(rounds),
    )


def _cpu_s() -> float:
    """Processor seconds of this process and of the children it waited for.

    What a sandbox's processes used is not in it: the kernel ends them together with their namespace and adds nothing.
    """
    mine, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime


async def measure(wanted: Options) -> DesktopsResult:
    """Measure what is wanted, one thing after the other. Raises ConfigError."""
    apps = stage.known("--apps", wanted.apps, stage.APPS)
    kinds = stage.known("--kinds", wanted.kinds, KINDS)
    screen_of(wanted.screen)
    if min(wanted.actions, wanted.boots, wanted.episodes) < 0:
        raise ConfigError("counts start at 0, which leaves the part out")
    sandbox, load = sandbox_set(wanted.overrides), os.getloadavg()[0]
    costs: list[Cost] = []
    booted, played = None, []
    async with provider(sandbox) as made, reference.opened(made) as beside:
        for app in apps if wanted.actions else ():
            costs += await actions(made, app, wanted.actions, beside)
        if wanted.boots:
            booted = await boots(made, wanted.boots, beside)
        if wanted.episodes:
            played = [await episodes(sandbox, kind, wanted.screen, wanted.episodes, beside) for kind in kinds]
    targets = targets_of(costs, booted, played) if wanted.targets else []
    return DesktopsResult(load_at_start=load, actions=costs, boots=booted, episodes=played, targets=targets)


def targets_of(costs: list[Cost], booted: Boots | None, played: list[OracleEpisodes]) -> list[Target]:
    """Every figure that has a bound, in rounds of the reference workload that ran meanwhile."""

    def rounds(name: str, cost_ms: float | None, reference_ms: float | None, bound: float) -> Target:
        return Target(name=name, measured=multiple(cost_ms, reference_ms), bound=bound, unit="rounds")

    targets = []
    for cost in (cost for cost in costs if cost.action == "click"):
        app, wall_ms = cost.app, cost.wall_ms["all"]
        worked_ms = None if wall_ms is None else max(0.0, wall_ms - QUIET_MS)  # each waits for a fixed time of quiet
        targets += [
            rounds(f"click in {app}, CPU", cost.cpu_ms["all"], cost.reference.cpu_ms, CLICK[app]),
            rounds("its observation, CPU", cost.cpu_ms["observe"], cost.reference.cpu_ms, OBSERVE[app]),
            rounds("its wall time", worked_ms, cost.reference.wall_ms, ANSWER[app in stage.LIGHT]),
        ]
    if booted is not None:
        targets.append(rounds("boot, CPU", _in_ms(booted.cpu_s), booted.reference.cpu_ms, BOOT))
    return targets + [
        rounds(f"{each.kind} episode, CPU", _in_ms(each.cpu_s), each.reference.cpu_ms, EPISODE[each.kind])
        for each in played
    ]


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def run(wanted: Options) -> int:
    """Measure and print; 1 when a target is missed."""
    try:
        return show(asyncio.run(measure(wanted)))
    except (DesktopFault, LinkDown, GuestRefused) as error:
        output.line(f"a desktop was lost while it was measured: {error}", to=sys.stderr)
        return 1
