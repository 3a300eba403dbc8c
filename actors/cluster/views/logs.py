"""How `logs` prints lines.

Invariant: a line of the log is a line of the output, whatever text a guest or a model put into it.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

import actors
from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.cluster.config.suggest import hint
from actors.cluster.runs import run_folder
from runtime.errors import ConfigError
from runtime.logs.events import catalogue
from runtime.logs.reader import read_logs

_HEAD = ("ts", "t", "level", "event", "actor", "trace")
_COLOURS = {"debug": "2", "info": "0", "warning": "33", "error": "31"}
MAX_VALUE = 160  # characters of one field; --json prints it whole


class LineFilter(msgspec.Struct, frozen=True):
    """Which lines."""

    actor: str | None = None
    event: str | None = None
    trace: str | None = None
    level: str | None = None


def show(path: Path, wanted: LineFilter, *, follow: bool, as_json: bool) -> int:
    """Print the lines of the run at `path`, with `follow` until the run ends.

    Raises ConfigError for an actor that wrote nothing there and for an event that there is not.
    """
    if wanted.actor is not None:
        _check_actor(path, wanted.actor, expected_actors(path) if follow and _goes_on(path) else [])
    if wanted.event is not None:
        _check_event(path, wanted.event)
    count = 0
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    chosen = {"actor": wanted.actor, "event": wanted.event, "trace": wanted.trace, "level": wanted.level}
    lines = read_logs(path, **chosen, follow=follow, going=lambda: _goes_on(path))
    for found in lines:
        count += 1
        if as_json:
            told = json.dumps(found)
        else:
            text = format_line(found)
            told = f"\x1b[{_COLOURS.get(found['level'], '0')}m{text}\x1b[0m" if colour else text
        output.write(f"{told}\n", sys.stdout, flush=follow)
    output.write("", sys.stdout)
    if count == 0:
        sys.stderr.write("no such lines\n")
    return 0


def format_line(found: dict[str, Any]) -> str:
    """One log line for people: time, level, actor, event, trace, fields."""
    fields = " ".join(f"{key}={_value(value)}" for key, value in found.items() if key not in _HEAD)
    trace = f" [{found['trace']}]" if found.get("trace") else ""
    head = f"{str(found['ts'])[11:23]} {found['level']:<7} {found['actor']:<14}"
    return output.clean(f"{head} {found['event']}{trace} {fields}".rstrip())


def _value(value: Any) -> str:
    text = _number(value) if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (" " in text or not text) else text


def _number(value: float) -> str:
    """Four digits, and of a large number (a moment, say) the thousandths as well."""
    return f"{value:.3f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"


def actors_of(path: Path) -> list[str]:
    """The actors that wrote logs in the run at `path`."""
    names = {line["actor"] for line in read_logs(path)}
    return sorted(names)


def expected_actors(path: Path) -> list[str]:
    """The actors that the run at `path` has by its deploy file, whether they wrote already or not."""
    file = path / "deploy.yaml"
    if not file.is_file():
        return []
    deploy = deploy_files.stored(path)
    seats = [f"desktop/{k}" for k in range(deploy.desktops.count)]
    samplers = [f"sampler/{k}" for k in range(deploy.samplers.actors())]
    router = ["router"]
    ranks = [f"rank/{k}" for k in range(deploy.learner.parallel.ranks)]
    return ["replay", *ranks, "learner", *samplers, *router, "entropulse", *seats]


def declared_events() -> list[str]:
    """The names of all events that an actor of this program can log."""
    import_module("runtime.logs.writer")
    for package in (found for found in pkgutil.iter_modules(actors.__path__) if found.ispkg):
        if find_spec(f"actors.{package.name}.events"):  # a package without actors logs nothing
            import_module(f"actors.{package.name}.events")
    return sorted(catalogue())


def _goes_on(path: Path) -> bool:
    return run_folder.owner(path) is not None


def _check_actor(path: Path, actor: str, expected: list[str]) -> None:
    known = list(dict.fromkeys([*actors_of(path), *expected]))
    if not any(name == actor or name.startswith(f"{actor}/") for name in known):
        raise ConfigError(f"--actor {actor}: it wrote nothing in {path.name}; {hint(actor, known)}")


def _check_event(path: Path, event: str) -> None:
    known = declared_events()
    if event not in known and not any(True for _ in read_logs(path, event=event)):  # another build's may lie there
        raise ConfigError(f"--event {event}: nothing logs such an event; {hint(event, known, cutoff=0.5)}")
