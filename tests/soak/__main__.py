"""Breaks parts of a real run at random: `make soak ARGS="--minutes 30 --seed 0"`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.report.drawing import pyplot
from runtime.errors import ConfigError
from tests.bench.report import percentile
from tests.soak.soak import Soak, SoakOptions
from tests.soak.verdict import Level, SoakResult, windows

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
    result = asyncio.run(Soak(wanted, _progress).go())
    if result is None:
        output.line("interrupted: no verdict; the run has ended", to=sys.stderr)
        return 130
    written = _write(result, out) if out is not None else []
    if as_json:
        output.document({"found": result, "files": [str(file) for file in written]})
    else:
        _print(result, written)
    return 1 if result.reasons else 0


def _progress(text: str) -> None:
    output.line(f"  {text}", to=sys.stderr)


def _write(result: SoakResult, out: Path) -> list[Path]:
    samples, faults, picture = out / "samples.jsonl", out / "faults.jsonl", out / "levels.png"
    for file, rows in ((samples, result.samples), (faults, result.faults)):
        file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    draw(result, picture)
    return [samples, faults, picture]


def draw(result: SoakResult, into: Path) -> None:
    """The levels over time, with a line for every fault. Raises ConfigError where matplotlib is missing."""
    plt = pyplot()
    figure, axes = plt.subplots(len(DRAWN), 1, figsize=(9, 1.3 * len(DRAWN)), dpi=120, sharex=True)
    first, _, last = windows(result.minutes)
    times = [level.at_s / 60 for level in result.samples]
    for axis, name in zip(axes, DRAWN, strict=True):
        axis.plot(times, [_value(level, name) for level in result.samples], lw=1.0, color="#2d5f8b")
        for start, end in (first, last):
            axis.axvspan(start / 60, end / 60, color="#e6f3e6", lw=0)
        for broken in result.faults:
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


def _print(result: SoakResult, written: list[Path]) -> None:
    output.prose(
        f"\n{result.run}: seed {result.seed}, {result.minutes:g} minutes in RL,"
        f" load {result.load_at_start:.2f} at the start\n"
    )
    rows = []
    for kind in sorted({broken.kind for broken in result.faults}):
        mine = [broken for broken in result.faults if broken.kind == kind]
        states = Counter(broken.state for broken in mine)
        signs = Counter(broken.sign for broken in mine if broken.sign and broken.state == "named")
        late = percentile([broken.after_s for broken in mine if broken.state == "named"], 1.0)
        counts = (len(mine), states["named"], states["moot"], states["unnamed"])
        latest = "-" if late is None else f"{late:.1f}"
        named = ", ".join(f"{sign} ({count})" for sign, count in signs.most_common())
        rows.append((kind, *counts, latest, f"{mine[0].deadline_s:g}", named))
    output.table(("FAULT", "N", "NAMED", "MOOT", "UNNAMED", "LATEST S", "DEADLINE", "NAMES IN THE LOG"), rows)
    output.prose(
        f"moot: the desktop's episode was over when the fault came; {result.not_injected} planned ones did not fit\n"
    )
    levels = [
        (
            each.name,
            *(_number(v) for v in (each.before, each.after, each.most, each.allowed)),
            "back" if each.back else "NOT BACK",
        )
        for each in result.returns
    ]
    output.table(("LEVEL", "AT FIRST", "AT THE END", "MOST", "ALLOWED", ""), levels)
    output.line(f"\nlearner   {result.rl_steps} steps of RL")
    output.line(f"episodes  {', '.join(f'{name} {count}' for name, count in result.episodes.items()) or 'none'}")
    output.line(f"warnings  {', '.join(f'{name} {count}' for name, count in result.events.items()) or 'none'}")
    output.line(f"ledger    {result.audit or 'its counts add up'}")
    output.line(f"left      {', '.join(result.left[:5]) or 'nothing'} after the stop (exit status {result.exit})")
    for file in written:
        output.line(f"wrote     {file}")
    for reason in result.reasons:
        output.line(f"BAD       {reason}")
    output.line(f"verdict   {'bad' if result.reasons else 'good'}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 2**20:.0f} MiB" if value > 1e7 else f"{value:.0f}"


SOAK = (
    "Start a real run, break its parts at random times drawn from the seed, and judge: every fault in the log under its"
    " name within its deadline, processes, descriptors, memory and folders back to the level of minute 2, the ledger's"
    " counts right, nothing left after the stop. Exit status 1 when any of that fails. Needs root."
)


def _soak(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="in RL until the stop (30)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of times, kinds and victims (0)")
    apart = "mean seconds between faults (20)"
    parser.add_argument("--every", dest="every_s", type=float, default=20.0, metavar="S", help=apart)
    parser.add_argument("--file", default="soak", metavar="FILE", help="deploy file (default: soak)")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")
    parser.add_argument("--out", metavar="DIR", help="write samples and faults as JSON lines, and a picture")


def main(argv: Sequence[str]) -> int:
    """Break and judge; 1 when the verdict is bad."""
    parser = argparse.ArgumentParser(prog="make soak", description=SOAK)
    _soak(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = vars(parser.parse_args(argv))
    as_json, out = args.pop("json"), args.pop("out")
    try:
        options = SoakOptions(**args | {"runs": Path(args["runs"])})
        return run(options, Path(out) if out else None, as_json=as_json)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
