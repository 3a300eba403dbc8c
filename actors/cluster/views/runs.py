"""What `status`, `audit` and `logs` print of a run.

Invariant: a run without a live owner is never shown as live. The verdict of an audit is bad exactly when a check names
something wrong. A line of the log is a line of the output, whatever text a guest or a model put into it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output, tables
from actors.cluster.config.suggest import hint
from actors.cluster.runs import evaluation_rounds, ledgers, run_folder
from actors.cluster.tables import TextTable
from actors.replay.database.auditing import audit
from actors.replay.database.ledger_file import LEDGER, reading
from runtime.control import query_status
from runtime.errors import ActorGone, ConfigError, StoreError
from runtime.logs.reader import read_logs
from runtime.waits import ActorStatus

BAD = ("failed", "crashed", "killed")
_HEAD = ("ts", "t", "level", "event", "actor", "trace")
_COLOURS = {"debug": "2", "info": "0", "warning": "33", "error": "31"}
MAX_VALUE = 160  # characters of one field; --json prints it whole


def show_status(path: Path, *, as_json: bool) -> int:
    """Print the status of the run at `path`; 1 when it ended badly or an actor of it is down."""
    record = run_folder.read_record(path)
    state = run_folder.state(path, record)
    actors: list[ActorStatus] = []
    trouble = None
    if state == "running":
        try:
            actors = query_status(path)
        except ActorGone as error:
            trouble = str(error)
    bad = state in BAD or trouble is not None or any(actor.state in ("failed", "host_lost") for actor in actors)
    played = _evaluated(path, record)
    if as_json:
        plain = msgspec.to_builtins(record)
        about = {"run": str(path), "state": state, "trouble": trouble, "record": plain, "actors": actors}
        output.document(about | ({"success": played.summary.whole.all} if played else {}))
        return int(bad)
    ended = f", ended {record.ended}" if record.ended else ""
    reason = f" - {record.reason}" if record.reason else ""  # it may quote a guest: one line, whatever it says
    output.line(output.clean(f"{path.name}: {state}, started {record.started}{ended}{reason}"))
    if played is not None:
        rate, going = played.summary.whole.all, "" if played.closed else " so far"
        interval = "95 % {:.3f}-{:.3f}".format(*rate.interval)
        output.line(f"success{going} {rate.value:.3f} ({rate.successes}/{rate.n}), {interval}, {played.decoding}")
    if trouble:
        output.line(output.clean(f"it does not answer: {trouble}"))
    if state in ("killed", "crashed", "stopped"):
        output.line(output.clean(ledgers.onward(record, path)))
    if actors:
        output.line()
    away = any(actor.machine for actor in actors)
    heads = ("Actor", "Host", "Machine", "PID", "State", "Busy", "Mail", "Restarts", "Doing")
    tables.show(TextTable(heads, [_row(actor, away=away) for actor in actors]))
    return int(bad)


def _evaluated(path: Path, record: run_folder.RunRecord) -> evaluation_rounds.EvaluationRound | None:
    if not record.of_eval or not (path / LEDGER).is_file():
        return None
    rounds = evaluation_rounds.read_rounds(path)
    return rounds[-1] if rounds and rounds[-1].summary.whole.all.n else None


def _row(actor: ActorStatus, *, away: bool) -> tuple[object, ...]:
    busy = f"{actor.current} {output.duration(actor.busy_s)}" if actor.current else "-"
    wait = max(actor.waits, key=lambda wait: wait.waited_s, default=None)
    waits = f"waits {output.duration(wait.waited_s)} for {wait.what} from {wait.whom}" if wait else ""
    doing = "; ".join(part for part in (actor.doing, waits) if part)
    machine = (actor.machine or "here") if away else ""
    return actor.name, actor.host, machine, actor.pid, actor.state, busy, actor.mailbox, actor.restarts, doing


def show_audit(path: Path, *, as_json: bool) -> int:
    """Audit the run at `path` and print it; 1 when something is wrong. Raises ConfigError without a ledger."""
    try:
        with reading(path) as ledger:
            checks = audit(ledger, path / "segments")
    except StoreError as error:
        raise ConfigError(str(error)) from None
    wrong = [(check.name, text) for check in checks for text in check.wrong]
    if as_json:
        output.document({"run": str(path), "ok": not wrong, "checks": checks})
        return int(bool(wrong))
    state = run_folder.state(path, run_folder.read_record(path))
    output.line(output.clean(f"{path.name} ({state}): " + (f"{len(wrong)} wrong" if wrong else "adds up")))
    rows = [(check.name, check.looked_at, len(check.wrong)) for check in checks]
    output.table(("CHECK", "LOOKED AT", "WRONG"), rows)
    for name, text in wrong:
        output.line(output.clean(f"{name}: {text}"))
    return int(bool(wrong))


def show_logs(path: Path, *, follow: bool, as_json: bool, **chosen: str | None) -> int:
    """Print the lines of the run at `path` that are `chosen` by actor, event, trace and level, with `follow` until the
    run ends.

    Raises ConfigError for an actor or an event that no line has; where more lines may come, standard error says so.
    """
    for field in ("actor", "event"):
        if (name := chosen[field]) is not None:
            there = sorted({line[field] for line in read_logs(path)})
            if not any(other == name or (field == "actor" and other.startswith(f"{name}/")) for other in there):
                wrong = f"--{field} {name}: no line of {path.name} has it; {hint(name, there)}"
                if not (follow and _goes_on(path)):
                    raise ConfigError(wrong)
                output.line(output.clean(wrong), to=sys.stderr)
    count = 0
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in read_logs(path, **chosen, follow=follow, going=lambda: _goes_on(path)):
        count += 1
        text = json.dumps(line) if as_json else format_line(line)
        if colour and not as_json:
            text = f"\x1b[{_COLOURS.get(line['level'], '0')}m{text}\x1b[0m"
        output.write(f"{text}\n", sys.stdout, flush=follow)
    output.write("", sys.stdout)
    if count == 0:
        sys.stderr.write("no such lines\n")
    return 0


def format_line(line: dict[str, Any]) -> str:
    """One log line for people: time, level, actor, event, trace, fields."""
    fields = " ".join(f"{key}={_value(value)}" for key, value in line.items() if key not in _HEAD)
    trace = f" [{line['trace']}]" if line.get("trace") else ""
    head = f"{str(line['ts'])[11:23]} {line['level']:<7} {line['actor']:<14}"
    return output.clean(f"{head} {line['event']}{trace} {fields}".rstrip())


def _value(value: Any) -> str:
    text = _number(value) if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (" " in text or not text) else text


def _number(value: float) -> str:
    """Four digits, and of a large number (a moment, say) the thousandths as well."""
    return f"{value:.3f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"


def _goes_on(path: Path) -> bool:
    return run_folder.owner(path) is not None
