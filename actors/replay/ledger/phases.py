"""Phase changes, what samplers serve, and evaluation rounds.

Invariant: there is one current phase segment. A change names the segment it leaves, so of two racing changes the ledger
refuses one. Open and ready groups of a segment end with it. A round closes when every episode was played or has faulted
beyond the budget. A fault never counts as a failure of the policy. A round of weights that a resume abandoned counts
for nothing.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Row, Transaction, Work
from actors.replay.ledger import demo_tasks, task_choice
from actors.replay.messages import (
    KEPT,
    ROLLED_BACK,
    TRIAL,
    EvalFigures,
    Lane,
    OpenEval,
    Phase,
    PhaseRef,
    Sampling,
    Serving,
    SetPhase,
    TrialFigures,
    trial_round,
)
from actors.replay.rules.groups import GroupEnding, GroupState
from actors.replay.statistics import RoundEpisode, summarise
from runtime.messaging.message import Done, Version
from runtime.settings import stable_seed
from runtime.supervision import QuarantineState


def begin(tx: Transaction) -> None:
    """The first segment of a new ledger."""
    tx.execute("INSERT INTO lineages VALUES(0, NULL)")
    tx.set_meta("trained", "0.0")
    _enter(tx, Phase.DEMO, 0, root=0, steps=None, cause="begin", evidence={})


def set_phase(tx: Transaction, msg: SetPhase) -> Done:
    """Go to the next segment; a repeat changes nothing.

    Raises LedgerError unless `expected` is the current segment and `next` follows it.
    """
    segment = tx.segment()
    if segment.ref == msg.next:
        return Done()
    if segment.ref != msg.expected:
        raise LedgerError(f"the phase is {_name(segment.ref)}, not {_name(msg.expected)}")
    if msg.next.index != segment.idx + 1:
        raise LedgerError(f"after {_name(segment.ref)} comes segment {segment.idx + 1}, not {msg.next.index}")
    _close(tx)
    if segment.phase is Phase.DEMO:
        demo_tasks.log(tx)
    _enter(tx, msg.next.phase, msg.next.index, root=msg.next.index, steps=msg.steps, cause=msg.cause,
           evidence=msg.evidence, before=segment)  # fmt: skip
    return Done()


def rewind(tx: Transaction) -> None:
    """After a resume: re-enter the segment of the learner's weights if they are older than the current segment."""
    lineages, trained, segment = tx.lineages(), tx.trained, tx.segment()
    back_to = segment
    while lineages.abandoned(trained, back_to.start):
        back_to = tx.segment(back_to.root - 1)
    if back_to.idx == segment.idx:
        return
    _close(tx)
    _enter(
        tx, back_to.phase, segment.idx + 1, root=back_to.root, steps=back_to.own_limit, cause="resumed",
        evidence={"resumed_stay": float(back_to.root)}, before=segment,
    )  # fmt: skip


def _close(tx: Transaction) -> None:
    for row in tx.groups_in(GroupState.OPEN, GroupState.READY):
        tx.end_group(row, GroupEnding.PHASE_CLOSED)


def _enter(
    tx: Transaction,
    phase: Phase,
    idx: int,
    *,
    root: int,
    steps: int | None,
    cause: str,
    evidence: dict[str, float],
    before: LedgerPhaseSegment | None = None,
) -> None:
    bound = tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'")
    tx.execute("UPDATE counters SET value = 0 WHERE name = 'wasted'")
    start = tx.trained if root == idx else tx.segment(root).start
    tx.execute(
        "INSERT INTO stays VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
        idx, root, phase, steps, str(start), bound, cause, msgspec.json.encode(evidence).decode(), tx.wall,
    )  # fmt: skip
    mark(tx)
    if before is not None:
        tx.emit(events.PHASE_CHANGED, phase=phase, index=idx, before=before.phase, cause=cause, evidence=evidence)


_MARK = "evidence_mark"


class RateMark(msgspec.Struct, frozen=True):
    """Where counting began: rates go over the time since, so neither a pulse nor a pause of the run is in them."""

    since: float = 0.0
    episodes: int = 0


def mark(tx: Transaction) -> None:
    """Count rates from now on: a step was made, a segment begins, or a run goes on."""
    now = RateMark(tx.now, tx.counter(f"episodes:{Lane.TRAIN}"))
    tx.set_meta(_MARK, msgspec.json.encode(now).decode())


def marked(tx: Transaction) -> RateMark:
    """Where the present rates began."""
    return msgspec.json.decode(tx.meta(_MARK) or "{}", type=RateMark)


