"""Tasks, functions of applications, demonstrations, keys of deploy files, and what this machine lacks."""

from __future__ import annotations

import argparse

from actors.cluster.commands import MODEL, SUITE, Help, flag, later, take, take_provider, verb

TASKS_HELP = Help(
    "list, show, check, fetch and attack tasks",
    "SUITE is a bundled suite (desktop, code), a suite's YAML file, a family's name, a task set, or a file or folder of"
    " tasks in OSWorld's form. A task's ID is FAMILY/SPLIT/NUMBER with split train or held-out, or SET/DOMAIN/ID.",
    "examples:\n"
    "  computerrl tasks list\n"
    "  computerrl tasks show text_editor/train/3\n"
    "  computerrl tasks check calc_cell --route mixed --instances 10 --desktops 2\n"
    "  computerrl tasks check my-tasks/ --static --json\n"
    "  computerrl tasks fetch osworld --from OSWorld/ --from ubuntu_osworld_file_cache/\n"
    "  computerrl tasks attack desktop --family web_bookmark --family vlc_playlist\n",
)
LIST = "List the families of a suite: application, routes of the oracles, kinds of task and wordings."
SHOW = "Print a task: instruction, set-up, verifier and the oracles that can do it."
CHECK = (
    "Play the oracles of a suite on real desktops and count what they solve, faults apart; without --split, on train or"
    " what a family has. Task files are set up and judged untouched; --static says what each lacks.\n"
    "Exit status 1: --static found something, an oracle solved under 98 % of a family by one route, or 2 % faulted."
)
FETCH = (
    "Put a task set and its fixtures where check, eval and run find them: from folders or a mirror's address, else over"
    " HTTP from where the task files say, or from HF_ENDPOINT, locked by their sha256. A broken fetch goes on.\n"
    "Exit status 1: a fixture could not be had."
)
ATTACK = (
    "Try cheats on real desktops: other files changed after the oracle or in its place, claims, forged results and"
    " programs. Each is judged as an episode is.\n"
    "Exit status 1: a cheat passed, or an episode was judged wrong."
)
APIS_HELP = Help(
    "check applications' functions on the real applications, or have a model write new ones",
    "The functions that a model may call in applications, next to mouse and keyboard.",
    "examples:\n  computerrl apis check\n  computerrl apis check --app vlc --repeats 50\n"
    "  computerrl apis build --app text_editor --tasks text_editor --model http://HOST/v1 --model-name NAME\n"
    "  computerrl apis show apis-text_editor\n  computerrl apis accept apis-text_editor\n"
    "  computerrl apis check apis-text_editor\n",
)
APIS_BUILD = (
    "A model reads instructions of tasks, names the functions that an application lacks, and writes each with its"
    " cases. Real desktops judge them, and a function that fails goes back with what came of it. Generated code runs in"
    " desktops alone, and nothing is used before `apis accept`.\n"
    "Exit status 1: no function was accepted."
)
APIS_SERVE = (
    "Boot a desktop and serve the functions of all applications and of accepted folders as MCP tools; one more opens an"
    " application. Needs computerrl[mcp]."
)
APIS_IMPORT = (
    "Write a folder that declares the tools of an MCP server as functions of an application; one whose schema is not of"
    " the closed set is refused by name. `apis accept` pins the folder. Needs computerrl[mcp]."
)
APIS_CHECK = (
    "Call every function on its real application: rightly, reading back what it did, and wrongly, which must be refused"
    " by the argument's name. Then every call is timed. Needs root.\n"
    "Exit status 1: one failed, or took over 150 ms at the 95th percentile and neither starts nor exports anything."
)
DEMOS_HELP = Help(
    "record, show and share demonstrations",
    "Record demonstrations by oracles on real desktops, and share them between runs and seeds: demos.source of a deploy"
    " file takes a run's name or folder, or a .parquet file.",
    "examples:\n"
    "  computerrl demos record calc_cell --actions both --routes mixed --count 20\n"
    "  computerrl demos record --resume --name cold\n"
    "  computerrl demos show cold --task text_editor/train/3\n"
    "  computerrl demos export cold demos.parquet\n",
)
RECORD = (
    "Record COUNT successful demonstrations of training tasks, as many of each family and route, into a run's folder."
    " After a kill, --resume goes on as it was begun.\n"
    "Exit status 1: no attempt is left."
)
DEMOS_SHOW = "Print a recording by family and route, or every step of the demonstrations of one task."
EXPORT = "Write a recording to a Parquet file. With --force a file that is there is replaced once the new one is whole."
KEYS_HELP = Help(
    "list the keys of deploy files",
    "Print the keys that most users need, or those with WORD in name or meaning, each with default, type and what it"
    " does. `list[].key` is in every entry of a list. Editors complete files by --schema.",
    "examples:\n  computerrl keys staleness\n  computerrl keys --schema > deploy.schema.json\n",
)
DOCTOR_HELP = Help(
    "check this machine",
    "Name what this machine lacks for FILE, and the command that mends it. Of what FILE places elsewhere nothing is"
    " asked: run it there.",
    "examples:\n  computerrl doctor deploy/smoke.yaml --json\n",
)


