"""Demonstrations, recorded once and shared."""

from __future__ import annotations

import argparse

from actors.cluster.commands import Help, later, take_json, take_runs, take_sets

DEMOS_HELP = Help(
    "record, show and share demonstrations",
    "Record demonstrations by oracles on real desktops, once, and share them between runs and seeds.\n"
    "A deploy file takes a recording as demos.source: a run's name or folder, or a .parquet file.",
    "examples:\n"
    "  computerrl demos record desktop --count 400 --desktops 4 --name cold\n"
    "  computerrl demos record calc_cell --actions both --routes mixed --count 20\n"
    "  computerrl demos record --deploy local --name cold\n"
    "  computerrl demos record --resume --name cold\n"
    "  computerrl demos show cold --task text_editor/train/3\n"
    "  computerrl demos export cold demos.parquet\n"
    "  computerrl run local --set demos.source=cold --set run.seed=2\n",
)
RECORD = (
    "Record COUNT successful demonstrations, as many of each family and route, into a run's folder. Only training\n"
    "tasks are demonstrated. With --deploy everything is taken from a deploy file: also demos.demonstrators, and how\n"
    "often each task is tried (demos.attempts_per_task); --set changes a key of it. After a kill, --resume goes on\n"
    "where it stood, as it was begun; Ctrl-C ends it cleanly.\n"
    "Exit status: 0 all recorded, 1 the attempts (two per demonstration, or\n"
    "demos.attempts_per_demo of the deploy file) were used up, 2 bad input, 130 interrupted."
)
SHOW = "Print a recording by family and route, or every step of the demonstrations of one task."
EXPORT = "Write a recording to a Parquet file. With --force a file that is there is replaced once the new one is whole."


def _demos_arguments(parser: argparse.ArgumentParser) -> None:
    examples = DEMOS_HELP.examples
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    record = verbs.add_parser("record", help="play oracles and keep what succeeds", description=RECORD, epilog=examples)
    record.add_argument("suite", metavar="SUITE", nargs="?", help="suite, YAML file or family (see computerrl tasks)")
    record.add_argument(
        "--tasks", nargs="+", action="extend", default=[], metavar="ID", help="these tasks in place of a suite"
    )
    record.add_argument(
        "--deploy", metavar="FILE", help="all that a deploy file says of demonstrations, in place of a suite"
    )
    take_sets(record, "change a key of desktops.provider, with --deploy any key (repeatable)")
    record.add_argument("--count", type=int, metavar="N", help="successes wanted (default: 64)")
    record.add_argument("--desktops", type=int, metavar="N", help="desktops at the same time (default: 2)")
    record.add_argument("--seed", type=int, metavar="N", help="chooses tasks' order and strays (default: 0)")
    record.add_argument("--first", type=int, metavar="N", help="number of each family's first instance")
    record.add_argument(
        "--routes", nargs="+", action="extend", default=[], choices=("gui", "api", "mixed"), metavar="ROUTE",
        help="gui, api, mixed (each step by either); default: all that --actions allows",
    )  # fmt: skip
    record.add_argument(
        "--actions", choices=("both", "gui", "api"),
        help="actions that agent and oracles have: api lacks mouse and keyboard, gui the functions (default: both)",
    )  # fmt: skip
    record.add_argument(
        "--noise", type=float, nargs="?", const=0.15, metavar="SHARE",
        help="let oracles take harmless wrong steps this often (without SHARE: 0.15)",
    )  # fmt: skip
    record.add_argument("--format", choices=("compact", "published"), help="of prompts and answers (default: compact)")
    record.add_argument("--model", metavar="FOLDER", help="model whose tokenizer is used (default: bundled)")
    record.add_argument("--max-turns", type=int, metavar="N", help="answers per episode (default: 12)")
    record.add_argument("--name", metavar="NAME", help="name of the run (default: demos and the time)")
    record.add_argument("--resume", action="store_true", help="go on with the newest recording, or --name")
    show = verbs.add_parser("show", help="what a recording holds", description=SHOW, epilog=examples)
    show.add_argument("recording", metavar="RUN|FILE", help="a run's name or folder, `last`, or a .parquet file")
    show.add_argument("--task", metavar="ID", help="print every step of this task's demonstrations")
    export = verbs.add_parser("export", help="to a file", description=EXPORT, epilog=examples)
    export.add_argument("recording", metavar="RUN", help="a run's name or folder, `last`, or another file")
    export.add_argument("file", metavar="FILE", help="FILE.parquet")
    export.add_argument("--force", action="store_true", help="replace a file that is there")
    for verb, place in ((record, "record:record"), (show, "manage:show"), (export, "manage:export")):
        take_runs(verb)
        verb.set_defaults(parser=verb, main=later(f"cluster.demos.{place}"))
    for verb in (show, export):
        take_json(verb)


COMMANDS = {
    "demos": (DEMOS_HELP, _demos_arguments, None),
}
