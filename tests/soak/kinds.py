"""The faults that a soak injects, and the log lines that must name them. Pure.

Invariant: every kind has a deadline and at least one line that names it. A line counts only when it was written after
the fault was injected.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

Line = Mapping[str, Any]


class Sign(msgspec.Struct, frozen=True):
    """A log line: an event whose fields begin with these texts."""

    event: str
    fields: tuple[tuple[str, str], ...] = ()

    def matches(self, line: Line) -> bool:
        """Whether `line` is such a line."""
        named = all(str(line.get(field, "")).startswith(text) for field, text in self.fields)
        return line["event"] == self.event and named

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{field}={text}" for field, text in self.fields)])


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One way to break a run."""

    name: str
    part: str  # what it hits; two faults of one part keep `rest_s` between them
    signs: tuple[Sign, ...]  # any of them names it
    deadline_s: float
    hold_s: float = 0.0  # how long it lasts, where it is ended by who injected it
    whole: bool = False  # it lasts so long even where it is named sooner
    rest_s: float = 0.0
    weight: int = 1
    follows: tuple[tuple[Sign, float], ...] = ()  # lines that must come after it was named, and within how many seconds


def _sign(event: str, **fields: str) -> Sign:
    return Sign(event, tuple(fields.items()))


DIED = _sign("desktop_spare_died")  # it hit a desktop that no seat had leased yet
UNBORN = _sign("desktop_boot_failed")  # it hit one that was still booting
BROKE = "agent_broke_desktop"  # a guest can do this to itself, so it is the policy's doing once it has acted
LOST = (
    _sign("episode_ended", reason=BROKE),
    *(
        _sign("episode_faulted", cause=cause)
        for cause in ("connection_lost", "agent_silent", "boot_failed", "boot_timeout", "setup_failed", "not_observed")
    ),
    DIED,
    UNBORN,
)
OUTCOME = (_sign("episode_ended"), _sign("episode_faulted"), DIED, UNBORN)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="sandbox_kill", part="guest", deadline_s=30.0, weight=3,
            signs=(_sign("episode_faulted", cause="sandbox_killed"), _sign("episode_faulted", cause="boot_failed"),
                   DIED, UNBORN),
        ),
        Kind(name="agent_kill", part="guest", deadline_s=30.0, weight=2, signs=LOST),
        Kind(name="agent_stop", part="guest", deadline_s=60.0, weight=2, signs=LOST),
        Kind(name="sshd_kill", part="guest", deadline_s=30.0, weight=2, signs=LOST),
        Kind(name="connection_cut", part="guest", deadline_s=30.0, weight=2, signs=LOST),
        Kind(name="x_kill", part="guest", deadline_s=45.0, weight=2, signs=LOST),
        # The two below are no fault of anything: the episode comes to an outcome all the same.
        Kind(name="app_kill", part="guest", deadline_s=90.0, signs=OUTCOME),
        Kind(name="disk_fill", part="guest", deadline_s=90.0, signs=OUTCOME),
        Kind(
            name="host_kill", part="desktop host", deadline_s=20.0, rest_s=60.0,
            signs=(_sign("host_lost", name="desktops/"),),
        ),
        Kind(
            name="host_stop", part="desktop host", deadline_s=45.0, hold_s=45.0, rest_s=60.0,
            signs=(_sign("stall", cause="silent", whom="host/desktops/"),),
        ),
        Kind(name="engine_kill", part="engine", deadline_s=30.0, rest_s=60.0, signs=(_sign("engine_died"),)),
        Kind(
            name="engine_stop", part="engine", deadline_s=120.0, hold_s=120.0, rest_s=60.0,
            signs=(_sign("engine_silent"), _sign("engine_died")),
        ),
        Kind(
            name="rank_kill", part="rank", deadline_s=20.0, rest_s=60.0, signs=(_sign("host_lost", name="ranks/"),),
        ),
        Kind(
            name="rank_stop", part="rank", deadline_s=45.0, hold_s=45.0, rest_s=60.0,
            signs=(_sign("stall", cause="silent", whom="host/ranks/"),),
        ),
        Kind(
            name="ledger_lock", part="ledger", deadline_s=20.0, hold_s=6.0, whole=True, rest_s=20.0,
            signs=(_sign("disk_slow"),),
        ),
    )
}  # fmt: skip
LOST_DESKTOPS = _sign("host_lost", name="desktops/")
AGAIN = (_sign("host_started", name="desktops/"), 300.0)
MACHINE_KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        # Silence is named after one heartbeat. The process is given up after a minute of it, and called lost once it
        # must have stopped by itself. The machine is put back when its desktops are up on another.
        Kind(
            name="machine_cut", part="machine", deadline_s=45.0, rest_s=60.0,
            signs=(_sign("stall", cause="silent", whom="host/desktops/"),), follows=((LOST_DESKTOPS, 120.0), AGAIN),
        ),
        Kind(
            name="raylet_kill", part="machine", deadline_s=90.0, rest_s=60.0, signs=(LOST_DESKTOPS,),
            follows=((LOST_DESKTOPS, 120.0), AGAIN),
        ),
        # No faults: processes of desktops, or samplers, go by `computerrl apply`, and come by the next one.
        Kind(name="apply_desktops", part="desktops", deadline_s=180.0, rest_s=30.0, signs=(_sign("changed"),)),
        Kind(name="apply_samplers", part="samplers", deadline_s=180.0, rest_s=30.0, signs=(_sign("changed"),)),
    )
}  # fmt: skip


class Planned(msgspec.Struct, frozen=True):
    """One fault to inject: when (seconds from the beginning of the injections), what, and which victim (0 to 1)."""

    at_s: float
    kind: str
    pick: float


def schedule(seed: int, lasts_s: float, every_s: float, kinds: Mapping[str, Kind] = KINDS) -> list[Planned]:
    """Faults of `kinds` at random times, `every_s` apart on average, at most `lasts_s` from the beginning.

    Every kind comes once, in a random order, before any comes again by its weight. Where the drawn kind's part was hit
    too short a time ago, another is drawn: restart budgets are meant for broken parts, not for a soak.
    """
    random = Random(seed)
    first = random.sample(sorted(kinds), len(kinds))
    hit: dict[str, float] = {}
    plan: list[Planned] = []
    now = 0.0
    while True:
        now += every_s * random.uniform(0.5, 1.5)
        if now > lasts_s:
            return plan
        free = [name for name, kind in kinds.items() if now - hit.get(kind.part, float("-inf")) >= kind.rest_s]
        if not free:
            continue
        wanted = [name for name in first if name in free]
        name = wanted[0] if wanted else random.choices(free, [kinds[name].weight for name in free])[0]
        if name in first:
            first.remove(name)
        hit[kinds[name].part] = now + kinds[name].hold_s
        plan.append(Planned(now, name, random.random()))
