"""Handing episodes out and taking them back.

Invariant: a token is outstanding once; only its Commit or its Release ends it, a repeat changes nothing, and a
fault leaves no trace that a batch, a rate or a reservoir could mistake for an outcome.
"""

from __future__ import annotations

import json
from collections import Counter

import msgspec

from actors.errors import FencedOff, LedgerError
from actors.replay import events
from actors.replay.database.transaction import Book, Row, Stay
from actors.replay.ledger import curriculum, demo_tasks, eval_rounds, phases, step_evidence, task_quarantine
from actors.replay.ledger.retention import keep_success, note_failure, store_steps
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
from actors.replay.rules import admission, groups, strata
from actors.replay.rules.groups import GroupEnding, GroupState, SlotState
from runtime.messaging.message import Done, Version
from runtime.seeds import stable_seed

ABANDONED = Fault(cause="abandoned", detail="the seat asked for other work", culprit="seat")
SILENT = Fault(cause="seat_silent", detail="neither committed nor released in time", culprit="seat")
RUN_KILLED = Fault(cause="run_killed", detail="in flight when the run was killed", culprit="host")


def reserve_many(book: Book, wishes: list[Reserve]) -> list[Reservation | NoWork | None]:
    """One answer per wish, in order; None where there is no work now, NoWork where there will be none."""
    answers: list[Reservation | NoWork | None] = []
    dry = False
    for wish in wishes:
        answer = _first_answer(book, wish)
        if answer is None:
            for row in book.rows("SELECT * FROM reservations WHERE state = 'out' AND seat = ?", wish.seat):
                _release(book, row, ABANDONED, counts=True)
                dry = False
            # Work does not depend on who asks: once there is none, there is none for the rest.
            answer = None if dry else _next(book, wish)
            dry = answer is None
        answers.append(answer)
    if dry and _over(book):
        return [answer or NoWork(final=True) for answer in answers]
    return answers


def _over(book: Book) -> bool:
    done = book.stay().phase is Phase.DONE and book.row("SELECT 1 FROM rounds WHERE closed = 0 LIMIT 1") is None
    return book.closed or done


def _first_answer(book: Book, wish: Reserve) -> Reservation | None:
    """What a repeated wish was given, as long as it still holds; one that is over makes room for another."""
    row = book.row("SELECT token, state, reply FROM reservations WHERE request_id = ?", wish.request_id)
    if row is not None and row["state"] != "out":
        over = f"{wish.request_id} until {row['token']}"
        book.execute("UPDATE reservations SET request_id = ? WHERE token = ?", over, row["token"])
        return None
    return None if row is None else _reservation(row)


def _reservation(row: Row) -> Reservation:
    return msgspec.msgpack.decode(row["reply"], type=Reservation)


def _next(book: Book, wish: Reserve) -> Reservation | None:
    if book.closed:
        return None
    stay = book.stay()
    # A round takes what training leaves idle: between batches, and while a pulse or the end of a stay plays nothing.
    # Where training always has work, it is given a share only if the user says so: its curve then has points sooner.
    # Engines that hold one version play rounds where RL draws nothing any more, or it would wait for them.
    single = book.settings.single_version
    waits = eval_rounds.wait(book)
    train = stay.phase is Phase.RL and (waits or not single)
    train_first = train and not _rounds_turn(book)
    if train_first and (found := _next_slot(book, stay)) is not None:
        return _hand_out(book, wish, stay, found)
    if not waits and (found := eval_rounds.next_task(book)) is not None:
        return _hand_out(book, wish, stay, found)
    if train and not train_first and (found := _next_slot(book, stay)) is not None:
        return _hand_out(book, wish, stay, found)
    if stay.phase is Phase.DEMO and (found := _next_demo(book)) is not None:
        return _hand_out(book, wish, stay, found)
    return None


def _rounds_turn(book: Book) -> bool:
    """Whether an open round comes before training: all of the last episodes handed out were for training."""
    share = book.settings.rollout_share
    if not share:
        return False
    run = round(1 / share) - 1
    last = book.number("SELECT seq FROM sqlite_sequence WHERE name = 'reservations'")
    found = book.number("SELECT COUNT(*) FROM reservations WHERE token > ? AND lane = ?", last - run, Lane.TRAIN)
    return found == run


