"""Starts the live page, also next to a run in a process of its own: `python -P -m actors.cluster.web.serve`.

Invariant: an address is announced only once it is served. Nothing of the run starts before its page is served. The page
ends with the run, however that ends, and what ends the page means nothing to the run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.cluster import output
from actors.cluster.runs import run_folder
from runtime.errors import ConfigError
from runtime.http import LOOPBACK, Guard, served
from runtime.program import check_origin, die_with

_SERVED = "live page: "
START_S = 60.0  # until its address is served
END_S = 5.0
BROWSERS_S = 2.0  # for browsers that still listen


def command(args: argparse.Namespace) -> int:
    """`web`: serve until Ctrl-C."""
    runs = run_folder.of_runs(args.runs)
    run = run_folder.find(runs, args.run).name if args.run is not None else ""
    flag = f"--host {args.host} --port {args.port}"

    def announce(address: str) -> None:
        output.line(f"live page: {address}   (Ctrl-C ends it; runs go on)")

    asyncio.run(serve(runs, run, host=args.host, port=args.port, flag=flag, announce=announce))
    return 0


async def serve(runs: Path, run: str, *, host: str, port: int, flag: str, announce: Callable[[str], None]) -> None:
    """Serve the runs below `runs` until cancelled; `announce` gets the address of `run`, or of all runs.

    Raises ConfigError, which begins with `flag`, where the address can't be had.
    """
    from actors.cluster.web.server import LiveServer  # only a process that serves loads it

    guard = Guard(host, pages=True)
    async with served(LiveServer(runs).app, guard, port, flag=flag, end_s=BROWSERS_S) as bound:
        announce(guard.address(bound, f"/runs/{run}" if run else "/"))
        await asyncio.Event().wait()


@contextmanager
def live_page(runs: Path, run: str, port: int | None) -> Iterator[None]:
    """Serve the page of `run` below `runs` at this machine's `port` while the block lasts; nothing where it is None.

    Raises ConfigError where the port can't be had, and where no address is served within `START_S` seconds.
    """
    if port is None:
        yield
        return
    words = (str(os.getpid()), str(runs.absolute()), run, str(port))
    page = subprocess.Popen(
        [sys.executable, "-P", "-m", "actors.cluster.web.serve", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": check_origin().root},
        start_new_session=True,  # the first Ctrl-C is the run's
    )  # fmt: skip
    try:
        assert page.stdout is not None
        if not select.select([page.stdout], [], [], START_S)[0]:
            raise ConfigError(f"--web {port}: the page did not begin within {START_S:g} s")
        first = page.stdout.readline().strip()
        if not first.startswith(_SERVED):
            raise ConfigError(first or f"--web {port}: the page ended as it began")
        output.news(first)
        yield
    finally:
        page.terminate()
        try:
            page.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            page.kill()
            page.communicate()


def main() -> None:
    """Serve until the parent ends it."""
    parent, runs, run, port = sys.argv[1:]
    die_with(int(parent))

    def announce(address: str) -> None:
        output.line(f"{_SERVED}{address}")

    try:
        asyncio.run(serve(Path(runs), run, host=LOOPBACK, port=int(port), flag=f"--web {port}", announce=announce))
    except ConfigError as error:
        output.line(str(error))


if __name__ == "__main__":
    main()
