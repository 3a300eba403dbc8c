"""`make bench NAME=desktops`: all figures of desktops on this machine, beside their targets.

Invariant: every figure is measured on real desktops in this very command. Bounds are multiples of the reference
workload (`reference.py`), which runs in between, so they hold on slow and on busy machines. The result names the
machine's load at the start.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from actors.cluster import output
from actors.desktop.config import screen_of
from actors.desktop.link import LinkDown
from actors.errors import DesktopFault, GuestRefused
from apis.observation import SCREEN
from apis.plans.action import SETTLE
from runtime.errors import ConfigError
from tests.bench import actions, hold, lives, reference, stage
from tests.bench.processes import KINDS
from tests.bench.reference import multiple
from tests.bench.report import Measured, Target, show

# In rounds of the reference workload: a click with settle and observation, and its observation alone, at the median.
CLICK = {"text_editor": 0.28, "file_manager": 0.42, "terminal": 0.13, "libreoffice_calc": 1.3}
OBSERVE = {"text_editor": 0.14, "file_manager": 0.3, "terminal": 0.04, "libreoffice_calc": 0.9}
ANSWER = {True: 1.0, False: 2.0}  # light, Calc: wall time of a click but for the wait until nothing changes
BOOT = 3.2
QUIET_MS = float(SETTLE.args["quiet_ms"])
EPISODE = {"light": 9.0, "Calc": 32.0, "office": 70.0, "Chromium": 20.0, "VLC": 20.0}
LARGER = 1.5  # times what an episode costs at the first screen size
BUSY_LOAD = 0.3  # per core: from here on the machine is not idle


class DesktopsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure; 0 leaves a part out."""

    apps: str = ",".join(stage.APPS)
    actions: int = 60
    boots: int = 10
    episodes: int = 10
    kinds: str = "light,Calc"
    screens: str = "x".join(map(str, SCREEN))
    hold: int = 0
    hold_app: str = "text_editor"
    overrides: list[str] = []
    targets: bool = True


class DesktopsResult(Measured, frozen=True, kw_only=True):
    """Everything measured."""

    idle: bool
    actions: list[actions.Cost]
    boots: lives.Boots | None
    episodes: list[lives.OracleEpisodes]
    held: hold.Held | None


def _said(text: str) -> None:
    output.line(f"  {text}", to=sys.stderr)


async def measure(wanted: DesktopsOptions) -> DesktopsResult:
    """Measure what is wanted, one thing after the other. Raises ConfigError."""
    apps = stage.known(wanted.apps)
    stage.known(wanted.hold_app)
    kinds, screens = lives.kinds(wanted.kinds), [text.strip() for text in wanted.screens.split(",")]
    for screen in screens:
        screen_of(screen)
    if min(wanted.actions, wanted.boots, wanted.episodes, wanted.hold) < 0:
        raise ConfigError("counts start at 0, which leaves the part out")
    sandbox, load = stage.sandbox_set(wanted.overrides), os.getloadavg()[0]
    if wanted.hold:
        hold.refuse_unless_fits(wanted.hold_app, wanted.hold)
    costs: list[actions.Cost] = []
    booted, held, played = None, None, []
    async with stage.provider(sandbox) as made:
        async with reference.opened(made) as beside:
            for app in apps if wanted.actions else ():
                async with stage.desktop(made, app) as one:
                    costs += await actions.measure(one, app, wanted.actions, beside, _said)
            if wanted.boots:
                booted = await lives.boots(made, wanted.boots, beside, _said)
            for kind in kinds if wanted.episodes else ():
                played += [
                    await lives.episodes(sandbox, kind, screen, wanted.episodes, beside, said=_said)
                    for screen in screens
                ]
        if wanted.hold:
            held = await hold.hold(made, wanted.hold_app, wanted.hold, _said)
    targets = targets_of(costs, booted, played, held) if wanted.targets else []
    return DesktopsResult(
        load_at_start=load,
        idle=load <= BUSY_LOAD * (os.cpu_count() or 1),
        actions=costs,
        boots=booted,
        episodes=played,
        held=held,
        targets=targets,
    )


def targets_of(
    costs: list[actions.Cost], booted: lives.Boots | None, played: list[lives.OracleEpisodes], held: hold.Held | None
) -> list[Target]:
    """Every figure that has a bound, in rounds of the reference workload that ran beside it."""
    found = []
    for cost in (cost for cost in costs if cost.action == "click"):
        found += [
            _rounds(f"click in {cost.app}, CPU", cost.cpu_p50_ms, cost.reference.cpu_ms, CLICK[cost.app]),
            _rounds("its observation, CPU", cost.observe_cpu_p50_ms, cost.reference.cpu_ms, OBSERVE[cost.app]),
            _rounds(
                "its wall time", _without_wait(cost.p50_ms), cost.reference.wall_ms, ANSWER[cost.app in stage.LIGHT]
            ),
        ]
    if booted is not None:
        found.append(_rounds("boot, CPU", _in_ms(booted.cpu_s), booted.reference.cpu_ms, BOOT))
    firsts: dict[str, lives.OracleEpisodes] = {}
    for one in played:
        first = firsts.setdefault(one.kind, one)
        name, rounds = f"{one.kind} episode, CPU", multiple(_in_ms(one.cpu_s), one.reference.cpu_ms)
        if one is first:
            found.append(Target(name=name, measured=rounds, bound=EPISODE[one.kind], unit="rounds"))
        else:
            times = multiple(rounds, multiple(_in_ms(first.cpu_s), first.reference.cpu_ms))
            unit = f"of that at {first.screen}"
            found.append(Target(name=f"{name} at {one.screen}", measured=times, bound=LARGER, unit=unit))
    if held is not None:
        name = f"desktops with {held.app} held and answering"
        bound = float(held.wanted)
        found.append(Target(name=name, measured=float(held.answering), bound=bound, unit="of them", at_least=True))
    return found