def _hand_out(book: Book, wish: Reserve, stay: Stay, work: eval_rounds.Work) -> Reservation:
    token = 1 + book.number("SELECT seq FROM sqlite_sequence WHERE name = 'reservations'")
    reservation = Reservation(
        token=token,
        lane=work.lane,
        task=work.task,
        group=str(work.group) if work.group is not None else "",
        slot=work.slot,
        seed=work.seed,
        sampling=work.sampling,
        max_turns=book.settings.max_turns,
        pin=work.pin,
        phase=stay.ref,
        route=work.route,
        member=work.member,
        round=work.round,
    )
    book.execute(
        "INSERT INTO reservations(token, request_id, seat, lane, task, stay, group_id, round_id, slot, state,"
        " expires, reply) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, 'out', ?, ?)",
        token, wish.request_id, wish.seat, work.lane, work.task, stay.idx, work.group, work.round_id, work.slot,
        book.now + book.rules.lease_s, msgspec.msgpack.encode(reservation),
    )  # fmt: skip
    task_quarantine.handed_out(book, work.task, token)
    return reservation


def _next_demo(book: Book) -> eval_rounds.Work | None:
    demos = book.settings.demos
    if (rules := demo_tasks.rules_of(book)) is not None:
        return demo_tasks.next_attempt(book, rules)
    rows = book.rows("SELECT reply FROM reservations WHERE state = 'out' AND lane = ?", Lane.DEMO)
    out = [_reservation(row) for row in rows]
    attempts = book.counter("demo_attempts")
    most = demos.attempts
    if not book.settings.demo_tasks or not admission.demos_wanted(
        demos.count, book.counter("demos"), len(out), attempts + len(out), most
    ):
        return None
    held = Counter(strata.name_of(strata.family_of(work.task), work.member or work.route) for work in out)
    tried = {one.name: book.counter(f"demos_tried:{one.name}") for one in book.demo_strata}
    for one in book.demo_strata:
        held[one.name] += book.counter(f"demos:{one.name}")
    seed = book.settings.seed
    for one in strata.order(book.demo_strata, held, tried, most):
        found = task_quarantine.next_playable(
            book, one.tasks, tried[one.name], stable_seed(seed, "demo tasks", one.name)
        )
        if found is not None:
            task, passed = found
            number = book.counter("demos_tried")
            book.count("demos_tried")
            book.count(f"demos_tried:{one.name}", passed + 1)
            return eval_rounds.Work(
                lane=Lane.DEMO,
                task=task,
                slot=number,
                seed=stable_seed(seed, "demo", number),
                sampling=book.train_sampling(),
                # Where a pool is declared, its members take the place of routes.
                route="" if book.settings.demo_members else one.route,
                member=one.route if book.settings.demo_members else "",
            )
    return None


def _next_slot(book: Book, stay: Stay) -> eval_rounds.Work | None:
    rules, trained = book.rules, book.trained
    if not admission.serving_is_fresh(book.served, stay.start, trained, rules.max_staleness, book.lineages()):
        return None
    free = book.row(
        "SELECT g.id, g.task, s.slot FROM slots s JOIN groups g ON g.id = s.group_id "
        "WHERE s.state = 'free' AND g.state = 'open' AND g.stay = ? "
        "AND g.task NOT IN (SELECT value FROM json_each(?)) ORDER BY g.id, s.slot LIMIT 1",
        stay.idx, json.dumps(list(task_quarantine.unplayable(book))),
    )  # fmt: skip
    if free is None:
        live = len(book.groups_in(GroupState.OPEN, GroupState.READY, GroupState.LEASED))
        limit = book.step_limit(stay)
        left = None if limit is None else limit - book.steps_in(stay.root)
        if not book.settings.train_tasks or not admission.may_open(
            live, rules.max_staleness, rules.groups_per_step, left
        ):
            return None
        task = curriculum.next_task(book)
        if task is None:
            return None
        group, slot = book.open_group(task, stay), 0
    else:
        group, task, slot = free["id"], free["task"], free["slot"]
    book.write_slot(group, slot, groups.reserve(book.slots(group)[slot]))
    return eval_rounds.Work(
        lane=Lane.TRAIN,
        task=task,
        group=group,
        slot=slot,
        seed=stable_seed(book.settings.seed, "train", group, slot),
        sampling=book.train_sampling(),
    )


