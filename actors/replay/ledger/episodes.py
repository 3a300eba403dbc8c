"""Handing episodes out and taking them back.

Invariant: a token is outstanding once. Only its Commit or its Release ends it, and a repeat changes nothing. A fault
leaves no trace that a batch, a rate or a reservoir could mistake for an outcome.
"""

from __future__ import annotations

import json
from collections import Counter

import msgspec

from actors.errors import FencedOff, LedgerError
from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Row, Transaction, Work
from actors.replay.ledger import demo_tasks, phases, task_choice
from actors.replay.ledger.retention import keep_success, store_steps
from actors.replay.messages import (
    DEFERRED,
    DISK,
    Commit,
    Fault,
    Lane,
    NoWork,
    Phase,
    Release,
    Reservation,
    Reserve,
    StepRef,
)
from actors.replay.rules import admission, cold_start, groups
from actors.replay.rules.groups import GroupEnding, GroupState, SlotState
from runtime.messaging.message import Done, Version
from runtime.settings import stable_seed

ABANDONED = Fault(cause="abandoned", detail="the seat asked for other work", culprit="seat")
SILENT = Fault(cause="seat_silent", detail="neither committed nor released in time", culprit="seat")
RUN_KILLED = Fault(cause="run_killed", detail="in flight when the run was killed", culprit="host")


def reserve_many(tx: Transaction, requests: list[Reserve]) -> list[Reservation | NoWork | None]:
    """One answer per request, in order; None where there is no work now, NoWork where there will be none."""
    answers: list[Reservation | NoWork | None] = []
    dry = False
    for request in requests:
        answer = _first_answer(tx, request)
        if answer is None:
            for row in tx.rows("SELECT * FROM reservations WHERE state = 'out' AND seat = ?", request.seat):
                _release(tx, row, ABANDONED, counts=True)
                dry = False
            # Work does not depend on the seat: once there is none, there is none for the other requests.
            answer = None if dry else _next(tx, request)
            dry = answer is None
        answers.append(answer)
    if dry and _over(tx):
        return [answer or NoWork(final=True) for answer in answers]
    return answers


def _over(tx: Transaction) -> bool:
    done = tx.segment().phase is Phase.DONE and tx.row("SELECT 1 FROM rounds WHERE closed = 0 LIMIT 1") is None
    return tx.closed or done


def _first_answer(tx: Transaction, request: Reserve) -> Reservation | None:
    """What a repeated request was given, as long as it still holds; one that is over makes room for another."""
    row = tx.row("SELECT token, state, reply FROM reservations WHERE request_id = ?", request.request_id)
    if row is not None and row["state"] != "out":
        over = f"{request.request_id} until {row['token']}"
        tx.execute("UPDATE reservations SET request_id = ? WHERE token = ?", over, row["token"])
        return None
    return None if row is None else _reservation(row)


def _reservation(row: Row) -> Reservation:
    return msgspec.msgpack.decode(row["reply"], type=Reservation)


def _next(tx: Transaction, request: Reserve) -> Reservation | None:
    if tx.closed:
        return None
    segment = tx.segment()
    # A round takes what training leaves idle: between batches, and while a pulse or a segment's end plays nothing.
    # Where training always has work, it is given a share only if the user says so: its curve then has points sooner.
    # Engines that hold one version play rounds where RL draws nothing any more, or it would wait for them.
    single = tx.settings.single_version
    waits = phases.rounds_wait(tx)
    train = segment.phase is Phase.RL and (waits or not single)
    train_first = train and not _rounds_turn(tx)
    if train_first and (work := _next_slot(tx, segment)) is not None:
        return _hand_out(tx, request, segment, work)
    if not waits and (work := phases.next_round_task(tx)) is not None:
        return _hand_out(tx, request, segment, work)
    if train and not train_first and (work := _next_slot(tx, segment)) is not None:
        return _hand_out(tx, request, segment, work)
    if segment.phase is Phase.DEMO and (work := _next_demo(tx)) is not None:
        return _hand_out(tx, request, segment, work)
    return None


def _rounds_turn(tx: Transaction) -> bool:
    """Whether an open round comes before training: all of the last episodes handed out were for training."""
    share = tx.settings.rollout_share
    if not share:
        return False
    run = round(1 / share) - 1
    last = tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'reservations'")
    trained = tx.number("SELECT COUNT(*) FROM reservations WHERE token > ? AND lane = ?", last - run, Lane.TRAIN)
    return trained == run


