"""The live page beside a run, in a process of its own: `python -P -m actors.cluster.web.beside`.

Invariant: nothing of the run starts before its page is served. The page ends with the run, however that ends. What ends
the page means nothing to the run.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.cluster import output
from actors.cluster.web import serve
from runtime.errors import ConfigError
from runtime.http import LOOPBACK
from runtime.program import check_origin, die_with

_SERVED = "live page: "
START_S = 60.0  # until its address is served
END_S = 5.0


@contextmanager
def live_page(runs: Path, run: str, port: int | None) -> Iterator[None]:
    """Serve the page of `run` below `runs` at this machine's `port` while the block lasts; nothing where it is None.

    Raises ConfigError where the port can't be had, and where no address is served within `START_S` seconds.
    """
    if port is None:
        yield
        return
    serve.refuse_port(port, "--web")
    words = (str(os.getpid()), str(runs.absolute()), run, str(port))
    page = subprocess.Popen(
        [sys.executable, "-P", "-m", "actors.cluster.web.beside", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": check_origin().root},
        start_new_session=True,  # the first Ctrl-C is the run's
    )  # fmt: skip
    try:
        assert page.stdout is not None
        if not select.select([page.stdout], [], [], START_S)[0]:
            raise ConfigError(f"--web {port}: the page did not begin within {START_S:g} s")
        said = page.stdout.readline().strip()
        if not said.startswith(_SERVED):
            raise ConfigError(said or f"--web {port}: the page ended as it began")
        output.news(said)
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
    try:
        served = serve.serve(
            Path(runs), run, host=LOOPBACK, port=int(port), flag=f"--web {port}",
            told=lambda at: output.line(f"{_SERVED}{at}"),
        )  # fmt: skip
        asyncio.run(served)
    except ConfigError as error:
        output.line(str(error))


if __name__ == "__main__":
    main()