def commit(book: Book, msg: Commit) -> Done:
    """Keep an episode. Raises FencedOff unless the token is outstanding, LedgerError for versions it can't have."""
    row = _outstanding(book, msg.token, "committed")
    if row is None:
        return Done()
    lane = Lane(row["lane"])
    _check_versions(book, row, msg.steps)
    book.execute("UPDATE reservations SET state = 'committed' WHERE token = ?", msg.token)
    step = book.trained.step
    seq = book.execute(
        "INSERT INTO episodes(token, lane, task, stay, group_id, round_id, success, feasible, reason, wall_s, busy_s,"
        " ended_step, tokens, surprisal) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        msg.token, lane, row["task"], row["stay"], row["group_id"], row["round_id"], msg.outcome.success,
        msg.outcome.feasible, msg.outcome.reason, msg.wall_s, msg.busy_s, step,
        sum(one.response_tokens for one in msg.steps), sum(one.surprisal for one in msg.steps),
    ).lastrowid  # fmt: skip
    assert seq is not None
    store_steps(book, msg.token, msg.steps)
    book.count(f"episodes:{lane}")
    task_quarantine.ended(book, row)
    book.emit(
        events.EPISODE_COMMITTED, trace=_reservation(row).trace, token=msg.token, seat=msg.seat, lane=lane,
        task=row["task"], success=msg.outcome.success, reason=msg.outcome.reason, steps=len(msg.steps),
        wall_s=msg.wall_s,
    )  # fmt: skip
    if lane is Lane.DEMO:
        book.count("demo_attempts")
        work = _reservation(row)
        demo_tasks.ended(book, work.task, work.member, success=msg.outcome.success)
        if msg.outcome.success:
            book.count("demos")
            book.count(f"demos:{strata.name_of(strata.family_of(work.task), work.member or work.route)}")
            book.execute("UPDATE episodes SET place = 0 WHERE seq = ?", seq)
    elif lane is Lane.EVAL:
        eval_rounds.played(book, row)
    else:
        root = book.stay(row["stay"]).root
        step_evidence.committed(book, row["task"], success=msg.outcome.success, steps=len(msg.steps))
        # A stay that ended keeps the reservoir it ended with: a pulse may be learning from it.
        if msg.outcome.success and root == book.stay().root:
            keep_success(book, seq, root, row["task"])
        elif not msg.outcome.success:
            note_failure(book, seq, root, row["task"])
        _fill_slot(book, row, msg.steps)
    return Done()


def _check_versions(book: Book, row: Row, steps: list[StepRef]) -> None:
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


def _fill_slot(book: Book, row: Row, steps: list[StepRef]) -> None:
    group = book.group(row["group_id"])
    if group["state"] != GroupState.OPEN:
        return  # the group ended meanwhile; the episode is kept, its slot is nobody's
    slot = book.slots(group["id"])[row["slot"]]
    book.write_slot(group["id"], row["slot"], groups.commit(slot))
    versions = _versions(steps)
    if book.lineages().oldest_staleness(max([book.trained, *versions]), versions) is None:
        book.end_group(group, GroupEnding.ORPHANED)
        return
    if versions:
        known = [Version.parse(text) for text in (group["oldest"], group["newest"]) if text]
        book.execute(
            "UPDATE groups SET oldest = ?, newest = ? WHERE id = ?",
            str(min(versions + known)), str(max(versions + known)), group["id"],
        )  # fmt: skip
    _settle(book, group["id"])