def tried(tx: Transaction, segment: LedgerPhaseSegment) -> bool:
    """Whether `segment` is a trial, or goes on with one after a resume."""
    return tx.settings.tries and tx.segment(segment.root).cause == TRIAL


def trials(tx: Transaction) -> TrialFigures | None:
    """What a supervisor that tries pulses decides by; None for another."""
    if not tx.settings.tries:
        return None
    segment, roots = tx.segment(), [tx.segment(one.root) for one in tx.path()]  # those of trials undone, too
    begun = sum(root.cause == TRIAL for root in roots)
    since = max((root.idx for root in roots if root.cause == KEPT), default=0)
    going_back = segment.cause == ROLLED_BACK
    curve = tx.rows(
        "SELECT l.success, l.entropy FROM leases l JOIN stays s ON s.idx = l.stay WHERE l.state = 'trained' "
        "AND s.phase = ? AND s.idx >= ? AND l.entropy IS NOT NULL ORDER BY l.id",
        *(Phase.RL, since),
    )
    before, after = (trial_round(begun, after=late) for late in (False, True))
    states = {row["name"]: row["closed"] for row in tx.rows("SELECT name, closed FROM rounds WHERE abandoned = 0")}
    both = tx.row(
        "SELECT TOTAL(b.success > a.success), TOTAL(b.success < a.success) FROM rounds r "
        "JOIN rounds q ON q.name = ? AND q.abandoned = 0 JOIN episodes a ON a.round_id = r.id "
        "JOIN episodes b ON b.round_id = q.id AND b.task = a.task WHERE r.name = ? AND r.abandoned = 0",
        *(after, before),
    )
    gained, lost = both or (0, 0)
    return TrialFigures(
        under_way=not going_back and tried(tx, segment),
        begun=begun,
        state="going_back" if going_back else "left" if tx.trial_left(segment) else "",
        success=[row["success"] for row in curve],
        entropy=[row["entropy"] for row in curve],
        judged=bool(states.get(after) and states.get(before, 1)),
        gained=int(gained),
        lost=int(lost),
    )


def _name(phase: PhaseRef) -> str:
    return f"{phase.phase}/{phase.index}"


def serving(tx: Transaction, msg: Serving) -> Done:
    """A sampler says what it serves; of one that is gone for good, nothing."""
    if msg.version is None:
        tx.execute("DELETE FROM samplers WHERE name = ?", msg.sampler)
        return Done()
    tx.execute("INSERT OR REPLACE INTO samplers VALUES(?, ?, ?)", msg.sampler, str(msg.version), tx.now)
    return Done()


def forget_silent(tx: Transaction) -> float | None:
    """Drop samplers that have said nothing for long, so that they hold nothing back; when the next will be due."""
    limit_s = tx.rules.sampler_silent_s
    for row in tx.rows("SELECT * FROM samplers WHERE heard <= ?", tx.now - limit_s):
        tx.execute("DELETE FROM samplers WHERE name = ?", row["name"])
        silent_s = tx.now - row["heard"]
        tx.emit(events.SAMPLER_SILENT, sampler=row["name"], version=row["version"], silent_s=silent_s)
    first = tx.row("SELECT MIN(heard) FROM samplers")
    return None if first is None or first[0] is None else float(first[0]) + limit_s


def close_run(tx: Transaction) -> Done:
    """Nothing new from now on, until the run is resumed."""
    if not tx.closed and tx.segment().phase is Phase.DEMO:
        demo_tasks.log(tx)
    tx.set_meta("closed", "1")
    return Done()


_OF_FIGURES = (
    "round", "temperature", "tasks", "played", "successes", "feasible", "faults", "task_set", "episodes"
)  # fmt: skip


def rounds_wait(tx: Transaction) -> bool:
    """Whether rounds wait for RL: RL has steps to make, and engines that hold one version hold its newest.

    Between two segments of RL, too: another may follow a segment's last step, and must not wait for a round.
    """
    segment = tx.segment()
    if not tx.settings.single_version or segment.phase is not Phase.RL or (limit := tx.step_limit(segment)) == 0:
        return False
    if tx.settings.tries and limit is not None and tx.steps_in(segment.root) >= limit:
        return False  # the verdict of a trial is due
    total = tx.settings.rl_steps_in_all
    made = tx.steps_by_phase().get(Phase.RL, 0)
    return total is None or made < total


