"""What each RL step shows beside its loss: success, variety, coverage, waste, age, pace.

Invariant: a step's evidence stands in the transaction that makes the step, computed from rows, counters and step
references alone; a resume goes on counting, and evidence of a step that a resume undid is no longer read.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from actors.replay import events
from actors.replay.database.transaction import Book, Stay
from actors.replay.ledger import curriculum
from actors.replay.messages import Batch, Lane, Phase, StepEvidence
from actors.replay.rules.groups import GroupEnding
from actors.replay.statistics.diversity import diversity
from runtime.logs.events import fields_of
from runtime.messaging.message import Version

MEAN_OVER = 10  # steps of the stay that `success_mean` goes back
_MARK = "evidence_mark"


class _Mark(msgspec.Struct, frozen=True):
    """Where counting began: rates go over the time since, so neither a pulse nor a pause of the run is in them."""

    since: float
    episodes: int
    answers: int


def mark(book: Book) -> None:
    """Count rates from now on: a step was made, a stay begins, or a run goes on."""
    now = _Mark(book.now, book.counter(f"episodes:{Lane.TRAIN}"), book.counter("answers"))
    book.set_meta(_MARK, msgspec.json.encode(now).decode())


def committed(book: Book, task: str, *, success: bool, steps: int) -> None:
    """An episode of the train lane ended with an outcome."""
    book.count("answers", steps)
    if success:
        book.execute("INSERT OR IGNORE INTO solved VALUES(?)", task)


def step_made(book: Book, stay: Stay, batch: Batch, version: Version, played: curriculum.Played) -> None:
    """Keep and log the evidence of the RL step that `batch` became; its lease is already `trained`."""
    recent = book.row(
        "SELECT AVG(success) FROM (SELECT l.success FROM leases l CROSS JOIN stays s ON s.idx = l.stay "
        "WHERE l.state = 'trained' AND s.root = ? ORDER BY l.id DESC LIMIT ?)",
        stay.root, MEAN_OVER,
    )  # fmt: skip
    assert recent is not None
    groups = [[trajectory.steps for trajectory in group.trajectories] for group in batch.groups]
    outcomes = [trajectory.success for group in batch.groups for trajectory in group.trajectories]
    varied = diversity(groups)
    solved = book.number("SELECT COUNT(*) FROM solved")
    wasted_total = {str(end): book.counter(f"ending:{end}") for end in GroupEnding if end is not GroupEnding.TRAINED}
    before = book.row(
        "SELECT e.wasted FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' "
        "ORDER BY e.lease DESC LIMIT 1"
    )
    known = msgspec.json.decode(before["wasted"], type=dict[str, int]) if before is not None else {}
    since = msgspec.json.decode(book.meta(_MARK) or '{"since":0,"episodes":0,"answers":0}', type=_Mark)
    minutes = max(book.now - since.since, 1e-3) / 60
    found = StepEvidence(
        lease=batch.lease,
        version=version,
        stay=stay.root,
        stay_step=book.steps_in(stay.root),
        rl_step=book.steps_by_phase().get(Phase.RL, 0),
        success=played.success,
        success_mean=float(recent[0]),
        success_by_kind=curriculum.success_by_kind(book),
        success_batch=sum(outcomes) / len(outcomes) if outcomes else 0.0,
        sampled_entropy_nats=played.entropy,
        action_entropy_nats=varied.functions,
        call_entropy_nats=varied.lines,
        group_call_entropy_nats=varied.lines_in_group,
        parsed=varied.parsed,
        refused=varied.refused,
        distinct_trajectories=varied.distinct,
        coverage=solved / max(1, len(book.settings.train_tasks)),
        tasks_solved=solved,
        wasted={ending: count - known.get(ending, 0) for ending, count in wasted_total.items()},
        wasted_total=wasted_total,
        staleness={str(age): count for age, count in sorted(Counter(batch.staleness).items())},
        episodes_per_min=(book.counter(f"episodes:{Lane.TRAIN}") - since.episodes) / minutes,
        steps_per_min=(book.counter("answers") - since.answers) / minutes,
        elapsed_s=book.now - since.since,
    )
    body = msgspec.json.encode(found).decode()
    book.execute("INSERT INTO evidence VALUES(?, ?, ?)", batch.lease, msgspec.json.encode(wasted_total).decode(), body)
    mark(book)
    book.emit(events.RL_EVIDENCE, **fields_of(found))


def staleness(book: Book, lease: int) -> dict[str, int]:
    """Optimizer steps -> trajectories that the RL step made of `lease` was trained on; nothing for other steps."""
    row = book.row("SELECT body FROM evidence WHERE lease = ?", lease)
    return {} if row is None else msgspec.json.decode(row["body"], type=StepEvidence).staleness


def newest(book: Book) -> StepEvidence | None:
    """Of the last RL step that stands."""
    row = book.row(
        "SELECT e.body FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' "
        "ORDER BY e.lease DESC LIMIT 1"
    )
    return None if row is None else msgspec.json.decode(row["body"], type=StepEvidence)


def series(book: Book) -> list[StepEvidence]:
    """Of every RL step that stands, oldest first."""
    rows = book.rows(
        "SELECT e.body FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' ORDER BY e.lease"
    )
    return [msgspec.json.decode(row["body"], type=StepEvidence) for row in rows]
