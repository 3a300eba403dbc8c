"""Looking at runs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from actors.cluster.commands import WEB_PORT, Help, of_run, take_json, take_run, take_runs
from runtime.program import program

RUNS_HELP = Help(
    "list runs",
    "List the runs below a folder, newest last, and how each ended.",
    "examples:\n  computerrl runs\n  computerrl runs --json | python3 -m json.tool\n",
)
STATUS_HELP = Help(
    "say what each actor of a run is doing now",
    "Ask a live run what each of its actors is doing; of an ended run, say how it ended.",
    "examples:\n  computerrl status last\n  computerrl status smoke-20260101-120000 --json\n",
)
LOGS_HELP = Help(
    "read a run's logs",
    "Print the structured logs of all actors of a run in time order. RUN is a run's name, a path, or `last`.",
    "examples:\n"
    "  computerrl logs last -f\n"
    "  computerrl logs last --actor desktop/3 --level warning\n"
    "  computerrl logs last --trace g12.3             one episode through every actor\n"
    "  computerrl logs last --event learner_step --json\n",
)
LEVELS = ("debug", "info", "warning", "error")
WEB_HELP = Help(
    "show runs in a browser, live",
    "Serve a page per run: seats with their newest screenshots, success, entropy, queues, faults, episodes, logs. It"
    " only reads what runs write, so it can be started and stopped at any time, and works on ended runs.",
    "examples:\n"
    "  computerrl web\n"
    "  computerrl web last --port 0                 any free port\n"
    "  computerrl web --host 0.0.0.0                from other machines, by the printed address\n",
)
REPORT_HELP = Help(
    "say what runs achieved, with a page, curves and whole episodes",
    "Print runs' evaluation rounds, gains, phases, group endings and overlap. Print how seats\n"
    "spent their time and which part used the processor. A seat is busy from a granted reservation to its\n"
    "verification; idle time is split by cause.\n"
    "Write one self-contained page, report.html, with curves, causes of phase changes and whole episodes, and the\n"
    "curve of success as a PNG. --text writes nothing; --json writes only where --out is given.\n"
    "Runs of one deploy file that differ in the seed become a mean and a band. The name of an experiment stands for\n"
    "its runs.\n"
    "RUN.figures.gz, beside the page, holds a run's figures without its episodes and may stand for the run. So seeds\n"
    "that were played on several machines can be shown together.\n"
    "Exit status: 0, 1 when a run that was to be evaluated played no round, 2 bad input.",
    "examples:\n"
    "  computerrl report last\n"
    "  computerrl report last --text                          no page, no curves\n"
    "  computerrl report local-0 local-1 local-2 --out seeds/    three seeds as mean and band\n"
    "  computerrl report report/local-0 local-1                one of them from its figures alone\n",
)
AUDIT_HELP = Help(
    "prove that a run's ledger adds up and its payloads can be read",
    "Go through a run's ledger and payloads, live or ended, and change nothing. Every group has to end once. Counts\n"
    "have to equal rows. Phases and versions have to come in order. No group may be trained staler than the bound.\n"
    "Every payload that is still needed has to be what its digest says.\n"
    "Exit status 1 when something is wrong; each wrong thing is named.",
    "examples:\n  computerrl audit last\n  computerrl audit smoke-20260101-120000 --json\n",
)


def _runs_arguments(parser: argparse.ArgumentParser) -> None:
    take_runs(parser)
    take_json(parser)


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
        output.document(
            plain + [{"path": str(p), "state": "broken", "name": p.name, "reason": why} for p, why in broken]
        )
        return 0
    if not rows and not broken:
        output.line(f"no runs in {args.runs}: start one with  {program()} run smoke{run_folder.runs_flag(runs)}")
        return 0
    now, table = time.time(), [("RUN", "STATE", "STARTED", "AGE", "FILE", "REASON")]
    for path, record, state in rows:
        age = output.duration(now - record.started_s)
        table.append((path.name, state, record.started, age, record.file, record.reason or ""))
    table += [(path.name, "broken", "-", "-", "-", why) for path, why in broken]
    output.table(table[0], table[1:])
    return 0


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser, default="last")
    take_json(parser)
    take_runs(parser)


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on as lines are written, until the run ends")
    parser.add_argument("--actor", metavar="NAME", help="only this actor, e.g. desktop/3; `desktop` is all of a kind")
    parser.add_argument("--event", metavar="NAME", help="only this event")
    parser.add_argument("--trace", metavar="ID", help="only this episode")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="this level and above")
    parser.add_argument("--json", action="store_true", help="print the lines as they are stored, one JSON each")
    take_runs(parser)


def _web_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run to point at (default: the list of all)")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to serve at (default: this machine)"
    )
    parser.add_argument(
        "--port", type=int, default=WEB_PORT, metavar="N", help=f"port; 0 for a free one (default: {WEB_PORT})"
    )
    take_runs(parser)


def _web(args: argparse.Namespace) -> int:
    """Serve until interrupted; 2 where the address can't be had."""
    import asyncio

    from actors.cluster import output
    from actors.cluster.runs import run_folder
    from actors.cluster.web import serve

    def announce(address: str) -> None:
        output.line(f"live page: {address}   (Ctrl-C ends it; runs go on)")

    serve.refuse_port(args.port, "--port")
    runs = run_folder.of_runs(args.runs)
    run = run_folder.find(runs, args.run).name if args.run is not None else ""
    flag = f"--host {args.host} --port {args.port}"
    asyncio.run(serve.serve(runs, run, host=args.host, port=args.port, flag=flag, announce=announce))
    return 0


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    named = "a run's or an experiment's name, a path, a file of figures, or `last`"
    parser.add_argument("run", metavar="RUN", nargs="*", default=["last"], help=named)
    files = "for report.html, curve.png and RUN.figures.gz (default: report/RUN)"
    parser.add_argument("--out", metavar="DIR", help=files)
    parser.add_argument("--text", action="store_true", help="print only")
    take_json(parser)
    take_runs(parser)


def _report(args: argparse.Namespace) -> int:
    """Print it; 1 when a run that was to be evaluated played no round."""
    from actors.cluster import paths as places
    from actors.cluster.report import show
    from runtime.errors import ConfigError

    if args.text and args.out is not None:
        raise ConfigError("--text prints only: leave --out out, or --text")
    paths = [path for name in args.run for path in show.paths_of(name, Path(args.runs))]
    out = None if args.out is None else Path(args.out)
    paths = list(dict.fromkeys(paths))
    if out is None and not args.text and not args.json:
        out = Path("report", show.called(paths))
        try:
            places.refuse_unwritable(out, "the folder")
        except ConfigError as error:
            raise ConfigError(f"{error}; --out names another for the page, --text prints only") from None
    return show.show(paths, out, as_json=args.json)


COMMANDS = {
    "runs": (RUNS_HELP, _runs_arguments, _runs),
    "status": (STATUS_HELP, _status_arguments, of_run("cluster.views.runs:show_status")),
    "logs": (
        LOGS_HELP,
        _logs_arguments,
        of_run("cluster.views.runs:show_logs", "actor", "event", "trace", "level", "follow"),
    ),
    "web": (WEB_HELP, _web_arguments, _web),
    "report": (REPORT_HELP, _report_arguments, _report),
    "audit": (AUDIT_HELP, _status_arguments, of_run("cluster.views.runs:show_audit")),
}
