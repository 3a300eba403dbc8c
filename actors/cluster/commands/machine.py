"""Before a run: keys of deploy files, and what this machine lacks."""

from __future__ import annotations

import argparse

from actors.cluster.commands import Help, take_json, take_sets

KEYS_HELP = Help(
    "list the keys of deploy files",
    "Print the keys of a deploy file that most users need, each with its default, its type and what it does.\n"
    "--all prints every key. With WORD, print every key that has it in its name or meaning. `list[].key` is in\n"
    "every entry of a list. --schema prints the JSON schema of deploy files: editors complete and check files by it.",
    "examples:\n"
    "  computerrl keys\n"
    "  computerrl keys learner.\n"
    "  computerrl keys staleness\n"
    "  computerrl keys --all\n"
    "  computerrl keys --schema > deploy.schema.json\n",
)
DOCTOR_HELP = Help(
    "check this machine, and a cluster's",
    "Check that this machine can run desktops and training, and a cluster's machines what FILE places there. Name"
    " what is missing and the command that mends it.",
    "examples:\n  computerrl doctor\n  computerrl doctor deploy/smoke.yaml --json\n",
)


def _keys_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("word", metavar="WORD", nargs="?", help="a part of a key's name or meaning")
    parser.add_argument("--all", action="store_true", help="print every key")
    take_json(parser)
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of deploy files")


def _keys(args: argparse.Namespace) -> int:
    """Print them; 0."""
    from actors.cluster import output
    from actors.cluster.config import keys
    from actors.cluster.config.suggest import nearest
    from runtime.errors import ConfigError

    if args.schema:
        if args.word or args.all:
            args.parser.error("--schema is of all keys: leave WORD and --all out")
        output.document(keys.schema())
        return 0
    known = keys.of_deploy()
    found = keys.matching(args.word, known) if args.word else known if args.all else keys.usual(known)
    if not found:
        near = nearest(args.word, [part for one in known for part in (one.key, *one.key.replace("_", ".").split("."))])
        what = f"did you mean {near}?" if near else "--all lists them all"
        raise ConfigError(f"{args.word}: no key has it in its name or meaning; {what}")
    if args.json:
        output.document(found)
        return 0
    for one in found:
        output.line(keys.described(one, min(108, output.columns())))
    if not args.word and not args.all:
        output.line(f"\n{len(known) - len(found)} more with --all")
    return 0


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="local", metavar="FILE", help="deploy file to check for (default: local)"
    )
    take_sets(parser)
    take_json(parser)


def _doctor(args: argparse.Namespace) -> int:
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


COMMANDS = {
    "keys": (KEYS_HELP, _keys_arguments, _keys),
    "doctor": (DOCTOR_HELP, _doctor_arguments, _doctor),
}
