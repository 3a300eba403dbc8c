"""What the live page costs while many browsers watch a run of many seats.

Invariant: the page's server is the real one in a process of its own, and the figures are that process's. Seats and
browsers are simulated here: rows and lines written as a run writes them, and clients that read the page's events.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import aiohttp
import orjson
import psutil

from actors.cluster import output
from actors.cluster.bench.report import Measured, Target, show
from actors.cluster.runs import run_folder
from actors.replay.database.ledger_file import LEDGER
from actors.replay.ledger.synthetic import PlayingSeats
from runtime.errors import ConfigError

MOST_CORES = 0.3
MOST_MIB = 512.0
EVENTS_S = 2  # of each seat
WARM_S = 8.0


class WebResult(Measured, frozen=True, kw_only=True):
    """All that `bench web` prints."""

    seats: int
    viewers: int
    seconds: float
    server_cores: float  # processor seconds of the page's server per second
    mib: float  # its resident memory at the end
    grown_mib: float  # over the measured seconds
    events_s: float  # events that a viewer got each second


class _Run:
    """A run's folder, written to by simulated seats: each event ends an episode and begins another."""

    def __init__(self, folder: Path, seats: int) -> None:
        now = time.time()
        record = run_folder.RunRecord(
            name="bench", file="bench", seed=0, build="", versions={}, started=run_folder.iso(now), started_s=now
        )
        self.folder = run_folder.claim(folder, record, resume=False)
        self._seats = PlayingSeats(folder / LEDGER, [f"desktop/{number}" for number in range(seats)])
        (folder / "logs").mkdir(exist_ok=True)
        self._log = (folder / "logs" / "desktops-0.jsonl").open("ab")

    def write(self, events: int) -> None:
        """Two events of some seats: `events` in all."""
        lines = []
        for seat in self._seats.play(events):
            line = {
                "ts": f"{time.time():.6f}", "t": time.monotonic(), "level": "info", "event": "seat_time", "actor": seat,
                "t0": 0.0, "t1": time.monotonic(), "waited_for": "work", "seconds": {"acting": 0.2, "observing": 0.1},
            }  # fmt: skip
            lines.append(orjson.dumps(line))
        self._log.write(b"\n".join(lines) + b"\n")
        self._log.flush()

    def close(self) -> None:
        self._log.close()
        self._seats.close()
        self.folder.give_back()


async def _view(session: aiohttp.ClientSession, url: str, got: list[int]) -> None:
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as reply:
        async for raw in reply.content:
            got[0] += raw.startswith(b"event:")


async def _measured(
    run: _Run, url: str, server: psutil.Process, *, seats: int, viewers: int, seconds: float
) -> WebResult:
    got = [0]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as session:
        watching = [asyncio.create_task(_view(session, url, got)) for _ in range(viewers)]
        try:
            begun, used, resident, events = time.monotonic(), 0.0, 0.0, 0
            warm = True
            while (spent := time.monotonic() - begun) < WARM_S + seconds:
                if warm and spent >= WARM_S:
                    warm, used, resident, events = False, _used(server), server.memory_info().rss, got[0]
                run.write(seats * EVENTS_S // 4)
                await asyncio.sleep(max(0.0, 0.25 - (time.monotonic() - begun - spent)))
            took = time.monotonic() - begun - WARM_S
            cores, now = (_used(server) - used) / took, server.memory_info().rss
        finally:
            for one in watching:
                one.cancel()
            ended = await asyncio.gather(*watching, return_exceptions=True)
    if lost := [one for one in ended if isinstance(one, aiohttp.ClientError)]:
        raise ConfigError(f"{len(lost)} of {viewers} viewers were dropped: {lost[0]}")
    mib, grown = now / 2**20, (now - resident) / 2**20
    targets = [
        Target(name="processor of the server", measured=cores, bound=MOST_CORES, unit="cores"),
        Target(name="memory of the server", measured=mib, bound=MOST_MIB, unit="MiB"),
    ]
    return WebResult(
        seats=seats, viewers=viewers, seconds=took, server_cores=cores, mib=mib, grown_mib=grown,
        events_s=(got[0] - events) / took / viewers, targets=targets, load_at_start=os.getloadavg()[0],
    )  # fmt: skip


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _tell(found: WebResult) -> None:
    output.prose(
        f"{found.seats} seats with {EVENTS_S} events a second each, {found.viewers} viewers, {found.seconds:.0f} s: the"
        f" server took {100 * found.server_cores:.1f} % of a core and {found.mib:.0f} MiB ({found.grown_mib:+.1f} MiB"
        f" meanwhile); a viewer got {found.events_s:.1f} events a second"
    )


def run(*, seats: int, viewers: int, seconds: float, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed. Raises ConfigError."""
    for flag, value in (("--seats", seats), ("--viewers", viewers), ("--seconds", seconds)):
        if value < 1:
            raise ConfigError(f"{flag} {value:g}: it counts from 1")
    with tempfile.TemporaryDirectory(prefix="crl-web-") as folder:
        with closing(_Run(Path(folder) / "bench", seats)) as played:
            command = [sys.executable, "-m", "actors.cluster.cli", "web", "--port", "0", "--runs", folder]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                try:
                    assert server.stdout is not None
                    found = re.search(r"http://\S+", server.stdout.readline())
                    if found is None:
                        raise ConfigError("the live page's server did not start")
                    if not as_json:
                        output.news(f"measuring for {WARM_S + seconds:.0f} s")
                    url = f"{found[0]}runs/bench/live"
                    result = asyncio.run(
                        _measured(
                            played, url, psutil.Process(server.pid), seats=seats, viewers=viewers, seconds=seconds
                        )
                    )
                finally:
                    server.terminate()
    return show(result, _tell, as_json=as_json)
