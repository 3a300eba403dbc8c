"""What a run took of the machine: processor by part, and desktops that stood ready. Pure.

Invariant: shares are of all cores of the entry point's machine over the observed time. A guest is counted when its
desktop goes, so desktops still up at the end are missing. The rest of the machine is never charged for a part of the
run twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from actors.cluster.report.seats import phases
from actors.desktop.providers.sandbox.owners import owner_of
from runtime.logs.reader import BEGINS

Line = dict[str, Any]
GUESTS, OTHERS = "desktops' guests", "other programs"
UNTOLD = "desktops' guests (not to be told apart here) and other programs"


class MachineTime(msgspec.Struct, frozen=True, kw_only=True):
    """Processor seconds by part and desktops over time."""

    cores: int
    span_s: float  # over which processor time was looked at
    cpu_s: dict[str, float]  # by part, with OTHERS or UNTOLD for what is not known to be of this run
    elsewhere_s: dict[str, float] = {}  # by part, on other machines
    desktops: int  # used up
    desktops_up: float  # at once, on average over the span
    spares: float  # of them not leased
    by_phase_s: dict[str, float] = {}  # processor seconds of this run alone, by the phase they fell into

    @property
    def own_s(self) -> float:
        """Processor seconds of this run alone."""
        here = sum(seconds for part, seconds in self.cpu_s.items() if part not in (OTHERS, UNTOLD))
        return here + sum(self.elsewhere_s.values())

    def share(self, part: str) -> float:
        """Of all cores over the span."""
        return self.cpu_s.get(part, 0.0) / (self.cores * self.span_s) if self.span_s else 0.0


def by_phase(machine: MachineTime) -> str:
    """`3,790 CPU-seconds of this run: bc 1,100, rl 2,690`."""
    parts = ", ".join(f"{phase} {seconds:,.0f}" for phase, seconds in machine.by_phase_s.items())
    return f"{machine.own_s:,.0f} CPU-seconds of this run{f': {parts}' if parts else ''}"


def machine_time(lines: Sequence[Line], leased_s: float) -> MachineTime | None:
    """Sum up; `leased_s` are the seconds that seats held desktops. None for a run that logged no processor time."""
    looks = [line for line in lines if line["event"] == "cpu_used"]
    if not looks:
        return None
    span = sum(line["span_s"] for line in looks)
    cpu, away = _by_part(line["seconds"] for line in looks), _by_part(line.get("elsewhere", {}) for line in looks)
    gone = {line["desktop"]: line for line in lines if line["event"] == "desktop_gone"}
    guests_s, far_s = _guests_s(lines, gone)
    untold = bool(gone) and not guests_s and not far_s  # no control groups that would say what they used
    if not untold:
        cpu[GUESTS] = guests_s
        away |= {GUESTS: far_s} if far_s else {}
    cpu[UNTOLD if untold else OTHERS] = max(0.0, sum(line["machine_s"] for line in looks) - sum(cpu.values()))
    up = _up_s(lines, gone, max(line["t"] for line in looks))
    return MachineTime(
        cores=looks[-1]["cores"],
        span_s=span,
        cpu_s=_most_first(cpu),
        elsewhere_s=_most_first(away),
        desktops=len(gone),
        desktops_up=up / span if span else 0.0,
        spares=max(0.0, up - leased_s) / span if span else 0.0,
        by_phase_s=_by_phase(lines, looks, gone.values()),
    )


def _guests_s(lines: Sequence[Line], gone: Mapping[str, Line]) -> tuple[float, float]:
    """Processor seconds of guests of the entry point's machine, and of those whose process was on another one.

    A number of a process tells nothing by itself: another machine counts its own, and a run has several lives.
    """
    here = {line["namespace"] for line in lines if line["event"] == "cpu_used" and "namespace" in line}
    elsewhere = {
        line["pid"]
        for line in lines
        if line["event"] == "host_started" and line.get("elsewhere") and line["name"].startswith("desktops/")
    }
    here_s = far_s = 0.0
    for name, line in gone.items():
        owner = owner_of(name)
        if owner is not None and owner.pid in elsewhere and owner.namespace not in here:
            far_s += line["cpu_s"]
        else:
            here_s += line["cpu_s"]
    return here_s, far_s


def _by_part(spans: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for span in spans:
        for part, seconds in span.items():
            found[part] = found.get(part, 0.0) + seconds
    return found


def _most_first(seconds: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda pair: -pair[1]))


def _by_phase(lines: Sequence[Line], looks: Sequence[Line], gone: Iterable[Line]) -> dict[str, float]:
    """A look's seconds are shared out by the time of each phase in it; a desktop's fall where it was used up."""
    when = phases(lines)
    found: dict[str, float] = {}
    for line in looks:
        used, span_s = sum(line["seconds"].values()) + sum(line.get("elsewhere", {}).values()), line["span_s"]
        for phase, seconds in when.split((line["t"] - span_s, line["t"])).items():
            found[phase] = found.get(phase, 0.0) + used * seconds / span_s
    for line in gone:
        phase = when.at(line["t"])
        found[phase] = found.get(phase, 0.0) + line["cpu_s"]
    return found


def _up_s(lines: Sequence[Line], gone: Mapping[str, Line], last: float) -> float:
    """Seconds that desktops were up. Where no end is logged, as after a kill, the run's process ends it."""
    up_s, left = 0.0, list[float]()  # starts of desktops that are up and whose end is not logged
    for line in lines:
        if line["event"] == BEGINS:
            up_s += sum(line["t"] - began for began in left)
            left.clear()
        elif line["event"] == "desktop_booted":
            if (end := gone.get(line["desktop"])) is not None:
                up_s += max(0.0, end["t"] - line["t"])
            else:
                left.append(line["t"])
    return up_s + sum(max(0.0, last - began) for began in left)
