"""Tasks and functions of applications: lists and checks."""

from __future__ import annotations

import argparse

from actors.cluster.commands import Help, later, take_json, take_provider

TASKS_HELP = Help(
    "list, show, check, fetch and attack tasks",
    "List families of tasks, show one task, check a suite by form or by oracles on desktops, or try cheats on it.\n"
    "SUITE is a bundled suite (desktop, code), a suite's YAML file, a family's name, a task set, or a file or folder\n"
    "of tasks in OSWorld's form. A task's ID is FAMILY/SPLIT/NUMBER with split train or held-out, or SET/DOMAIN/ID.",
    "examples:\n"
    "  computerrl tasks list\n"
    "  computerrl tasks show text_editor/train/3\n"
    "  computerrl tasks check desktop --static\n"
    "  computerrl tasks check desktop --instances 10 --desktops 2\n"
    "  computerrl tasks check calc_cell --route mixed --instances 10\n"
    "  computerrl tasks check text_editor --split held-out --out plays.jsonl\n"
    "  computerrl tasks check my-tasks/ --static --json\n"
    "  computerrl tasks fetch osworld --from OSWorld/ --from ubuntu_osworld_file_cache/\n"
    "  computerrl tasks attack desktop --instances 2\n"
    "  computerrl tasks attack desktop --family web_bookmark --family vlc_playlist\n",
)
LIST = (
    "List the families of a suite: application, routes of the oracles, kinds of task and wordings; of a file or\n"
    "folder of tasks, each task."
)
SHOW = "Print a task: instruction, set-up, verifier and the oracles that can do it."
CHECK = (
    "Play the oracles of a suite on real desktops and count what they solve, faults apart. --static looks at the form\n"
    "of every task without a desktop. It has to load, and to be set up and judged. It may not be solved at its start\n"
    "and has to be solved in its wanted end. The splits may share no wording, name or value.\n"
    "Task files are set up and judged untouched, as far as they can be played here: none may fault or be solved. For\n"
    "them --static says what each lacks.\n"
    "Exit status 1 when --static finds anything, when an oracle solves less than 98 % of a family by one route, or\n"
    "when faults exceed 2 % of the episodes. Without --split, trained families are played on train and the others on\n"
    "held-out."
)
FETCH = (
    "Put a task set and its fixtures (files that its tasks start with or are compared with) where check, eval and\n"
    "run find them. --from names a folder with task files, a folder with fixtures (the dataset, a clone of it, or the\n"
    "cache of the published harness), or a mirror's address. Without a folder, fixtures come over HTTP\n"
    "from where the task files say, or from HF_ENDPOINT. Each is locked by its sha256: one that differs later is\n"
    "refused. A fetch that was broken off goes on with what is missing. Exit status 1 when a fixture could not be had."
)
ATTACK = (
    "Try cheats on the tasks of a suite or a task set on real desktops. After a task's oracle: other files removed,\n"
    "overwritten, moved, linked, locked or added, what was to go kept elsewhere. In its place: claims, forged results\n"
    "of programs, forged programs, deletions by moving. A task set has no oracle. Each cheat is judged as an episode\n"
    "is, then HOME is put back; in the end the episode itself is judged. Exit status 1 when a cheat passes or an\n"
    "episode is judged wrong."
)
APIS_HELP = Help(
    "check applications' functions on the real applications",
    "The functions that a model may call in applications, beside mouse and keyboard.",
    "examples:\n"
    "  computerrl apis check\n"
    "  computerrl apis check --app vlc --repeats 50\n"
    "  computerrl apis check --app calc --json\n",
)
APIS_CHECK = (
    "Open each application on a real desktop and call every function: rightly, reading what it did back from the\n"
    "saved file or the application's own state, and wrongly, which must be refused with the argument's name. Then\n"
    "every call is repeated and timed. Verdicts: ok, failed, unavailable (the application is not installed here).\n"
    "Exit status 1 when a function failed, or took more than 150 ms at the 95th percentile and neither starts nor\n"
    "exports anything. Needs root."
)