def open_round(tx: Transaction, msg: OpenEval) -> Done:
    """Begin a round. Opening it again does nothing. Raises LedgerError when the name is taken by another round."""
    known = tx.row("SELECT * FROM rounds WHERE name = ? AND abandoned = 0", msg.round)
    name = msg.task_set
    if known is not None:
        if (known["version"], known["task_set"], known["temperature"]) != (
            str(msg.version), name, msg.sampling.temperature,
        ) or _planned(tx, known["id"]) != len(msg.tasks) * msg.episodes:  # fmt: skip
            raise LedgerError(f"evaluation round {msg.round} exists with weights {known['version']} and other settings")
        return Done()
    if not msg.tasks or msg.episodes < 1:
        raise LedgerError(f"evaluation round {msg.round} has no episodes")
    # The learner may have exported a step that the ledger has yet to hear of: one of its own lineage is fine.
    if tx.lineages().abandoned(max(tx.trained, msg.version), msg.version):
        raise LedgerError(f"evaluation round {msg.round}: a resume has abandoned weights {msg.version}")
    round_id = tx.execute(
        "INSERT INTO rounds(name, version, temperature, max_new_tokens, task_set, tasks) VALUES(?, ?, ?, ?, ?, ?)",
        msg.round, str(msg.version), msg.sampling.temperature, msg.sampling.max_new_tokens, name, len(msg.tasks),
    ).lastrowid  # fmt: skip
    tx.many(
        "INSERT INTO round_tasks(round_id, n, task, state) VALUES(?, ?, ?, 'free')",
        # One episode of every task before the second of any: a round that is cut short has seen them all.
        [(round_id, n, task) for n, task in enumerate(msg.tasks * msg.episodes)],
    )
    tx.emit(
        events.EVAL_ROUND_OPENED, round=msg.round, version=str(msg.version), tasks=len(msg.tasks),
        temperature=msg.sampling.temperature, episodes=msg.episodes,
    )  # fmt: skip
    return Done()


def next_round_task(tx: Transaction) -> Work | None:
    """A task of the oldest round that has one free; marks it as out. A quarantined task counts as a fault of its round.

    Of engines that hold one version only the oldest open round's is asked: they hold no other until it is closed.
    """
    unplayable = task_choice.unplayable(tx)
    waiting = [task for task, status in unplayable.items() if status.state is QuarantineState.QUARANTINED]
    left_out = "SELECT round_id, n FROM round_tasks WHERE state = 'free' AND task IN (SELECT value FROM json_each(?))"
    for slot in tx.rows(left_out, json.dumps(waiting)) if waiting else ():
        _set_task(tx, slot["round_id"], slot["n"], "fault", tx.rules.retries + 1)
    oldest = tx.row("SELECT version FROM rounds WHERE closed = 0 ORDER BY id LIMIT 1")
    row = tx.row(
        "SELECT t.round_id, t.n, t.task, r.name, r.version, r.temperature, r.max_new_tokens, r.tasks "
        "FROM round_tasks t JOIN rounds r ON r.id = t.round_id WHERE t.state = 'free' "
        "AND t.task NOT IN (SELECT value FROM json_each(?)) AND (? OR r.version = ?) ORDER BY t.round_id, t.n LIMIT 1",
        json.dumps(list(unplayable)), not tx.settings.single_version, oldest and oldest["version"],
    )  # fmt: skip
    if row is None:
        return None
    tx.execute("UPDATE round_tasks SET state = 'out' WHERE round_id = ? AND n = ?", row["round_id"], row["n"])
    again = row["n"] // row["tasks"]  # which episode of its task this is
    return Work(
        lane=Lane.EVAL,
        task=row["task"],
        slot=row["n"],
        # Equal in every round, so that two points of a curve draw with the same numbers.
        seed=stable_seed(tx.settings.seed, "eval", row["task"], *([again] if again else [])),
        sampling=Sampling(temperature=row["temperature"], max_new_tokens=row["max_new_tokens"]),
        round_id=row["round_id"],
        round=row["name"],
        pin=Version.parse(row["version"]),
    )


def round_played(tx: Transaction, reservation: Row) -> None:
    """The task has its outcome."""
    _set_task(tx, reservation["round_id"], reservation["slot"], "played", 0)


def round_faulted(tx: Transaction, reservation: Row, *, counts: bool) -> None:
    """Infrastructure broke it: once more, or a fault beyond the budget."""
    faults = counts + tx.number(
        "SELECT faults FROM round_tasks WHERE round_id = ? AND n = ?", reservation["round_id"], reservation["slot"]
    )
    state = "fault" if faults > tx.rules.retries else "free"
    _set_task(tx, reservation["round_id"], reservation["slot"], state, faults)


