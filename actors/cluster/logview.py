"""How `logs` prints lines.

Invariant: a line of the log is a line of the output, whatever text a guest or a model put into it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import say
from actors.cluster.nearest import hint
from runtime.errors import ConfigError
from runtime.logs_read import read_logs

_HEAD = ("ts", "t", "level", "event", "actor", "trace")
_COLOURS = {"debug": "2", "info": "0", "warning": "33", "error": "31"}
MAX_VALUE = 160  # characters of one field; --json prints it whole


class Wanted(msgspec.Struct, frozen=True):
    """Which lines."""

    actor: str | None = None
    event: str | None = None
    trace: str | None = None
    level: str | None = None


def show(path: Path, wanted: Wanted, *, follow: bool, as_json: bool) -> int:
    """Print the lines of the run at `path`. Raises ConfigError for an actor that wrote nothing there."""
    if wanted.actor is not None and not follow:
        _check_actor(path, wanted.actor)
    count = 0
    colour = sys.stdout.isatty()
    lines = read_logs(
        path, actor=wanted.actor, event=wanted.event, trace=wanted.trace, level=wanted.level, follow=follow
    )
    for found in lines:
        count += 1
        if as_json:
            sys.stdout.write(json.dumps(found) + "\n")
        else:
            text = format_line(found)
            sys.stdout.write(f"\x1b[{_COLOURS.get(found['level'], '0')}m{text}\x1b[0m\n" if colour else f"{text}\n")
        if follow:
            sys.stdout.flush()
    sys.stdout.flush()
    if count == 0:
        sys.stderr.write(f"no such lines{_advice(path, wanted)}\n")
    return 0


def format_line(found: dict[str, Any]) -> str:
    """One log line for people: time, level, actor, event, trace, fields."""
    fields = " ".join(f"{key}={_value(value)}" for key, value in found.items() if key not in _HEAD)
    trace = f" [{found['trace']}]" if found.get("trace") else ""
    head = f"{str(found['ts'])[11:23]} {found['level']:<7} {found['actor']:<14}"
    return say.clean(f"{head} {found['event']}{trace} {fields}".rstrip())


def _value(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (" " in text or not text) else text


def actors_of(path: Path) -> list[str]:
    """The actors that wrote logs in the run at `path`."""
    names = {line["actor"] for line in read_logs(path)}
    return sorted(names)


def _check_actor(path: Path, actor: str) -> None:
    known = actors_of(path)
    if not any(name == actor or name.startswith(f"{actor}/") for name in known):
        raise ConfigError(f"--actor {actor}: it wrote nothing in {path.name}; {hint(actor, known)}")


def _advice(path: Path, wanted: Wanted) -> str:
    if wanted.event is None:
        return ""
    known = sorted({line["event"] for line in read_logs(path)})
    return "" if wanted.event in known else f": no event {wanted.event}; {hint(wanted.event, known)}"
