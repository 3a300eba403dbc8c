"""`bench desktops`: all figures of desktops on this machine, beside their targets.

Invariant: every figure is measured on real desktops in this very command; how busy the machine was when it began is
said with the result.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from actors.cluster import say
from actors.cluster.bench import actions, hold, lives, stage
from actors.cluster.bench.figures import Target
from actors.cluster.bench.processes import KINDS
from actors.desktop.link import LinkDown
from actors.errors import DesktopFault, GuestRefused
from runtime.errors import ConfigError

ACT_MS = {True: 150.0, False: 500.0}  # light, Calc: a click with settle and observation at the 50th percentile
BOOT_CPU_S = 0.3
EPISODE_CPU_S = {"light": 0.6, "Calc": 2.0}
BUSY_LOAD = 0.3  # per core: from here on the machine is not idle


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure; 0 leaves a part out."""

    apps: str = ",".join(stage.APPS)
    actions: int = 60
    boots: int = 10
    episodes: int = 10
    hold: int = 0
    hold_app: str = "text_editor"
    state_dir: str = "/run/computerrl"
    targets: bool = True


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured."""

    cores: int
    load_at_start: float  # processes that ran or wanted to, mean of the last minute
    idle: bool
    actions: list[actions.Cost]
    boots: lives.Boots | None
    episodes: list[lives.Episodes]
    held: hold.Held | None
    targets: list[Target]
    met: bool


def _said(text: str) -> None:
    say.line(f"  {text}", to=sys.stderr)


async def measure(wanted: Wanted) -> Found:
    """Measure what is wanted, one thing after the other. Raises ConfigError."""
    apps = stage.known(wanted.apps)
    stage.known(wanted.hold_app)
    if min(wanted.actions, wanted.boots, wanted.episodes, wanted.hold) < 0:
        raise ConfigError("counts start at 0, which leaves the part out")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if wanted.hold:
        hold.refuse_unless_fits(wanted.hold_app, wanted.hold)
    costs: list[actions.Cost] = []
    booted, held, played = None, None, []
    async with stage.provider(wanted.state_dir) as made:
        if wanted.actions:
            for app in apps:
                async with stage.desktop(made, app) as one:
                    costs += await actions.measure(one, app, wanted.actions, _said)
        if wanted.boots:
            booted = await lives.boots(made, wanted.boots, _said)
        if wanted.episodes:
            for kind, calc in (("light", False), ("Calc", True)):
                named = lives.families(calc=calc)
                if ("libreoffice_calc" in apps) if calc else set(apps) & stage.LIGHT:
                    played.append(await lives.episodes(wanted.state_dir, kind, named, wanted.episodes, _said))
        if wanted.hold:
            held = await hold.hold(made, wanted.hold_app, wanted.hold, _said)
    targets = _targets(costs, booted, played, held) if wanted.targets else []
    return Found(
        cores=cores,
        load_at_start=load,
        idle=load <= BUSY_LOAD * cores,
        actions=costs,
        boots=booted,
        episodes=played,
        held=held,
        targets=targets,
        met=all(target.met for target in targets),
    )


def _targets(
    costs: list[actions.Cost], booted: lives.Boots | None, played: list[lives.Episodes], held: hold.Held | None
) -> list[Target]:
    found = [
        Target(name=f"click in {c.app}, p50", measured=c.p50_ms, bound=ACT_MS[c.app in stage.LIGHT], unit="ms")
        for c in costs
        if c.action == "click"
    ]
    if booted is not None:
        found.append(Target(name="boot, CPU", measured=booted.cpu_s, bound=BOOT_CPU_S, unit="s"))
    found += [
        Target(name=f"{one.kind} episode, CPU", measured=one.cpu_s, bound=EPISODE_CPU_S[one.kind], unit="s")
        for one in played
    ]
    if held is not None:
        name = f"desktops with {held.app} held and answering"
        bound = float(held.wanted)
        found.append(Target(name=name, measured=float(held.answering), bound=bound, unit="of them", at_least=True))
    return found


def run(wanted: Wanted, *, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed."""
    try:
        found = asyncio.run(measure(wanted))
    except (DesktopFault, LinkDown, GuestRefused) as error:
        say.line(f"computerrl bench desktops: a desktop was lost while it was measured: {error}", to=sys.stderr)
        return 1
    if as_json:
        say.document(found)
    else:
        _print(found)
    return 0 if found.met else 1