def _set_task(tx: Transaction, round_id: int, number: int, state: str, faults: int) -> None:
    row = tx.row("SELECT * FROM rounds WHERE id = ?", round_id)
    assert row is not None
    if row["closed"]:
        return  # the round was abandoned; the episode is kept and counts for nothing
    tx.execute(
        "UPDATE round_tasks SET state = ?, faults = ? WHERE round_id = ? AND n = ?",
        state, faults, row["id"], number,
    )  # fmt: skip
    left = tx.number("SELECT COUNT(*) FROM round_tasks WHERE round_id = ? AND state IN ('free', 'out')", row["id"])
    if left == 0:
        done = _round_figures(tx, row, closed=True)
        figures = dict(
            round=done.round, version=str(done.version), temperature=done.temperature, tasks=done.tasks,
            played=done.played, successes=done.successes, feasible=done.feasible, faults=done.faults,
            task_set=done.task_set, episodes=done.episodes, **_success_of(tx, row["id"]),
        )  # fmt: skip
        tx.execute(
            "UPDATE rounds SET closed = 1, wall = ?, said = ? WHERE id = ?",
            tx.wall, msgspec.json.encode(figures).decode(), row["id"],
        )  # fmt: skip
        tx.emit(events.EVAL_ROUND_CLOSED, **figures)


def abandon_rounds(tx: Transaction) -> None:
    """Drop the rounds whose weights a resume abandoned; their names are free again."""
    lineages, trained = tx.lineages(), tx.trained
    for row in tx.rows("SELECT id, version FROM rounds WHERE abandoned = 0"):
        if lineages.abandoned(trained, Version.parse(row["version"])):
            tx.execute("UPDATE rounds SET abandoned = 1, closed = 1 WHERE id = ?", row["id"])
            tx.execute("DELETE FROM round_tasks WHERE round_id = ? AND state = 'free'", row["id"])


def rounds(tx: Transaction) -> list[EvalFigures]:
    """All rounds that count, in the order of opening."""
    rows = tx.rows("SELECT * FROM rounds WHERE abandoned = 0 ORDER BY id")
    return [_round_figures(tx, row, closed=bool(row["closed"])) for row in rows]


def _round_figures(tx: Transaction, row: Row, *, closed: bool) -> EvalFigures:
    if row["said"]:  # nothing of a closed round changes, and its episodes are many
        logged = msgspec.json.decode(row["said"], type=dict[str, Any])
        known = {name: logged[name] for name in _OF_FIGURES}
        version = Version.parse(logged["version"])
        return EvalFigures(version=version, closed=True, max_new_tokens=row["max_new_tokens"], **known)
    counts = tx.row("SELECT COUNT(*), SUM(success), SUM(NOT feasible) FROM episodes WHERE round_id = ?", row["id"])
    assert counts is not None
    played_tasks, successes, infeasible = (value or 0 for value in counts)
    faults = tx.number("SELECT COUNT(*) FROM round_tasks WHERE round_id = ? AND state = 'fault'", row["id"])
    planned = _planned(tx, row["id"]) or row["tasks"]
    return EvalFigures(
        round=row["name"],
        version=Version.parse(row["version"]),
        temperature=row["temperature"],
        tasks=row["tasks"],
        played=played_tasks,
        successes=successes,
        feasible=planned - infeasible,
        faults=faults,
        closed=closed,
        task_set=row["task_set"],
        max_new_tokens=row["max_new_tokens"],
        episodes=planned // row["tasks"],
    )


def _planned(tx: Transaction, round_id: int) -> int:
    return tx.number("SELECT COUNT(*) FROM round_tasks WHERE round_id = ?", round_id)


def _success_of(tx: Transaction, round_id: int) -> dict[str, object]:
    """The round's success with its interval, by family and by number of tries, for the log."""
    rows = tx.rows("SELECT task, success, feasible FROM episodes WHERE round_id = ?", round_id)
    played = [
        RoundEpisode(task=row["task"], success=bool(row["success"]), feasible=bool(row["feasible"])) for row in rows
    ]
    lost = tx.rows("SELECT task FROM round_tasks WHERE round_id = ? AND state = 'fault'", round_id)
    summary = summarise([*played, *(RoundEpisode(task=row["task"], fault=True) for row in lost)])
    low, high = summary.whole.all.interval
    return {
        "success": summary.whole.all.value,
        "low": low,
        "high": high,
        "families": {family: rates.all.value for family, rates in summary.families.items()},
        "instances": {family: rates.all.n for family, rates in summary.families.items()},
        "pass_at": {str(k): value for k, value in summary.pass_at.items()},
    }