def _hand_out(tx: Transaction, request: Reserve, segment: LedgerPhaseSegment, work: Work) -> Reservation:
    token = 1 + tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'reservations'")
    reservation = Reservation(
        token=token,
        lane=work.lane,
        task=work.task,
        group=str(work.group) if work.group is not None else "",
        slot=work.slot,
        seed=work.seed,
        sampling=work.sampling,
        max_turns=tx.settings.max_turns,
        pin=work.pin,
        phase=segment.ref,
        route=work.route,
        member=work.member,
        round=work.round,
    )
    tx.execute(
        "INSERT INTO reservations(token, request_id, seat, lane, task, stay, group_id, round_id, slot, state,"
        " expires, reply) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, 'out', ?, ?)",
        token, request.request_id, request.seat, work.lane, work.task, segment.idx, work.group, work.round_id,
        work.slot, tx.now + tx.rules.lease_s, msgspec.msgpack.encode(reservation),
    )  # fmt: skip
    task_choice.handed_out(tx, work.task, token)
    return reservation


def _next_demo(tx: Transaction) -> Work | None:
    demos = tx.settings.demos
    if (rules := demo_tasks.rules_of(tx)) is not None:
        return demo_tasks.next_attempt(tx, rules)
    rows = tx.rows("SELECT reply FROM reservations WHERE state = 'out' AND lane = ?", Lane.DEMO)
    out = [_reservation(row) for row in rows]
    attempts = tx.counter("demo_attempts")
    most = demos.attempts
    if not tx.settings.demo_tasks or not admission.demos_wanted(
        demos.count, tx.counter("demos"), len(out), attempts + len(out), most
    ):
        return None
    outcomes = Counter(cold_start.name_of(cold_start.family_of(work.task), work.member or work.route) for work in out)
    tried = {stratum.name: tx.counter(f"demos_tried:{stratum.name}") for stratum in tx.demo_strata}
    for stratum in tx.demo_strata:
        outcomes[stratum.name] += tx.counter(f"demos:{stratum.name}")
    seed = tx.settings.seed
    for stratum in cold_start.order(tx.demo_strata, outcomes, tried, most):
        playable = task_choice.next_playable(
            tx, stratum.tasks, tried[stratum.name], stable_seed(seed, "demo tasks", stratum.name)
        )
        if playable is not None:
            task, passed = playable
            number = tx.counter("demos_tried")
            tx.count("demos_tried")
            tx.count(f"demos_tried:{stratum.name}", passed + 1)
            return Work(
                lane=Lane.DEMO,
                task=task,
                slot=number,
                seed=stable_seed(seed, "demo", number),
                sampling=tx.train_sampling(),
                # Where a pool is declared, its members take the place of routes.
                route="" if tx.settings.demo_members else stratum.route,
                member=stratum.route if tx.settings.demo_members else "",
            )
    return None


def _next_slot(tx: Transaction, segment: LedgerPhaseSegment) -> Work | None:
    rules, trained = tx.rules, tx.trained
    if not admission.serving_is_fresh(tx.served, segment.start, trained, rules.max_staleness, tx.lineages()):
        return None
    free = tx.row(
        "SELECT g.id, g.task, s.slot FROM slots s JOIN groups g ON g.id = s.group_id "
        "WHERE s.state = 'free' AND g.state = 'open' AND g.stay = ? "
        "AND g.task NOT IN (SELECT value FROM json_each(?)) ORDER BY g.id, s.slot LIMIT 1",
        segment.idx, json.dumps(list(task_choice.unplayable(tx))),
    )  # fmt: skip
    if free is None:
        live = len(tx.groups_in(GroupState.OPEN, GroupState.READY, GroupState.LEASED))
        limit = tx.step_limit(segment)
        left = None if limit is None else limit - tx.steps_in(segment.root)
        if not tx.settings.train_tasks or not admission.may_open(
            live, rules.max_staleness, rules.groups_per_step, left
        ):
            return None
        task = task_choice.next_task(tx)
        if task is None:
            return None
        group, slot = tx.open_group(task, segment), 0
    else:
        group, task, slot = free["id"], free["task"], free["slot"]
    tx.write_slot(group, slot, groups.reserve(tx.slots(group)[slot]))
    return Work(
        lane=Lane.TRAIN,
        task=task,
        group=group,
        slot=slot,
        seed=stable_seed(tx.settings.seed, "train", group, slot),
        sampling=tx.train_sampling(),
    )