def _tasks_arguments(parser: argparse.ArgumentParser) -> None:
    verbs, examples = parser.add_subparsers(dest="verb", metavar="VERB", required=True), TASKS_HELP.examples
    listing = verb(verbs, "list", Help("families of a suite", LIST, examples), "cluster.views.tasks:list_suite")
    which = "suite, YAML file or family (default: desktop)"
    listing.add_argument("suite", metavar="SUITE", nargs="?", default="desktop", help=which)
    show = verb(verbs, "show", Help("one task", SHOW, examples), "cluster.views.tasks:show")
    show.add_argument("task", metavar="ID", help="FAMILY/SPLIT/NUMBER (FAMILY: its first), or a task's JSON file")
    place = "cluster.checks.tasks.command:check"
    check = verb(verbs, "check", Help("play or look through a suite", CHECK, examples), place)
    place = "cluster.checks.attack.command:attack"
    attack = verb(verbs, "attack", Help("try cheats on a suite", ATTACK, examples), place)
    for one, instances in ((check, 100), (attack, 1)):
        one.add_argument("suite", metavar="SUITE", help=SUITE if one is check else "suite, YAML file, family or set")
        take(one, "family", instances=instances, first=0, desktops=2)
        flag(one, "--split", "", "which instances", choices=("train", "held-out", "both"))
        take_provider(one)
    routes = ("gui", "api", "mixed", "all")
    flag(check, "--route", "", "which oracles (default: all)", choices=routes, default="all")
    flag(check, "--static", "", "look at the form only; needs no desktop", action="store_true")
    counted = "Count what the task files of SET need: what can be solved here, what is lacking, and what is refused."
    place = "cluster.checks.tasks.command:coverage"
    coverage = verb(verbs, "coverage", Help("what task files need", counted, examples), place)
    coverage.add_argument("suite", metavar="SET", help="task set, or JSON file or folder of tasks")
    place = "cluster.checks.tasks.fetch:fetch"
    fetch = verb(verbs, "fetch", Help("a task set and its fixtures", FETCH, examples), place)
    fetch.add_argument("name", metavar="SET", help="osworld, officeworld, a task set, or a file or folder of tasks")
    where = "where task files and fixtures are (repeatable)"
    flag(fetch, "--from", "FOLDER|URL", where, dest="from_", action="append", default=[])
    flag(fetch, "--revision", "SHA", "of the dataset (default: the one in the URLs)")
    for one in (listing, show, check, attack, coverage):
        take(one, "json")


def _apis_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    place = "cluster.checks.apis.command:check"
    check = verb(verbs, "check", Help("call every function", APIS_CHECK, APIS_HELP.examples), place)
    only = "only this application (repeatable): calc, vlc, ..."
    flag(check, "--app", "A", only, action="append", default=[])
    flag(check, "--function", "F", "only this function (repeatable)", action="append", default=[])
    flag(check, "--repeats", "N", "timed repetitions of each call (20)", type=int, default=20)
    flag(check, "--no-targets", "", "measure, but bound no time", action="store_true")
    check.add_argument("dir", metavar="DIR", nargs="?", help="a folder that `apis build` made: its cases alone")
    flag(check, "--profile", "FILE", "the profile that DIR was built with, where it is not bundled")
    place = "cluster.build.command"
    build = verb(verbs, "build", Help("a model writes functions", APIS_BUILD, APIS_HELP.examples), f"{place}:build")
    profile = "a bundled profile's application, or a profile's file"
    flag(build, "--app", "A", profile, required=True)
    exemplars = "exemplars: a text file, an instruction a line; a suite, family or task set; a folder of task files"
    flag(build, "--tasks", "FILE", exemplars, required=True, nargs="+")
    build.add_argument("--model", "--llm", metavar="URL", required=True, help="an OpenAI-compatible server")
    flag(build, "--most", "N", "functions at most (12)", type=int, default=12)
    flag(build, "--rounds", "N", "repairs of a function at most (3)", type=int, default=3)
    flag(build, "--budget-tokens", "N", "stop asking after so many tokens", type=int)
    flag(build, "--out", "DIR", "where the build is kept (apis-APP)")
    flag(build, "--resume", "", "go on with the build in --out", action="store_true")
    take(build, "model-name", "api-key-env")
    served = "cluster.build.mcp"
    serve = verb(verbs, "serve", Help("functions as MCP tools", APIS_SERVE, APIS_HELP.examples), f"{served}:serve")
    serve.add_argument("dir", metavar="DIR", nargs="*", help="accepted folders whose functions are served, too")
    protocol = "by the Model Context Protocol, over standard input and output"
    flag(serve, "--mcp", "", protocol, required=True, action="store_true")
    flag(
        serve, "--file", "FILE", "a file to copy into the desktop's Documents (repeatable)", action="append", default=[]
    )
    brought = Help("tools of an MCP server as functions", APIS_IMPORT, APIS_HELP.examples)
    bring = verb(verbs, "import", brought, f"{served}:bring")
    flag(bring, "--server", "COMMAND|URL", "the server", required=True)
    flag(bring, "--app", "A", "the application whose functions they become", required=True)
    flag(bring, "--owner", "CLASS", "the class that prompts show them in, like NotesTools", required=True)
    flag(bring, "--out", "DIR", "where the folder is made", required=True)
    for one in (check, build):
        take_provider(one)
        take(one, "json")
    take_provider(serve)
    for name, what in (("show", "what a built folder declares, with its code"), ("accept", "pin a built folder")):
        one = verb(verbs, name, Help(what, f"{what[0].upper()}{what[1:]}.", APIS_HELP.examples), f"{place}:{name}")
        one.add_argument("dir", metavar="DIR", help="the folder")


