"""`computerrl runs`: what has been run here."""

from __future__ import annotations

import argparse

from runtime.program import program

SUMMARY = "list runs"
DESCRIPTION = "List the runs below a folder, newest last, and how each ended."
EXAMPLES = "examples:\n  computerrl runs\n  computerrl runs --json | python3 -m json.tool\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """List them; 0 also when there are none. A run whose record is broken is told of as such."""
    import time

    import msgspec

    from actors.cluster import output
    from actors.cluster.runs import run_folder

    runs = run_folder.of_runs(args.runs)
    rows = [(path, record, run_folder.state(path, record)) for path, record in run_folder.all_runs(runs)]
    broken = run_folder.broken(runs)
    if args.json:
        plain = [{"path": str(path), "state": state, **msgspec.to_builtins(record)} for path, record, state in rows]
        output.document(
            plain + [{"path": str(p), "state": "broken", "name": p.name, "reason": why} for p, why in broken]
        )
        return 0
    if not rows and not broken:
        output.line(f"no runs in {args.runs}: start one with  {program()} run smoke{run_folder.runs_flag(runs)}")
        return 0
    output.table(
        ("RUN", "STATE", "STARTED", "AGE", "FILE", "REASON"),
        [
            (
                path.name,
                state,
                record.started,
                output.duration(time.time() - record.started_s),
                record.file,
                record.reason or "",
            )
            for path, record, state in rows
        ]
        + [(path.name, "broken", "-", "-", "-", why) for path, why in broken],
    )
    return 0