def commit(tx: Transaction, msg: Commit) -> Done:
    """Keep an episode. Raises FencedOff unless the token is outstanding, LedgerError for versions it can't have."""
    row = _outstanding(tx, msg.token, "committed")
    if row is None:
        return Done()
    lane = Lane(row["lane"])
    _check_versions(tx, row, msg.steps)
    tx.execute("UPDATE reservations SET state = 'committed' WHERE token = ?", msg.token)
    step = tx.trained.step
    seq = tx.execute(
        "INSERT INTO episodes(token, lane, task, stay, group_id, round_id, success, feasible, reason, wall_s, busy_s,"
        " ended_step, tokens, surprisal, score) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        msg.token, lane, row["task"], row["stay"], row["group_id"], row["round_id"], msg.outcome.success,
        msg.outcome.feasible, msg.outcome.reason, msg.wall_s, msg.busy_s, step,
        sum(ref.response_tokens for ref in msg.steps), sum(ref.surprisal for ref in msg.steps), msg.outcome.score,
    ).lastrowid  # fmt: skip
    assert seq is not None
    store_steps(tx, msg.token, msg.steps)
    tx.count(f"episodes:{lane}")
    task_choice.ended(tx, row)
    tx.emit(
        events.EPISODE_COMMITTED, trace=_reservation(row).trace, token=msg.token, seat=msg.seat, lane=lane,
        task=row["task"], success=msg.outcome.success, reason=msg.outcome.reason, steps=len(msg.steps),
        wall_s=msg.wall_s,
    )  # fmt: skip
    if lane is Lane.DEMO:
        tx.count("demo_attempts")
        work = _reservation(row)
        demo_tasks.ended(tx, work.task, work.member, success=msg.outcome.success)
        if msg.outcome.success:
            tx.count("demos")
            tx.count(f"demos:{cold_start.name_of(cold_start.family_of(work.task), work.member or work.route)}")
            tx.execute("UPDATE episodes SET place = 0 WHERE seq = ?", seq)
    elif lane is Lane.EVAL:
        phases.round_played(tx, row)
    else:
        root = tx.segment(row["stay"]).root
        if msg.outcome.success:
            tx.execute("INSERT OR IGNORE INTO solved VALUES(?)", row["task"])
        # A segment that ended keeps the reservoir it ended with: a pulse may be learning from it.
        if msg.outcome.success and root == tx.segment().root:
            keep_success(tx, seq, root, row["task"])
        _fill_slot(tx, row, msg.steps)
    return Done()


def _check_versions(tx: Transaction, row: Row, steps: list[StepRef]) -> None:
    lane = Lane(row["lane"])
    if lane is Lane.DEMO:
        return
    if any(step.oldest is None for step in steps):
        raise LedgerError(f"token {row['token']}: an episode of the {lane} lane names the weights of every step")
    if lane is Lane.EVAL:
        pin = _reservation(row).pin
        if other := {str(version) for version in _versions(steps) if version != pin}:
            raise LedgerError(f"token {row['token']}: an evaluation pinned to {pin} was sampled from {sorted(other)}")


def _versions(steps: list[StepRef]) -> list[Version]:
    """Those of the oldest and the newest token of every step."""
    return [version for step in steps for version in (step.oldest, step.newest) if version is not None]


def _fill_slot(tx: Transaction, row: Row, steps: list[StepRef]) -> None:
    group = tx.group(row["group_id"])
    if group["state"] != GroupState.OPEN:
        return  # the group ended meanwhile; the episode is kept, and fills no slot
    slot = tx.slots(group["id"])[row["slot"]]
    tx.write_slot(group["id"], row["slot"], groups.commit(slot))
    versions = _versions(steps)
    if tx.lineages().oldest_staleness(max([tx.trained, *versions]), versions) is None:
        tx.end_group(group, GroupEnding.ORPHANED)
        return
    if versions:
        known = [Version.parse(text) for text in (group["oldest"], group["newest"]) if text]
        tx.execute(
            "UPDATE groups SET oldest = ?, newest = ? WHERE id = ?",
            str(min(versions + known)), str(max(versions + known)), group["id"],
        )  # fmt: skip
    _settle(tx, group["id"])