def _rounds(name: str, cost_ms: float | None, reference_ms: float | None, bound: float) -> Target:
    return Target(name=name, measured=multiple(cost_ms, reference_ms), bound=bound, unit="rounds")


def _without_wait(wall_ms: float | None) -> float | None:
    """What of an action's wall time its work takes: each waits until nothing has changed for a fixed time."""
    return None if wall_ms is None else max(0.0, wall_ms - QUIET_MS)


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def run(wanted: DesktopsOptions, *, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed."""
    try:
        found = asyncio.run(measure(wanted))
    except (DesktopFault, LinkDown, GuestRefused) as error:
        output.line(f"a desktop was lost while it was measured: {error}", to=sys.stderr)
        return 1
    busy = "" if found.idle else "  NOT IDLE: wall times are longer than on an idle machine"
    return show(found, _tell, as_json=as_json, note=busy)


def _tell(found: DesktopsResult) -> None:
    output.line()
    if found.actions:
        head = ("APP", "ACTION", "N", "P50 MS", "P95 MS", "ACT", "SETTLE", "OBSERVE", "TRANSPORT", "CPU MS", "HOST CPU")
        output.table(head, [_wall_row(cost) for cost in found.actions])
        output.line("\nprocessor milliseconds per action, by part and by guest process")
        kinds = (kind.upper() for kind in KINDS)
        heads = ("APP", "ACTION", "ACT", "SETTLE", "OBSERVE", *kinds, "P50", "REFERENCE", "ROUNDS")
        output.table(heads, [_cpu_row(cost) for cost in found.actions])
    if (b := found.boots) is not None:
        parts = f"guest {_s(b.guest_cpu_s)}, this process {_s(b.host_cpu_s)}"
        output.prose(
            f"\nboot       {_s(b.cpu_s)} CPU ({parts}), {_beside(b.cpu_s, b.reference)},"
            f" {_s(b.wall_p50_s)} wall (p95 {_s(b.wall_p95_s)}), n {b.n}"
        )
    for e in found.episodes:
        parts = f"guest's boot {_s(e.boot_cpu_s)}, play {_s(e.play_cpu_s)}; host {_s(e.host_cpu_s)}"
        output.prose(
            f"{e.kind:<10} {_s(e.cpu_s)} CPU an episode at {e.screen} ({parts}), {_beside(e.cpu_s, e.reference)},"
            f" {_s(e.wall_p50_s)} wall, {e.steps:.1f} steps,"
            f" {e.successes} of {e.n} solved, {e.faults} faults, {len(e.families)} families"
        )
    if (h := found.held) is not None:
        mib = [n >> 20 for n in (h.pss_median_bytes, h.pss_max_bytes, h.charged_median_bytes, h.charged_max_bytes)]
        output.prose(
            f"\nheld       {h.held} of {h.wanted} with {h.app}, {h.answering} answering, up after {h.ready_s:.0f} s\n"
            f"           PSS {mib[0]} MiB each (max {mib[1]}), {h.pss_all_bytes >> 20} in all;"
            f" control group {mib[2]} MiB each (max {mib[3]})\n"
            f"           the machine had {h.taken_bytes >> 20} MiB less, this process took {h.host_bytes >> 20} MiB;"
            f" idle CPU of all {h.idle_cpu:.1%} of a core"
        )
        for reason in h.lost:
            output.line(f"           lost: {reason}")
    if found.targets:
        output.line()


def _wall_row(cost: actions.Cost) -> tuple[object, ...]:
    parts = [_ms(cost.parts_p50_ms[part]) for part in actions.PARTS]
    cpu = sum(cost.cpu_ms.values())
    return (
        cost.app, cost.action, cost.n, _ms(cost.p50_ms), _ms(cost.p95_ms), *parts, _ms(cost.transport_p50_ms),
        _ms(cpu), _ms(cost.host_cpu_ms),
    )  # fmt: skip


def _cpu_row(cost: actions.Cost) -> tuple[object, ...]:
    parts = [_ms(cost.cpu_ms[part]) for part in actions.PARTS]
    kinds = [_ms(cost.guest_cpu_ms[kind]) for kind in KINDS]
    beside = cost.reference.cpu_ms
    rounds = _times(multiple(cost.cpu_p50_ms, beside))
    return (cost.app, cost.action, *parts, *kinds, _ms(cost.cpu_p50_ms), _ms(beside), rounds)


def _beside(cpu_s: float | None, one: reference.ReferenceRound) -> str:
    return f"{_times(multiple(_in_ms(cpu_s), one.cpu_ms))} rounds of {_ms(one.cpu_ms)} ms"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
