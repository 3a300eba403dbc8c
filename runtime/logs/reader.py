"""Reads log files: the lines of several hosts as one stream, and several lives of a run on one clock.

Within one snapshot, lines come in the order of their times. A torn or foreign line is skipped: a killed writer leaves
such ends.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from runtime import disk
from runtime.errors import ConfigError
from runtime.logs.events import LEVELS
from runtime.logs.writer import MAX_FILE_BYTES, log_folder

LOOK_AGAIN_S = 0.5  # file systems that other machines write to tell of no changes
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 4 << 20


class Filter:
    """Which lines to show. `actor` is a name or a kind: `desktop` matches `desktop/3`; `level` is the lowest shown."""

    def __init__(
        self, actor: str | None = None, event: str | None = None, trace: str | None = None, level: str | None = None
    ) -> None:
        if level is not None and level not in LEVELS:
            raise ConfigError(f"log level {level!r} is none of {list(LEVELS)}")
        self._actor = actor
        self._event = event
        self._trace = trace
        self._lowest = LEVELS[level] if level is not None else 0
        words = (actor and f'"{actor}', event and f'"{event}"', trace and f'"{trace}"')
        self._words = [word.encode() for word in words if word and _is_plain(word[1:])]

    def passes(self, line: dict[str, Any]) -> bool:
        return (
            (self._actor is None or line["actor"] == self._actor or line["actor"].startswith(f"{self._actor}/"))
            and (self._event is None or line["event"] == self._event)
            and (self._trace is None or line.get("trace") == self._trace)
            and LEVELS.get(line["level"], 0) >= self._lowest
        )

    def may_pass(self, raw: bytes) -> bool:
        """Whether the line `raw` is worth parsing: most are not, where few actors or events are asked for."""
        return all(word in raw for word in self._words)


def read_logs(
    run_dir: Path,
    *,
    actor: str | None = None,
    event: str | None = None,
    trace: str | None = None,
    level: str | None = None,
    follow: bool = False,
    going: Callable[[], bool] = lambda: True,
) -> Iterator[dict[str, Any]]:
    """The lines there are now, in the order of their times; with `follow` then new ones as they are written.

    Following blocks the calling thread between lines. It ends once `going` says that no process writes any more and all
    lines are read. New hosts' files are found on the way. Raises ConfigError when the run has no logs.
    """
    shown = Filter(actor, event, trace, level)
    if not log_folder(run_dir).is_dir():
        raise ConfigError(f"{run_dir} holds no logs")
    pause = threading.Event()
    with closing(LogWatch(run_dir)) as logs:
        while True:
            last = not follow or not going()  # asked before reading, so that what was written last is read
            yield from filter(shown.passes, logs.lines(shown.may_pass))
            if last:
                return
            pause.wait(LOOK_AGAIN_S)


def log_files(run_dir: Path) -> list[Path]:
    """The log files there are, rolled ones first; none that is larger than any writer lets one become."""
    most = 2 * MAX_FILE_BYTES
    files = (path for path in log_folder(run_dir).glob("*.jsonl") if path.is_file() and path.stat().st_size < most)
    return sorted(files, key=lambda path: (not _is_rolled(path), path))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "\\" not in text  # as it is in any JSON


def _is_rolled(path: Path) -> bool:
    return path.name.endswith(".1.jsonl")


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        line = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if isinstance(line, dict) and all(isinstance(line.get(key), str) for key in ("ts", "level", "event", "actor")):
        return line
    return None


class _Tail:
    """Reads a growing file; goes on with the new one when the file is rolled."""

    def __init__(self, path: Path, newest_bytes: int | None = None) -> None:
        self._path = path
        self._file = disk.opened(path)
        self._rest = b""
        if newest_bytes is not None and (size := os.fstat(self._file.fileno()).st_size) > newest_bytes:
            self._file.seek(size - newest_bytes)
            self._file.readline()  # the rest of a line

    def lines(self, wanted: Callable[[bytes], bool]) -> Iterator[dict[str, Any]]:
        """The complete lines that came since the last call and are `wanted`."""
        yield from self._drain(wanted)
        if _is_rolled(self._path):
            return
        try:
            rolled = self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return  # between two names; the next look finds it
        if rolled:
            yield from self._drain(wanted)
            self.close()
            self._file = disk.opened(self._path)
            self._rest = b""
            yield from self._drain(wanted)

    def close(self) -> None:
        self._file.close()

    def _drain(self, wanted: Callable[[bytes], bool]) -> Iterator[dict[str, Any]]:
        while chunk := self._file.read(CHUNK_BYTES):
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[-MAX_LINE_BYTES:]
            for raw in whole:
                if wanted(raw) and (line := _parse(raw)) is not None:
                    yield line


class LogWatch:
    """The lines of a run as they come: each `new` gives those that were written since the one before.

    The first gives what is there; with `newest_bytes` the last so many bytes of each file, and no rolled one.
    """

    def __init__(self, run_dir: Path, newest_bytes: int | None = None) -> None:
        self._run_dir = run_dir
        self._newest_bytes = newest_bytes
        self._tails: dict[Path, _Tail] = {}

    def lines(self, wanted: Callable[[bytes], bool]) -> Iterator[dict[str, Any]]:
        """New lines of all actors that are `wanted`, in the order of their times. None while the run has no logs."""
        if log_folder(self._run_dir).is_dir():
            first = not self._tails  # a file that rolls later is read to its end by the tail that it had
            rolled_too = first and self._newest_bytes is None
            for path in log_files(self._run_dir):
                if path not in self._tails and (rolled_too or not _is_rolled(path)):
                    self._tails[path] = _Tail(path, self._newest_bytes if first else None)
        streams = [tail.lines(wanted) for tail in self._tails.values()]
        yield from heapq.merge(*streams, key=lambda line: str(line["ts"]))

    def new(self, events: Collection[str] | None = None) -> list[dict[str, Any]]:
        """New lines of all actors, or those of some `events`, as `lines` gives them."""
        words = [event.encode() for event in events or ()]
        lines = self.lines(lambda raw: events is None or any(word in raw for word in words))
        return [line for line in lines if events is None or line["event"] in events]

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()


Line = dict[str, Any]
BEGINS, LEDGER = "ledger_opened", "replay"  # a life's first line, but for the ledger's own on what it gives back
_MOMENTS = ("t", "t0", "t1")  # seconds of the run's clock


def in_a_row(lines: Iterable[Line]) -> Iterator[Line]:
    """`lines`, in the order of their wall times, with each life's moments beginning where the one before left off."""
    shift, last = 0.0, None
    for line in lines:
        if line["event"] == BEGINS and last is not None:
            shift = last - line["t"]
        moved = line | {name: line[name] + shift for name in _MOMENTS if name in line} if shift else line
        if line["actor"] != LEDGER or last is None:
            last = moved["t"] if last is None else max(last, moved["t"])
        yield moved