def _print(found: Found) -> None:
    busy = "" if found.idle else "  NOT IDLE: wall times are longer than on an idle machine"
    say.line(f"{found.cores} cores, load {found.load_at_start:.2f} at the start{busy}\n")
    if found.actions:
        head = ("APP", "ACTION", "N", "P50 MS", "P95 MS", "ACT", "SETTLE", "OBSERVE", "TRANSPORT", "CPU MS", "HOST CPU")
        say.table(head, [_wall_row(cost) for cost in found.actions])
        say.line("\nprocessor milliseconds per action, by part and by guest process")
        heads = ("APP", "ACTION", "ACT", "SETTLE", "OBSERVE", *(kind.upper() for kind in KINDS))
        say.table(heads, [_cpu_row(cost) for cost in found.actions])
    if (b := found.boots) is not None:
        parts = f"guest {_s(b.guest_cpu_s)}, this process {_s(b.host_cpu_s)}"
        say.line(f"\nboot       {_s(b.cpu_s)} CPU ({parts}), {_s(b.wall_p50_s)} wall (p95 {_s(b.wall_p95_s)}), n {b.n}")
    for e in found.episodes:
        parts = f"guest's boot {_s(e.boot_cpu_s)}, play {_s(e.play_cpu_s)}; host {_s(e.host_cpu_s)}"
        say.line(
            f"{e.kind:<10} {_s(e.cpu_s)} CPU an episode ({parts}), {_s(e.wall_p50_s)} wall, {e.steps:.1f} steps,"
            f" {e.successes} of {e.n} solved, {e.faults} faults, {len(e.families)} families"
        )
    if (h := found.held) is not None:
        mib = [n >> 20 for n in (h.pss_median_bytes, h.pss_max_bytes, h.charged_median_bytes, h.charged_max_bytes)]
        say.line(
            f"\nheld       {h.held} of {h.wanted} with {h.app}, {h.answering} answering, up after {h.ready_s:.0f} s\n"
            f"           PSS {mib[0]} MiB each (max {mib[1]}), {h.pss_all_bytes >> 20} in all;"
            f" control group {mib[2]} MiB each (max {mib[3]})\n"
            f"           the machine had {h.taken_bytes >> 20} MiB less, this process took {h.host_bytes >> 20} MiB;"
            f" idle CPU of all {h.idle_cpu:.1%} of a core"
        )
        for reason in h.lost:
            say.line(f"           lost: {reason}")
    if found.targets:
        say.line()
        say.table(("TARGET", "MEASURED", "BOUND", ""), [target.row() for target in found.targets])


def _wall_row(cost: actions.Cost) -> tuple[object, ...]:
    parts = [_ms(cost.parts_p50_ms[part]) for part in actions.PARTS]
    cpu = sum(cost.cpu_ms.values())
    return (
        cost.app, cost.action, cost.n, _ms(cost.p50_ms), _ms(cost.p95_ms), *parts, _ms(cost.transport_p50_ms),
        _ms(cpu), _ms(cost.host_cpu_ms),
    )  # fmt: skip


def _cpu_row(cost: actions.Cost) -> tuple[object, ...]:
    parts = [_ms(cost.cpu_ms[part]) for part in actions.PARTS]
    return (cost.app, cost.action, *parts, *(_ms(cost.guest_cpu_ms[kind]) for kind in KINDS))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
