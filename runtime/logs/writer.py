"""Structured logs: one JSON-lines file per host, with the lines of all its actors.

Invariant: when `emit` returns, the whole line is on disk. It holds declared fields only and is bounded in size. No
byte of it can move a terminal's cursor, because any string may hold text from a guest or a model.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from runtime.clock import Clock, RealClock
from runtime.errors import ConfigError, ProtocolError
from runtime.logs.events import LEVELS, Event, declare

ACTOR_STARTED = declare("actor_started", "info", name=str, factory=str, start_s=float, restarts=int)
ACTOR_STOPPED = declare("actor_stopped", "info", name=str)
ACTOR_FAILED = declare("actor_failed", "error", name=str, where=str, error=str, traceback=list)
ACTOR_RESTARTS = declare("actor_restarts", "warning", name=str, delay_s=float, restarts=int)
STOP_FAILED = declare("stop_failed", "warning", name=str, error=str, traceback=list)
TASK_OUTLIVES = declare("task_outlives", "error", name=str, tasks=list)
TELL_FAILED = declare("tell_failed", "warning", name=str, message=str, sender=str, error=str)
DEAD_LETTER = declare("dead_letter", "debug", sender=str, to=str, type=str)
STALL = declare("stall", "warning", who=str, what=str, whom=str, since=str, waited_s=float, cause=str)
MAILBOX_FULL = declare("mailbox_full", "warning", name=str, sender=str, message=str, inside=int, waited_s=float)
DISK_SLOW = declare("disk_slow", "warning", file=str, what=str, waited_s=float)
# Nothing that must be written goes on until `disk_accepts`; `cause` says what to do.
DISK_REFUSES = declare("disk_refuses", "error", folder=str, cause=str)
DISK_ACCEPTS = declare("disk_accepts", "info", folder=str, after_s=float)
DISK_ANSWERS = declare("disk_answers", "info", file=str, what=str, took_s=float)
# What another process asked of the run was not carried out, by a defect or by this machine.
COMMAND_FAILED = declare("command_failed", "error", name=str, error=str, traceback=list)
HOST_LAGS = declare("host_lags", "warning", lag_s=float)
# `machine` is "" for the one that the run was started on.
# `elsewhere`: on another machine than the main host's.
HOST_STARTED = declare(
    "host_started", "info", name=str, machine=str, elsewhere=bool, pid=int, start_s=float, restarts=int
)
# `offset_s` is the run's clock less the host's own.
HOST_BEATS = declare("host_beats", "debug", name=str, cpu_s=float, machine_cpu_s=float, lag_s=float, offset_s=float)
HOST_LOST = declare("host_lost", "error", name=str, machine=str, pid=int, exit_code=int | None, cause=str, actors=list)
HOST_WAITS = declare("host_waits", "warning", waits=str)
PLACER_READY = declare("placer_ready", "info", address=str, door=str)
PLACER_LOST = declare("placer_lost", "error", cause=str, delay_s=float)
HOST_RESTARTS = declare("host_restarts", "warning", name=str, delay_s=float, restarts=int)
HOST_OUTPUT = declare("host_output", "warning", name=str, line=str)
HOST_STOPPING = declare("host_stopping", "info", name=str, asked=bool)
SHUTDOWN_FAILED = declare("shutdown_failed", "error", name=str, error=str, traceback=list)
SYSTEM_FAILED = declare("system_failed", "error", name=str, reason=str)


MAX_TEXT = 2000  # characters of one string
MAX_ITEMS = 200  # of one list or dict
MAX_DEPTH = 4
MAX_FILE_BYTES = 512 << 20  # of one host; then the file becomes `.1`, replacing the one before

current_trace: contextvars.ContextVar[str | None] = contextvars.ContextVar("current_trace", default=None)


def log_folder(run_dir: Path) -> Path:
    """Where the run's log files are."""
    return run_dir / "logs"


def log_file(run_dir: Path, host: str) -> Path:
    """Where the lines of the host's actors are."""
    return log_folder(run_dir) / f"{host.replace('/', '-')}.jsonl"


