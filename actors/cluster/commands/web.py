"""`computerrl web`: runs in a browser, live."""

from __future__ import annotations

import argparse

SUMMARY = "show runs in a browser, live"
DESCRIPTION = (
    "Serve a page per run: seats with their newest screenshots, success, entropy, queues, faults, episodes, logs. It"
    " only reads what runs write, so it can be started and stopped at any time, and works on ended runs."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl web\n"
    "  computerrl web last --port 0                 any free port\n"
    "  computerrl web --host 0.0.0.0                from other machines, by the printed address\n"
)
PORT = 8600


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run to point at (default: the list of all)")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to serve at (default: this machine)"
    )
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"port; 0 for a free one (default: {PORT})")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Serve until interrupted; 2 where the address can't be had."""
    import asyncio

    from actors.cluster.runs import run_folder
    from actors.cluster.web import serve

    serve.refuse_port(args.port, "--port")
    runs = run_folder.of_runs(args.runs)
    run = run_folder.find(runs, args.run).name if args.run is not None else ""
    flag = f"--host {args.host} --port {args.port}"
    asyncio.run(serve.serve(runs, run, host=args.host, port=args.port, flag=flag, announce=_announce))
    return 0


def _announce(address: str) -> None:
    from actors.cluster import output

    output.line(f"live page: {address}   (Ctrl-C ends it; runs go on)")