def _settle(book: Book, group_id: int) -> None:
    """End or complete an open group whose slots have changed."""
    group, slots = book.group(group_id), book.slots(group_id).values()
    if groups.is_lost(slots, book.rules.min_group_size):
        book.end_group(group, GroupEnding.LOST)
    elif groups.is_complete(slots):
        # A trajectory's reward is its verifier's verdict; a step's also needs the step to be well formed.
        reward = "e.success" if book.settings.advantage == "trajectory" else "e.success AND s.well_formed"
        rewards = book.rows(
            f"SELECT {reward} FROM episodes e JOIN steps s ON s.token = e.token WHERE e.group_id = ?",  # noqa: S608
            group_id,
        )
        if groups.zero_variance(bool(row[0]) for row in rewards):
            book.end_group(group, GroupEnding.ZERO_VARIANCE)
        else:
            book.move_group(group, GroupState.READY)
            counts = book.row("SELECT COUNT(*), SUM(success) FROM episodes WHERE group_id = ?", group_id)
            assert counts is not None
            book.emit(
                events.GROUP_READY, group=str(group_id), task=group["task"], episodes=counts[0], successes=counts[1]
            )


def release(book: Book, msg: Release) -> Done:
    """The slot goes back. Raises FencedOff unless the token is outstanding (a repeat is answered again)."""
    row = _outstanding(book, msg.token, "released")
    if row is not None:
        _release(book, row, msg.fault, counts=msg.fault.culprit != DISK)
    return Done()


def expire(book: Book) -> float | None:
    """Take back what is overdue and forget silent samplers; when the next will be due."""
    if book.refused_since is not None:  # who could not be heard was not silent
        refused_s = book.now - book.refused_since
        book.execute("UPDATE reservations SET expires = expires + ? WHERE state = 'out'", refused_s)
        book.execute("UPDATE samplers SET heard = heard + ?", refused_s)
        book.made_good = True
    for row in book.rows("SELECT * FROM reservations WHERE state = 'out' AND expires <= ?", book.now):
        _release(book, row, SILENT, counts=True)
    silent = phases.forget_silent(book)
    first = book.row("SELECT MIN(expires) FROM reservations WHERE state = 'out'")
    due = [] if first is None or first[0] is None else [float(first[0])]
    return min([*due, *([] if silent is None else [silent])], default=None)


def release_all(book: Book) -> int:
    """Take back everything in flight because its run is gone; says nothing about tasks, so no budget is charged."""
    rows = book.rows("SELECT * FROM reservations WHERE state = 'out'")
    for row in rows:
        _release(book, row, RUN_KILLED, counts=False)
    return len(rows)


def _release(book: Book, row: Row, fault: Fault, *, counts: bool) -> None:
    book.execute("UPDATE reservations SET state = 'released' WHERE token = ?", row["token"])
    if row["lane"] == Lane.EVAL and fault.cause == DEFERRED:
        eval_rounds.faulted(book, row, counts=False)
        book.emit(
            events.EPISODE_DEFERRED, trace=_reservation(row).trace, token=row["token"], seat=row["seat"],
            task=row["task"], detail=fault.detail,
        )  # fmt: skip
        task_quarantine.broken(book, row, fault)
        return
    book.count(f"fault:{fault.cause}")
    book.emit(
        events.EPISODE_RELEASED, trace=_reservation(row).trace, token=row["token"], seat=row["seat"], lane=row["lane"],
        task=row["task"], cause=fault.cause, detail=fault.detail, culprit=fault.culprit,
    )  # fmt: skip
    if row["lane"] == Lane.EVAL:
        eval_rounds.faulted(book, row, counts=counts)
    elif row["lane"] == Lane.DEMO:
        demo_tasks.broken(book, row["task"], _reservation(row).member, counts=counts)
    elif row["lane"] == Lane.TRAIN:
        group = book.group(row["group_id"])
        if group["state"] == GroupState.OPEN:
            slot = book.slots(group["id"])[row["slot"]]
            freed = groups.release(slot, book.rules.retries, counts)
            book.write_slot(group["id"], row["slot"], freed)
            if freed.state is SlotState.LOST:
                _settle(book, group["id"])
    task_quarantine.broken(book, row, fault)


def _outstanding(book: Book, token: int, repeat_of: str) -> Row | None:
    """The reservation, or None when `repeat_of` already happened. Raises FencedOff naming the token."""
    row = book.row("SELECT * FROM reservations WHERE token = ?", token)
    if row is None:
        raise FencedOff(f"token {token} was never handed out")
    if row["state"] == repeat_of:
        return None
    if row["state"] != "out":
        raise FencedOff(f"token {token} is not outstanding: its episode of {row['task']} was {row['state']}")
    return row
