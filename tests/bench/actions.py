"""What one action costs: act, settle and observe on one desktop, in wall time and in processor time by process.

Invariant: the clocks are read outside the parts that they bound, so no part pays for looking at processes. Actions are
typed and planned as a model's are. Every click goes elsewhere than the click before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from apis.actions.gui import AnyAction, Click, Hotkey, Type
from apis.observation import Observation
from apis.plans.action import plan
from runtime.errors import ConfigError
from tests.bench.processes import KINDS, Members, spent
from tests.bench.reference import ROUNDS, Reference, ReferenceRound, middle
from tests.bench.report import median, percentile
from tests.bench.stage import CALL_S, Booted, carry_out, observe

PARTS = ("act", "settle", "observe")
UNDO = {"text_editor": ("ctrl", "z"), "terminal": ("ctrl", "u"), "libreoffice_calc": ("esc",)}


class ActionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One action: milliseconds by part on the wall, on this host's processor, and by guest process."""

    wall_ms: dict[str, float]
    host_cpu_ms: dict[str, float]
    guest_cpu_ms: dict[str, dict[str, float]]  # part -> kind of process
    calls: int
    ping_ms: float


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Many actions of one kind in one application."""

    app: str
    action: str
    n: int
    p50_ms: float | None
    p95_ms: float | None
    parts_p50_ms: dict[str, float | None]
    transport_p50_ms: float | None  # what the calls of one action cost on the way, within the parts
    cpu_ms: dict[str, float]  # mean per action by part, guest and host
    guest_cpu_ms: dict[str, float]  # mean per action by kind of process
    host_cpu_ms: float
    cpu_p50_ms: float | None  # guest and host, all parts
    observe_cpu_p50_ms: float | None  # guest and host
    reference: ReferenceRound


def places(observation: Observation, app: str) -> list[tuple[int, int]]:
    """Two places of which a click on each changes something when the other was clicked before."""
    shown = [e for e in observation.elements if e.window == observation.active and e.w > 0 and e.h > 0]
    if app == "file_manager":
        icons = [e for e in shown if e.name.endswith(".txt")]
        if len(icons) > 1:
            return [(icons[0].cx, icons[0].cy), (icons[-1].cx, icons[-1].cy)]
    if app == "libreoffice_calc":
        cells = {e.name: e for e in shown if e.tag == "table-cell"}
        found = [cells[name] for name in ("A5", "B9", "A3", "B4", "C8") if name in cells][:2]
        if len(found) > 1:
            return [(cell.cx, cell.cy) for cell in found]
    largest = max(shown, key=lambda e: e.w * e.h, default=None)
    if largest is None:
        return [(400, 250), (500, 400)]
    return [(largest.x + 60, largest.y + 30), (largest.x + 90, largest.y + largest.h // 3)]


async def measure(
    booted: Booted, app: str, count: int, reference: Reference, said: Callable[[str], None]
) -> list[Cost]:
    """`count` clicks, then `count` typings and hotkeys in turns, in `app`, which is open."""
    first = await observe(booted.link)
    where = places(first, app)
    kinds: dict[str, list[AnyAction]] = {"click": [Click(coordinates=where[n % 2]) for n in range(count)]}
    if app in UNDO:
        typed: list[AnyAction] = [Type(text="kiwi"), Hotkey(keys=UNDO[app])]
    else:
        typed = [Hotkey(keys=("right",)), Hotkey(keys=("left",))]
    kinds["type and hotkey"] = [typed[n % 2] for n in range(count)]
    costs = []
    for kind, actions in kinds.items():
        said(f"{app}: {count} x {kind}")
        members = members_of(booted)
        timed, observation = [], first
        rounds = [await reference.round()]
        for number, action in enumerate(actions, 1):
            one, observation = await _one(booted, action, observation, members)
            timed.append(one)
            if number % max(1, count // ROUNDS) == 0:
                rounds.append(await reference.round())
        costs.append(summed(app, kind, timed, middle(rounds)))
    return costs


def members_of(booted: Booted) -> Members:
    """Its processes. Raises ConfigError where the provider can't see them."""
    if booted.desktop.outside is None:
        raise ConfigError("only sandboxes on this machine can be measured")
    return Members(booted.desktop.outside)


async def _one(
    booted: Booted, action: AnyAction, observation: Observation, members: Members
) -> tuple[ActionTimes, Observation]:
    calls = list(plan(action, observation).calls)
    acts = [call for call in calls if call.method != "settle" or call is not calls[-1]]
    wall: dict[str, float] = {}
    host: dict[str, float] = {}
    guest: dict[str, dict[str, float]] = {}
    before = time.perf_counter()
    await booted.link.call("ping", timeout_s=CALL_S)
    ping_ms = 1e3 * (time.perf_counter() - before)
    for part in PARTS:
        cpu = members.cpu_ms()
        own, began = time.process_time(), time.perf_counter()
        if part == "observe":
            observation = await observe(booted.link)
        else:
            await carry_out(booted.link, acts if part == "act" else calls[len(acts) :])
        wall[part] = 1e3 * (time.perf_counter() - began)
        host[part] = 1e3 * (time.process_time() - own)
        guest[part] = spent(cpu, members.cpu_ms())
    one = ActionTimes(wall_ms=wall, host_cpu_ms=host, guest_cpu_ms=guest, calls=len(calls) + 1, ping_ms=ping_ms)
    return one, observation


def summed(app: str, action: str, timed: list[ActionTimes], reference: ReferenceRound) -> Cost:
    """The figures of many actions, beside the reference's."""
    n = max(1, len(timed))
    whole = [sum(one.wall_ms.values()) for one in timed]
    spent_ms = {part: [one.host_cpu_ms[part] + sum(one.guest_cpu_ms[part].values()) for one in timed] for part in PARTS}
    by_kind = {kind: sum(one.guest_cpu_ms[part][kind] for one in timed for part in PARTS) / n for kind in KINDS}
    return Cost(
        app=app,
        action=action,
        n=len(timed),
        p50_ms=median(whole),
        p95_ms=percentile(whole, 0.95),
        parts_p50_ms={part: median([one.wall_ms[part] for one in timed]) for part in PARTS},
        transport_p50_ms=median([one.calls * one.ping_ms for one in timed]),
        cpu_ms={part: sum(values) / n for part, values in spent_ms.items()},
        guest_cpu_ms=by_kind,
        host_cpu_ms=sum(sum(one.host_cpu_ms.values()) for one in timed) / n,
        cpu_p50_ms=median([sum(parts) for parts in zip(*spent_ms.values(), strict=True)]),
        observe_cpu_p50_ms=median(spent_ms["observe"]),
        reference=reference,
    )