def _settle(tx: Transaction, group_id: int) -> None:
    """End or complete an open group whose slots have changed."""
    group, slots = tx.group(group_id), tx.slots(group_id).values()
    if groups.is_lost(slots, tx.rules.min_group_size):
        tx.end_group(group, GroupEnding.LOST)
    elif groups.is_complete(slots):
        if not task_choice.group_teaches(tx, group):
            tx.end_group(group, GroupEnding.ZERO_VARIANCE)
        else:
            tx.move_group(group, GroupState.READY)
            counts = tx.row("SELECT COUNT(*), SUM(success) FROM episodes WHERE group_id = ?", group_id)
            assert counts is not None
            tx.emit(
                events.GROUP_READY, group=str(group_id), task=group["task"], episodes=counts[0], successes=counts[1]
            )


def release(tx: Transaction, msg: Release) -> Done:
    """The slot goes back. Raises FencedOff unless the token is outstanding (a repeat is answered again)."""
    row = _outstanding(tx, msg.token, "released")
    if row is not None:
        _release(tx, row, msg.fault, counts=msg.fault.culprit != DISK)
    return Done()


def expire(tx: Transaction) -> float | None:
    """Take back what is overdue and forget silent samplers; when the next will be due."""
    if tx.refused_since is not None:  # who could not be heard was not silent
        refused_s = tx.now - tx.refused_since
        tx.execute("UPDATE reservations SET expires = expires + ? WHERE state = 'out'", refused_s)
        tx.execute("UPDATE samplers SET heard = heard + ?", refused_s)
        tx.made_good = True
    for row in tx.rows("SELECT * FROM reservations WHERE state = 'out' AND expires <= ?", tx.now):
        _release(tx, row, SILENT, counts=True)
    silent = phases.forget_silent(tx)
    first = tx.row("SELECT MIN(expires) FROM reservations WHERE state = 'out'")
    due = [] if first is None or first[0] is None else [float(first[0])]
    return min([*due, *([] if silent is None else [silent])], default=None)


def release_all(tx: Transaction) -> int:
    """Take back everything in flight because its run is gone; says nothing about tasks, so no budget is charged."""
    rows = tx.rows("SELECT * FROM reservations WHERE state = 'out'")
    for row in rows:
        _release(tx, row, RUN_KILLED, counts=False)
    return len(rows)


def _release(tx: Transaction, row: Row, fault: Fault, *, counts: bool) -> None:
    tx.execute("UPDATE reservations SET state = 'released' WHERE token = ?", row["token"])
    if row["lane"] == Lane.EVAL and fault.cause == DEFERRED:
        phases.round_faulted(tx, row, counts=False)
        tx.emit(
            events.EPISODE_DEFERRED, trace=_reservation(row).trace, token=row["token"], seat=row["seat"],
            task=row["task"], detail=fault.detail,
        )  # fmt: skip
        task_choice.broken(tx, row, fault)
        return
    tx.count(f"fault:{fault.cause}")
    tx.emit(
        events.EPISODE_RELEASED, trace=_reservation(row).trace, token=row["token"], seat=row["seat"], lane=row["lane"],
        task=row["task"], cause=fault.cause, detail=fault.detail, culprit=fault.culprit,
    )  # fmt: skip
    if row["lane"] == Lane.EVAL:
        phases.round_faulted(tx, row, counts=counts)
    elif row["lane"] == Lane.DEMO:
        demo_tasks.broken(tx, row["task"], _reservation(row).member, counts=counts)
    elif row["lane"] == Lane.TRAIN:
        group = tx.group(row["group_id"])
        if group["state"] == GroupState.OPEN:
            slot = tx.slots(group["id"])[row["slot"]]
            freed = groups.release(slot, tx.rules.retries, counts)
            tx.write_slot(group["id"], row["slot"], freed)
            if freed.state is SlotState.LOST:
                _settle(tx, group["id"])
    task_choice.broken(tx, row, fault)


def _outstanding(tx: Transaction, token: int, repeat_of: str) -> Row | None:
    """The reservation, or None when `repeat_of` already happened. Raises FencedOff naming the token."""
    row = tx.row("SELECT * FROM reservations WHERE token = ?", token)
    if row is None:
        raise FencedOff(f"token {token} was never handed out")
    if row["state"] == repeat_of:
        return None
    if row["state"] != "out":
        raise FencedOff(f"token {token} is not outstanding: its episode of {row['task']} was {row['state']}")
    return row
