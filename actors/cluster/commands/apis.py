"""`computerrl apis`: whether the functions of applications do what they are declared to do."""

from __future__ import annotations

import argparse

from actors.cluster.commands import take_provider

SUMMARY = "check applications' functions on the real applications"
DESCRIPTION = "The functions that a model may call in applications, beside mouse and keyboard."
EXAMPLES = (
    "examples:\n"
    "  computerrl apis check\n"
    "  computerrl apis check --app vlc --repeats 50\n"
    "  computerrl apis check --app calc --json\n"
)
CHECK = (
    "Open each application on a real desktop and call every function: rightly, reading what it did back from the\n"
    "saved file or the application's own state, and wrongly, which must be refused with the argument's name. Then\n"
    "every call is repeated and timed. Verdicts: ok, failed, unavailable (the application is not installed here).\n"
    "For Calc the processor time of a call is measured beside that of a fresh interpreter per call, and that of\n"
    "saves by the number of sheets.\n"
    "Exit status 1 when a function failed, and when a target is missed: 150 ms at the 95th percentile for calls that\n"
    "neither start nor export anything, and a fresh interpreter at least 50 times as dear as a call. Needs root."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="call every function", description=CHECK, epilog=EXAMPLES)
    check.add_argument(
        "--app", action="append", default=[], metavar="A", help="only this application (repeatable): calc, vlc, ..."
    )
    check.add_argument("--function", action="append", default=[], metavar="F", help="only this function (repeatable)")
    check.add_argument("--repeats", type=int, default=20, metavar="N", help="timed repetitions of each call (20)")
    check.add_argument("--no-targets", action="store_true", help="measure, but miss no target")
    take_provider(check)
    check.add_argument("--json", action="store_true", help="print one JSON document: a list of functions")
    check.set_defaults(parser=check)


def main(args: argparse.Namespace) -> int:
    """Do it; 1 when something is not as it should be."""
    from actors.cluster.checks.apis import command

    return command.check(args)