def printable(text: str, limit: int = MAX_TEXT) -> str:
    """`text` with control, format, surrogate and private characters written out, cut at `limit` characters."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else _escaped(c) for c in cut)
    return cut if len(text) <= limit else f"{cut}... ({len(text)} characters)"


def _escaped(char: str) -> str:
    if unicodedata.category(char) == "Zs":
        return " "
    return char.encode("unicode_escape").decode("ascii")


def bounded(value: Any, depth: int = 0) -> Any:
    """`value` made safe to log: strings printable and cut, containers cut, nothing but JSON types."""
    if isinstance(value, str):
        return printable(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) < 1 << 63 else str(number)[:MAX_TEXT]
    if isinstance(value, float):
        return float(value)
    if depth < MAX_DEPTH:
        if isinstance(value, dict):
            return {printable(str(k), 200): bounded(v, depth + 1) for k, v in list(value.items())[:MAX_ITEMS]}
        if isinstance(value, (list, tuple)):
            return [bounded(v, depth + 1) for v in value[:MAX_ITEMS]]
    return printable(repr(value), 200)


class _File:
    """Appends whole lines, rolls at a size, counts what the disk refused. Open until every log in it is closed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._logs = 0
        self._lock = threading.Lock()  # some actors log from threads of theirs
        self.lost = 0
        self._torn = False  # whether the file ends within a line
        self._fd = self._open()

    def _open(self) -> int:
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(fd).st_size
        self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        return fd

    def write(self, line: bytes) -> None:
        with self._lock:
            self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            whole = b"\n" * self._torn + line + b"\n"
            self._torn = (written := os.write(self._fd, whole)) < len(whole) and (written > 0 or self._torn)
            if written < len(whole):
                self.lost += 1
                return
            self.lost = 0
            if os.fstat(self._fd).st_size > MAX_FILE_BYTES:
                with contextlib.suppress(FileNotFoundError):  # rolled before, and then no new one could be opened
                    os.replace(self._path, self._path.with_suffix(".1.jsonl"))
                fresh = self._open()
                os.close(self._fd)
                self._fd = fresh
        except OSError:
            # A full disk must not turn a log line into an actor's failure; the next line that fits has the count.
            self.lost += 1

    def opened(self) -> None:
        self._logs += 1

    def closed(self) -> None:
        with self._lock:
            self._logs -= 1
            if not self._logs:
                os.close(self._fd)
                self._fd = -1


class ActorLog:
    """The log of one actor, in the file of its host. The trace id of the message being handled is added by itself."""

    def __init__(self, file: _File, actor: str, level: str, clock: Clock) -> None:
        self._actor = actor
        self._level = level
        self._clock = clock
        self._file = file
        self._closed = False
        file.opened()

    def emit(self, event: Event, *, trace: str | None = None, **fields: object) -> None:
        """Write one line. Raises ProtocolError when `fields` are not the event's."""
        if not isinstance(event, Event):
            raise ProtocolError(f"not a declared event: {event!r:.80}")
        event.check(fields)
        if LEVELS[event.level] < LEVELS[self._level]:
            return
        head: dict[str, Any] = {
            "ts": datetime.fromtimestamp(self._clock.wall(), UTC).isoformat(timespec="microseconds"),
            "t": round(self._clock.now(), 6),
            "level": event.level,
            "event": event.name,
            "actor": self._actor,
            "trace": bounded(trace if trace is not None else current_trace.get()),
        }
        if self._file.lost:
            head["lines_lost"] = self._file.lost
        line = head | {name: bounded(value) for name, value in fields.items()}
        self._file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY))

    def of(self, actor: str) -> ActorLog:
        return ActorLog(self._file, actor, self._level, self._clock)

    def close(self) -> None:
        """Release the file, which closes with the last log in it. Lines that come later count as lost."""
        if not self._closed:
            self._closed = True
            self._file.closed()


def host_log(run_dir: Path, host: str, level: str = "info", clock: Clock | None = None) -> ActorLog:
    """The log of `host/HOST` itself, and by `of` those of its actors. Raises ConfigError for a level that is none.

    Times are of `clock`, the run's; without it, of this machine's clock.
    """
    if level not in LEVELS:
        raise ConfigError(f"log level {level!r} is none of {list(LEVELS)}")
    return ActorLog(_File(log_file(run_dir, host)), f"host/{host}", level, clock or RealClock())