def _demos_arguments(parser: argparse.ArgumentParser) -> None:
    verbs, examples = parser.add_subparsers(dest="verb", metavar="VERB", required=True), DEMOS_HELP.examples
    place = "cluster.demos.record:record"
    record = verb(verbs, "record", Help("play oracles and keep what succeeds", RECORD, examples), place)
    record.add_argument("suite", metavar="SUITE", nargs="?", help="suite, YAML file or family (see computerrl tasks)")
    flag(record, "--tasks", "ID", "these tasks in place of a suite", nargs="+", action="extend", default=[])
    flag(record, "--deploy", "FILE", "all that a deploy file says of demonstrations, in place of a suite")
    changed = "change a key of desktops.provider, with --deploy any key (repeatable)"
    flag(record, "--set", "PATH=VALUE", changed, action="append", default=[], dest="overrides")
    flag(record, "--count", "N", "successes wanted (default: 64)", type=int)
    routes = "gui, api, mixed (each step by either); default: all that --actions allows"
    taken = {"nargs": "+", "action": "extend", "default": [], "choices": ("gui", "api", "mixed")}
    flag(record, "--routes", "ROUTE", routes, **taken)
    take(record, "desktops", "seed", "first", "actions", "noise", "format", "max-turns", "name")
    flag(record, "--model", "MODEL", f"{MODEL}, whose tokenizer is used (default: base)")
    flag(record, "--resume", "", "go on with the newest recording, or --name", action="store_true")
    place = "cluster.demos.manage"
    show = verb(verbs, "show", Help("what a recording holds", DEMOS_SHOW, examples), f"{place}:show")
    show.add_argument("recording", metavar="RUN|FILE", help="a run's name or folder, `last`, or a .parquet file")
    flag(show, "--task", "ID", "print every step of this task's demonstrations")
    export = verb(verbs, "export", Help("to a file", EXPORT, examples), f"{place}:export")
    export.add_argument("recording", metavar="RUN", help="a run's name or folder, `last`, or another file")
    export.add_argument("file", metavar="FILE", help="FILE.parquet")
    flag(export, "--force", "", "replace a file that is there", action="store_true")
    take(record, "runs")
    for one in (show, export):
        take(one, "runs", "json")


def _keys_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("word", metavar="WORD", nargs="?", help="a part of a key's name or meaning")
    flag(parser, "--all", "", "print every key", action="store_true")
    flag(parser, "--schema", "", "print the JSON schema of deploy files", action="store_true")
    take(parser, "json")


def _keys(args: argparse.Namespace) -> int:
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
    shown = keys.matching(args.word, known) if args.word else [one for one in known if args.all or not one.advanced]
    if not shown:
        near = nearest(args.word, [part for one in known for part in (one.key, *one.key.replace("_", ".").split("."))])
        what = f"did you mean {near}?" if near else "--all lists them all"
        raise ConfigError(f"{args.word}: no key has it in its name or meaning; {what}")
    if args.json:
        output.document(shown)
        return 0
    for one in shown:
        output.line(keys.described(one, min(108, output.columns())))
    if not args.word and not args.all:
        output.line(f"\n{len(known) - len(shown)} more with --all")
    return 0


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    of_file = "deploy file to check for (default: local)"
    parser.add_argument("file", nargs="?", default="local", metavar="FILE", help=of_file)
    take(parser, "set", "json")


COMMANDS = {
    "tasks": (TASKS_HELP, _tasks_arguments, None),
    "apis": (APIS_HELP, _apis_arguments, None),
    "demos": (DEMOS_HELP, _demos_arguments, None),
    "keys": (KEYS_HELP, _keys_arguments, _keys),
    "doctor": (DOCTOR_HELP, _doctor_arguments, later("cluster.runs.doctor:command")),
}
