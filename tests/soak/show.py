"""What a soak prints and writes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.report.drawing import pyplot
from tests.bench.report import percentile
from tests.soak import elsewhere
from tests.soak.levels import Level
from tests.soak.soak import Soak, SoakOptions
from tests.soak.verdict import SoakResult, windows

DRAWN = ("processes", "guest_processes", "descriptors", "rss_bytes", "desktops", "folders")


def run(wanted: SoakOptions, out: Path | None, *, as_json: bool) -> int:
    """Soak, print and write; 1 when the verdict is bad, 130 when a signal ended it.

    Raises ConfigError where it can't begin, or what it finds could not be written.
    """
    places.refuse_unwritable(wanted.runs, "--runs")
    if out is not None:
        places.refuse_unwritable(out, "--out")
        pyplot()  # what a picture lacks is said now, not after the soak
        out.mkdir(parents=True, exist_ok=True)
    found = elsewhere.whole(wanted, _said) if wanted.machines else asyncio.run(Soak(wanted, _said).go())
    if found is None:
        output.line("interrupted: no verdict; the run has ended", to=sys.stderr)
        return 130
    written = _write(found, out) if out is not None else []
    if as_json:
        output.document({"found": found, "files": [str(file) for file in written]})
    else:
        _print(found, written)
    return 1 if found.reasons else 0


def _said(text: str) -> None:
    output.line(f"  {text}", to=sys.stderr)


def _write(found: SoakResult, out: Path) -> list[Path]:
    samples, faults, picture = out / "samples.jsonl", out / "faults.jsonl", out / "levels.png"
    for file, rows in ((samples, found.samples), (faults, found.faults)):
        file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    draw(found, picture)
    return [samples, faults, picture]


def draw(found: SoakResult, into: Path) -> None:
    """The levels over time, with a line for every fault. Raises ConfigError where matplotlib is missing."""
    plt = pyplot()
    figure, axes = plt.subplots(len(DRAWN), 1, figsize=(9, 1.3 * len(DRAWN)), dpi=120, sharex=True)
    first, _, last = windows(found.minutes)
    times = [level.at_s / 60 for level in found.samples]
    for axis, name in zip(axes, DRAWN, strict=True):
        axis.plot(times, [_value(level, name) for level in found.samples], lw=1.0, color="#2d5f8b")
        for start, end in (first, last):
            axis.axvspan(start / 60, end / 60, color="#e6f3e6", lw=0)
        for broken in found.faults:
            axis.axvline(broken.at_s / 60, color="#c46a5a" if broken.state == "unnamed" else "#dddddd", lw=0.6)
        axis.set_ylabel(name.removesuffix("_bytes").replace("_", "\n") + (" MiB" if name == "rss_bytes" else ""))
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes in RL; grey: a fault, green: the levels compared")
    figure.tight_layout()
    figure.savefig(into, metadata={"Software": None})
    plt.close(figure)


def _value(level: Level, name: str) -> float:
    value = float(getattr(level, name))
    return value / 2**20 if name == "rss_bytes" else value


def _print(found: SoakResult, written: list[Path]) -> None:
    output.prose(
        f"\n{found.run}: seed {found.seed}, {found.minutes:g} minutes in RL, load {found.load_at_start:.2f} at start\n"
    )
    rows = []
    for kind in sorted({broken.kind for broken in found.faults}):
        mine = [broken for broken in found.faults if broken.kind == kind]
        states = Counter(broken.state for broken in mine)
        signs = Counter(broken.sign for broken in mine if broken.sign and broken.state == "named")
        late = percentile([broken.after_s for broken in mine if broken.state == "named"], 1.0)
        counts = (len(mine), states["named"], states["moot"], states["unnamed"])
        latest = "-" if late is None else f"{late:.1f}"
        named = ", ".join(f"{sign} ({count})" for sign, count in signs.most_common())
        rows.append((kind, *counts, latest, f"{mine[0].deadline_s:g}", named))
    output.table(("FAULT", "N", "NAMED", "MOOT", "UNNAMED", "LATEST S", "DEADLINE", "NAMES IN THE LOG"), rows)
    output.prose(
        f"moot: the desktop's episode was over when the fault came; {found.not_injected} planned ones did not fit\n"
    )
    levels = [
        (
            one.name,
            *(_number(v) for v in (one.before, one.after, one.most, one.allowed)),
            "back" if one.back else "NOT BACK",
        )
        for one in found.returns
    ]
    output.table(("LEVEL", "AT FIRST", "AT THE END", "MOST", "ALLOWED", ""), levels)
    output.line(f"\nlearner   {found.rl_steps} steps of RL")
    output.line(f"episodes  {', '.join(f'{name} {count}' for name, count in found.episodes.items()) or 'none'}")
    output.line(f"warnings  {', '.join(f'{name} {count}' for name, count in found.events.items()) or 'none'}")
    output.line(f"ledger    {found.audit or 'its counts add up'}")
    output.line(f"left      {', '.join(found.left[:5]) or 'nothing'} after the stop (exit status {found.exit})")
    for file in written:
        output.line(f"wrote     {file}")
    for reason in found.reasons:
        output.line(f"BAD       {reason}")
    output.line(f"verdict   {'bad' if found.reasons else 'good'}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 2**20:.0f} MiB" if value > 1e7 else f"{value:.0f}"
