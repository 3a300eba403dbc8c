"""`computerrl doctor`: what this machine lacks, and what mends it."""

from __future__ import annotations

import argparse

SUMMARY = "check this machine, and a cluster's"
DESCRIPTION = (
    "Check that this machine can run desktops and training, and a cluster's machines what FILE places there. Name"
    " what is missing and the command that mends it."
)
EXAMPLES = "examples:\n  computerrl doctor\n  computerrl doctor deploy/smoke.yaml --json\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "file", nargs="?", default="local", metavar="FILE", help="deploy file to check for (default: local)"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE", help="change one key (repeatable)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """Check; 0 when nothing that a run needs is missing, else 1."""
    from actors.cluster import output
    from actors.cluster.config import deploy_files
    from actors.cluster.runs import doctor, machines
    from runtime.system import run

    deploy, _ = deploy_files.load(args.file, args.overrides)
    checks = doctor.examine(deploy)
    if all(check.ok for check in checks if check.name in ("ray", "code")):
        checks += run(machines.examine(deploy))
    checks += run(machines.offices(deploy))
    healthy = not any(check.fatal for check in checks)
    if args.json:
        output.document({"ok": healthy, "checks": checks})
        return 0 if healthy else 1
    output.table(
        ("CHECK", "", "FOUND"),
        [(check.name, "ok" if check.ok else "MISSING" if check.needed else "warning", check.found) for check in checks],
    )
    for check in checks:
        if not check.ok and check.mend:
            output.line(f"\n{check.name}: {check.mend}")
    output.line("\nready" if healthy else "\nnot ready: the commands above mend it")
    return 0 if healthy else 1
