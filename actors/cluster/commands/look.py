"""Looking at runs, and at what was played in them."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from actors.cluster.commands import WEB_PORT, Help, flag, of_run, take, take_provider, take_run
from runtime.program import program

RUNS_HELP = Help(
    "list runs", "List the runs below a folder, newest last, and how each ended.", "examples:\n  computerrl runs\n"
)
STATUS_HELP = Help(
    "say what each actor of a run is doing now",
    "Ask a live run what each of its actors is doing; of an ended run, say how it ended.",
    "examples:\n  computerrl status last\n",
)
LOGS_HELP = Help(
    "read a run's logs",
    "Print the structured logs of all actors of a run in time order.",
    "examples:\n"
    "  computerrl logs last -f --actor desktop/3 --level warning\n"
    "  computerrl logs last --trace g12.3             one episode through every actor\n",
)
LEVELS = ("debug", "info", "warning", "error")
WEB_HELP = Help(
    "show runs in a browser, live",
    "Serve a page per run: seats with their newest screenshots, curves, queues, faults, episodes, logs. It only reads"
    " what runs write, live or ended.",
    "examples:\n  computerrl web --host 0.0.0.0                from other machines, by the printed address\n",
)
REPORT_HELP = Help(
    "say what runs achieved, with a page, curves and whole episodes",
    "Print rounds, gains, phases, group endings and how time was spent. Write report.html, one self-contained page, and"
    " the curve of success as a PNG. --json writes only where --out is given.\n"
    "Runs that differ in the seed become a mean and a band; an experiment's name means its runs. RUN.figures.gz, beside"
    " the page, may be named in place of its run.\n"
    "Exit status 1: a run that was to be evaluated played no round.",
    "examples:\n  computerrl report last\n  computerrl report local-0 local-1 report/local-2.figures.gz --out seeds/\n",
)
AUDIT_HELP = Help(
    "prove that a run's ledger adds up and its payloads can be read",
    "Go through a run's ledger and payloads, live or ended, and change nothing: each group ends once, counts equal"
    " rows, phases and versions come in order, nothing was trained staler than the bound, payloads are whole.\n"
    "Exit status 1: something is wrong; each wrong thing is named.",
    "examples:\n  computerrl audit last --json\n",
)
EPISODES_HELP = Help(
    "list a run's episodes, or show one step by step",
    "List episodes, newest first, or show one: screens as text, answers, actions, results and the verdict.",
    "examples:\n"
    "  computerrl episodes last --failure --family file_manager\n"
    "  computerrl episodes show last g12.3 --tokens           each token with its log-probability\n"
    "  computerrl episodes show last eval.final.4 --html FILE.html   a page with the screenshots\n",
)
MOST = 40
RERUN_HELP = Help(
    "play a recorded episode again on a fresh desktop",
    "Give an episode's recorded answers again and compare each observation, action, result and the verdict.\n"
    "Exit status 1: something did not come as recorded, or a fault broke it.",
    "examples:\n  computerrl rerun last g12.3\n",
)
REVERIFY_HELP = Help(
    "judge kept end states again, after a verifier was mended",
    "Judge the end states that a run keeps by the verifiers of today; boots and changes nothing.\n"
    "Exit status 1: some verdicts are others.",
    "examples:\n  computerrl reverify last --family calc --json\n",
)


def _runs_arguments(parser: argparse.ArgumentParser) -> None:
    take(parser, "runs", "json")


def _runs(args: argparse.Namespace) -> int:
    """List them; 0 also when there are none. A run whose record is broken is listed as such."""
    import msgspec

    from actors.cluster import output
    from actors.cluster.runs import run_folder

    runs = run_folder.of_runs(args.runs)
    rows = [(path, record, run_folder.state(path, record)) for path, record in run_folder.all_runs(runs)]
    broken = run_folder.broken(runs)
    if args.json:
        plain = [{"path": str(path), "state": state, **msgspec.to_builtins(record)} for path, record, state in rows]
        plain += [{"path": str(path), "state": "broken", "name": path.name, "reason": why} for path, why in broken]
        output.document(plain)
    elif not rows and not broken:
        output.line(f"no runs in {args.runs}: start one with  {program()} run smoke{run_folder.runs_flag(runs)}")
    else:
        table = [
            (path.name, state, of.started, output.duration(time.time() - of.started_s), of.file, of.reason or "")
            for path, of, state in rows
        ]
        table += [(path.name, "broken", "-", "-", "-", why) for path, why in broken]
        output.table(("RUN", "STATE", "STARTED", "AGE", "FILE", "REASON"), table)
    return 0


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser, default="last")
    take(parser, "json", "runs")


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser)
    following = "go on as lines are written, until the run ends"
    parser.add_argument("-f", "--follow", action="store_true", help=following)
    flag(parser, "--actor", "NAME", "only this actor, e.g. desktop/3; `desktop` is all of a kind")
    flag(parser, "--event", "NAME", "only this event")
    flag(parser, "--trace", "ID", "only this episode")
    flag(parser, "--level", "", "this level and above", choices=LEVELS, default="debug")
    flag(parser, "--json", "", "print the lines as they are stored, one JSON each", action="store_true")
    take(parser, "runs")


def _web_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run to point at (default: the list of all)")
    flag(parser, "--host", "ADDRESS", "address to serve at (default: this machine)", default="127.0.0.1")
    take(parser, "runs", port=WEB_PORT)


def _web(args: argparse.Namespace) -> int:
    import asyncio

    from actors.cluster import output
    from actors.cluster.runs import run_folder
    from actors.cluster.web import serve

    def announce(address: str) -> None:
        output.line(f"live page: {address}   (Ctrl-C ends it; runs go on)")

    serve.refuse_port(args.port, "--port")
    runs = run_folder.of_runs(args.runs)
    run = run_folder.find(runs, args.run).name if args.run is not None else ""
    address = f"--host {args.host} --port {args.port}"
    asyncio.run(serve.serve(runs, run, host=args.host, port=args.port, flag=address, announce=announce))
    return 0


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    named = "a run's or an experiment's name, a path, a file of figures, or `last`"
    parser.add_argument("run", metavar="RUN", nargs="*", default=["last"], help=named)
    flag(parser, "--out", "DIR", "for report.html, curve.png and RUN.figures.gz (default: report/RUN)")
    flag(parser, "--text", "", "print only", action="store_true")
    take(parser, "json", "runs")


def _report(args: argparse.Namespace) -> int:
    from actors.cluster import paths as places
    from actors.cluster.report import show
    from runtime.errors import ConfigError

    if args.text and args.out is not None:
        raise ConfigError("--text prints only: leave --out out, or --text")
    paths = list(dict.fromkeys(path for name in args.run for path in show.paths_of(name, Path(args.runs))))
    out = None if args.out is None else Path(args.out)
    if out is None and not args.text and not args.json:
        out = Path("report", show.called(paths))
        try:
            places.refuse_unwritable(out, "the folder")
        except ConfigError as error:
            raise ConfigError(f"{error}; --out names another for the page, --text prints only") from None
    return show.show(paths, out, as_json=args.json)


def _episodes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "computerrl episodes [-h] [options] RUN\n       computerrl episodes show [-h] [options] RUN EPISODE"
    named = "a run's name, a path, or `last`; `show RUN EPISODE` shows the episode of that trace or token"
    parser.add_argument("words", nargs="+", metavar="RUN", help=named)
    every = parser.add_argument_group("of a list")
    flag(every, "--family", "NAME", "only tasks of this family")
    flag(every, "--phase", "NAME", "only this phase or evaluation round: bc, rl, after_bc, ...")
    kinds = every.add_mutually_exclusive_group()
    for kind, what in (("success", "that succeeded"), ("failure", "that failed"), ("fault", "broken by a fault")):
        flag(kinds, f"--{kind}", "", f"only episodes {what}", dest="ending", action="store_const", const=kind)
    flag(every, "--most", "N", f"at most so many (default: {MOST})", type=int)
    one = parser.add_argument_group("of one episode")
    flag(one, "--tokens", "", "print the prompt, and each token with its log-probability", action="store_true")
    form = one.add_mutually_exclusive_group()
    flag(form, "--html", "FILE", "write a page with the screenshots instead")
    take(form, "json")
    take(parser, "runs")


def _episodes(args: argparse.Namespace) -> int:
    from actors.cluster import paths
    from actors.cluster.runs import run_folder
    from actors.cluster.views import episodes
    from runtime.errors import ConfigError

    run, episode = _meant(args)
    folder = run_folder.find(Path(args.runs), run)
    if episode is None:
        most = MOST if args.most is None else args.most
        if most < 1:
            raise ConfigError(f"--most {most}: it counts from 1")
        wanted = episodes.Wanted(family=args.family, phase=args.phase, ending=args.ending)
        return episodes.show_all(folder, wanted, most=most, as_json=args.json)
    page = Path(args.html) if args.html is not None else None
    if page is not None:
        paths.refuse_no_file(page, "--html")
    return episodes.show_one(folder, episode, tokens=args.tokens, page=page, as_json=args.json)


def _meant(args: argparse.Namespace) -> tuple[str, str | None]:
    """The run, and the episode where one is to be shown."""
    words = args.words
    if len(words) > 1 and (words[0] != "show" or len(words) != 3):
        forms = f"a list is  {program()} episodes RUN,  one of them  {program()} episodes show RUN EPISODE"
        args.parser.error(f"{' '.join(words)}: {forms}")
    *_, run, episode = words if len(words) > 1 else (words[0], None)
    strange = ("family", "phase", "ending", "most") if episode else ("tokens", "html")
    if given := [name for name in strange if getattr(args, name) not in (None, False)]:
        name = args.ending if given[0] == "ending" else given[0]
        form = "a list" if episode else f"one episode: {program()} episodes show RUN EPISODE"
        args.parser.error(f"--{name} is of {form}")
    return run, episode


def _rerun_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser)
    named = "its trace, as `episodes` and `logs` name it, or its token"
    parser.add_argument("episode", metavar="EPISODE", help=named)
    take_provider(parser)
    take(parser, "runs", "json")


def _reverify_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser, default="last")
    flag(parser, "--family", "NAME", "only tasks of this family")
    take(parser, "runs", "json")


_LOGS = of_run("cluster.views.runs:show_logs", "actor", "event", "trace", "level", "follow")
_RERUN = of_run("cluster.checks.played:rerun", "episode", "overrides")
COMMANDS = {
    "runs": (RUNS_HELP, _runs_arguments, _runs),
    "status": (STATUS_HELP, _status_arguments, of_run("cluster.views.runs:show_status")),
    "logs": (LOGS_HELP, _logs_arguments, _LOGS),
    "web": (WEB_HELP, _web_arguments, _web),
    "report": (REPORT_HELP, _report_arguments, _report),
    "audit": (AUDIT_HELP, _status_arguments, of_run("cluster.views.runs:show_audit")),
    "episodes": (EPISODES_HELP, _episodes_arguments, _episodes),
    "rerun": (RERUN_HELP, _rerun_arguments, _RERUN),
    "reverify": (REVERIFY_HELP, _reverify_arguments, of_run("cluster.checks.played:reverify", "family")),
}