def _tasks_arguments(parser: argparse.ArgumentParser) -> None:
    examples = TASKS_HELP.examples
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="families of a suite", description=LIST, epilog=examples)
    listing.add_argument(
        "suite", metavar="SUITE", nargs="?", default="desktop",
        help="suite, YAML file, family, or JSON file or folder of tasks (default: desktop)",
    )  # fmt: skip
    show = verbs.add_parser("show", help="one task", description=SHOW, epilog=examples)
    show.add_argument("task", metavar="ID", help="FAMILY/SPLIT/NUMBER (FAMILY: its first), or a task's JSON file")
    check = verbs.add_parser("check", help="play or look through a suite", description=CHECK, epilog=examples)
    check.add_argument("suite", metavar="SUITE", help="suite, YAML file, family, or JSON file or folder of tasks")
    check.add_argument("--static", action="store_true", help="look at the form only; needs no desktop")
    check.add_argument("--family", action="append", default=[], metavar="F", help="only this family (repeatable)")
    check.add_argument(
        "--route", choices=("gui", "api", "mixed", "all"), default="all", help="which oracles (default: all)"
    )
    check.add_argument(
        "--actions", choices=("both", "gui", "api"), default="both",
        help="actions that the oracles have: api lacks mouse and keyboard, gui the functions (default: both)",
    )  # fmt: skip
    check.add_argument("--split", choices=("train", "held-out", "both"), help="which instances")
    check.add_argument("--instances", type=int, default=100, metavar="N", help="per family and split (default: 100)")
    check.add_argument("--first", type=int, default=0, metavar="N", help="number of the first instance (default: 0)")
    check.add_argument("--desktops", type=int, default=2, metavar="N", help="desktops at the same time (default: 2)")
    check.add_argument(
        "--noise", type=float, nargs="?", const=0.15, default=0.0, metavar="SHARE",
        help="let oracles take harmless wrong steps this often (without SHARE: 0.15)",
    )  # fmt: skip
    take_provider(check)
    check.add_argument("--out", metavar="FILE.jsonl", help="write every play as a line of JSON")
    attack = verbs.add_parser("attack", help="try cheats on a suite", description=ATTACK, epilog=examples)
    attack.add_argument("suite", metavar="SUITE", help="suite, YAML file, family or task set")
    attack.add_argument("--family", action="append", default=[], metavar="F", help="only this family (repeatable)")
    attack.add_argument("--split", choices=("train", "held-out", "both"), help="which instances")
    attack.add_argument("--instances", type=int, default=1, metavar="N", help="per family and split (default: 1)")
    attack.add_argument("--first", type=int, default=0, metavar="N", help="number of the first instance (default: 0)")
    attack.add_argument("--desktops", type=int, default=2, metavar="N", help="desktops at the same time (default: 2)")
    take_provider(attack)
    fetch = verbs.add_parser("fetch", help="a task set and its fixtures", description=FETCH, epilog=examples)
    fetch.add_argument("name", metavar="SET", help="osworld, officeworld, a task set, or a file or folder of tasks")
    fetch.add_argument(
        "--from", dest="from_", action="append", default=[], metavar="FOLDER|URL",
        help="where task files and fixtures are (repeatable)",
    )  # fmt: skip
    fetch.add_argument("--revision", metavar="SHA", help="of the dataset (default: the one in the URLs)")
    for verb in (listing, show, check, attack):
        take_json(verb)
    for verb, place in (
        (listing, "cluster.views.tasks:list_suite"),
        (show, "cluster.views.tasks:show"),
        (check, "cluster.checks.tasks.command:check"),
        (attack, "cluster.checks.attack.command:attack"),
        (fetch, "cluster.checks.tasks.fetch:fetch"),
    ):
        verb.set_defaults(parser=verb, main=later(place))


def _apis_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="call every function", description=APIS_CHECK, epilog=APIS_HELP.examples)
    check.add_argument(
        "--app", action="append", default=[], metavar="A", help="only this application (repeatable): calc, vlc, ..."
    )
    check.add_argument("--function", action="append", default=[], metavar="F", help="only this function (repeatable)")
    check.add_argument("--repeats", type=int, default=20, metavar="N", help="timed repetitions of each call (20)")
    check.add_argument("--no-targets", action="store_true", help="measure, but bound no time")
    take_provider(check)
    check.add_argument("--json", action="store_true", help="print one JSON document: a list of functions")
    check.set_defaults(parser=check, main=later("cluster.checks.apis.command:check"))


COMMANDS = {
    "tasks": (TASKS_HELP, _tasks_arguments, None),
    "apis": (APIS_HELP, _apis_arguments, None),
}
