"""What `status` prints.

Invariant: a run without a live owner is never shown as live, however it ended.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.runs import evaluation_rounds, run_folder
from actors.replay.database.ledger_file import LEDGER
from runtime.control import query_status
from runtime.errors import ActorGone
from runtime.waits import ActorStatus

BAD = ("failed", "crashed", "killed")


def show(path: Path, *, as_json: bool) -> int:
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
    found = _evaluated(path, record)
    if as_json:
        plain = msgspec.to_builtins(record)
        about = {"run": str(path), "state": state, "trouble": trouble, "record": plain, "actors": actors}
        output.document(about | ({"success": found.summary.whole.all} if found else {}))
        return int(bad)
    ended = f", ended {record.ended}" if record.ended else ""
    reason = f" - {record.reason}" if record.reason else ""  # it may quote a guest: one line, whatever it says
    output.line(output.clean(f"{path.name}: {state}, started {record.started}{ended}{reason}"))
    if found is not None:
        rate = found.summary.whole.all
        low, high = rate.interval
        going = "" if found.closed else " so far"
        output.line(
            f"success{going} {rate.value:.3f} ({rate.successes}/{rate.n}), 95 % {low:.3f}-{high:.3f}, {found.decoding}"
        )
    if trouble:
        output.line(output.clean(f"it does not answer: {trouble}"))
    if state in ("killed", "crashed", "stopped"):
        output.line(output.clean(f"continue it with  {run_folder.to_continue(record, path)}"))
    if actors:
        output.line()
        away = any(actor.machine for actor in actors)
        heads = ("ACTOR", "HOST", *["MACHINE"] * away, "PID", "STATE", "BUSY", "MAIL", "RESTARTS", "DOING")
        output.table(heads, [_row(actor, away=away) for actor in actors])
    return int(bad)


def _evaluated(path: Path, record: run_folder.RunRecord) -> evaluation_rounds.EvaluationRound | None:
    """The round of a run that only evaluates, once something of it was played."""
    if not record.of_eval or not (path / LEDGER).is_file():
        return None
    rounds = evaluation_rounds.read_rounds(path)
    return rounds[-1] if rounds and rounds[-1].summary.whole.all.n else None


def _row(actor: ActorStatus, *, away: bool) -> tuple[object, ...]:
    busy = f"{actor.current} {output.duration(actor.busy_s)}" if actor.current else "-"
    wait = max(actor.waits, key=lambda found: found.waited_s, default=None)
    waits = f"waits {output.duration(wait.waited_s)} for {wait.what} from {wait.whom}" if wait else ""
    doing = "; ".join(part for part in (actor.doing, waits) if part)
    machine = [actor.machine or "here"] * away
    return actor.name, actor.host, *machine, actor.pid, actor.state, busy, actor.mailbox, actor.restarts, doing
