"""What the learner takes, trains, saves and goes back to, and what becomes of a lease that it can't learn from.

Invariant: a batch holds exactly the groups of one step, complete, with signal and at most S steps stale. A step
counts while its weights are an ancestor of the learner's, so what a crash lost is trained again. An unreadable payload
is never handed out again.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

import msgspec

from actors.errors import FencedOff, LedgerError
from actors.replay import events, messages
from actors.replay.database.transaction import LedgerPhaseSegment, Row, Transaction
from actors.replay.ledger import figures, phases, retention, task_choice
from actors.replay.ledger.retention import UNREADABLE, load_steps
from actors.replay.rules.admission import Lineages, too_stale
from actors.replay.rules.groups import GroupEnding, GroupState
from runtime.messaging.message import BlobRef, Done, Version

DIGEST = "digest:"  # before the version of a checkpoint
_UNDONE = "undone"  # sequence number of the last episode that stood when steps were last undone


def take(tx: Transaction, msg: messages.Take) -> messages.Batch | messages.NothingToTake | None:
    """The next batch; None while there is none yet.

    Raises FencedOff when this request's lease is over, LedgerError when the learner claims another lineage.
    """
    known = tx.row("SELECT * FROM leases WHERE request_id = ?", msg.request_id)
    if known is not None:
        if known["state"] != "out":
            raise FencedOff(f"lease {known['id']} is not outstanding: it was {known['state']}")
        return msgspec.msgpack.decode(known["reply"], type=messages.Batch)
    segment = tx.segment()
    if tx.closed or segment.phase is messages.Phase.DONE:
        return messages.NothingToTake(final=True)
    if msg.trained.lineage != tx.trained.lineage:
        raise LedgerError(f"the learner is at {msg.trained}, the ledger knows {tx.trained}: resume before taking")
    for row in tx.rows("SELECT * FROM leases WHERE state = 'out' AND learner = ?", msg.learner):
        give_back(tx, row, "the learner asked again")
    if segment.cause == messages.ROLLED_BACK:
        return messages.NothingToTake(final=False, back_to=tx.path()[1].start)
    done = tx.steps_in(segment.root)
    limit = tx.step_limit(segment)
    if limit is not None and done >= limit:
        return messages.NothingToTake(final=False, checkpoint=True) if tx.checkpointed != tx.trained else None
    if segment.phase is messages.Phase.RL:
        return _take_groups(tx, segment, msg, done)
    if segment.phase in (messages.Phase.BC, messages.Phase.PULSE):
        samples = retention.draw_samples(tx, segment, done)
        if samples or (segment.phase is messages.Phase.PULSE and tx.rules.rehearses_alone):
            return _lease(tx, segment, msg, done, samples=samples)
    return None


def _take_groups(tx: Transaction, segment: LedgerPhaseSegment, msg: messages.Take, done: int) -> messages.Batch | None:
    lineages, rules = tx.lineages(), tx.rules
    fresh: list[Row] = []
    for row in tx.groups_in(GroupState.READY):
        behind = _staleness(lineages, msg.trained, row)
        if behind is None:
            tx.end_group(row, GroupEnding.ORPHANED)
        elif too_stale(behind, rules.max_staleness):
            tx.end_group(row, GroupEnding.STALE)
        else:
            fresh.append(row)
    if len(fresh) < rules.groups_per_step:
        return None
    taken = fresh[: rules.groups_per_step]
    trajectories = [_trajectories(tx, row) for row in taken]
    staleness = [_oldest_of(lineages, msg.trained, trajectory) for group in trajectories for trajectory in group]
    pairs = zip(taken, trajectories, strict=True)
    refs = [messages.GroupRef(group=str(row["id"]), task=row["task"], trajectories=of) for row, of in pairs]
    batch = _lease(tx, segment, msg, done, groups=refs, staleness=staleness)
    for row in taken:
        tx.move_group(row, GroupState.LEASED, batch.lease)
    return batch


def _staleness(lineages: Lineages, trained: Version, row: Row) -> int | None:
    versions = [Version.parse(row[key]) for key in ("oldest", "newest") if row[key]]
    # A sampler may run ahead of what the learner has reported: newer than `trained` is not stale.
    return lineages.oldest_staleness(max([trained, *versions]), versions) if versions else 0


def _oldest_of(lineages: Lineages, trained: Version, trajectory: messages.TrajectoryRef) -> int:
    versions = [step.oldest for step in trajectory.steps if step.oldest is not None]
    return lineages.oldest_staleness(max([trained, *versions]), versions) or 0


def _trajectories(tx: Transaction, row: Row) -> list[messages.TrajectoryRef]:
    episodes = tx.rows("SELECT token, success FROM episodes WHERE group_id = ? ORDER BY token", row["id"])
    return [
        messages.TrajectoryRef(
            token=episode["token"], success=bool(episode["success"]), steps=load_steps(tx, episode["token"])
        )
        for episode in episodes
    ]


def _lease(
    tx: Transaction,
    segment: LedgerPhaseSegment,
    msg: messages.Take,
    done: int,
    *,
    groups: list[messages.GroupRef] | None = None,
    samples: list[messages.StepRef] | None = None,
    staleness: list[int] | None = None,
) -> messages.Batch:
    groups, samples, staleness = groups or [], samples or [], staleness or []
    joined = _joined(tx, segment)
    lease = 1 + tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'leases'")
    batch = messages.Batch(
        lease=lease,
        phase=segment.ref,
        groups=groups,
        samples=samples,
        staleness=staleness,
        fresh_optimizer=done + joined == 0 and segment.phase is not messages.Phase.BC,
        new_reference=done + joined == 0 and segment.phase is messages.Phase.RL,
        stay_step=done,
        stay_limit=tx.rate_limit(segment),
        steps_joined=joined,
        rl_steps=tx.steps_by_phase().get(messages.Phase.RL, 0) if segment.phase is messages.Phase.RL else 0,
        trial_from=tx.segment(segment.root).start if phases.tried(tx, segment) else None,
    )
    tx.execute(
        "INSERT INTO leases(id, request_id, learner, stay, state, reply) VALUES(?, ?, ?, ?, 'out', ?)",
        lease, msg.request_id, msg.learner, segment.idx, msgspec.msgpack.encode(batch),
    )  # fmt: skip
    tx.emit(
        events.BATCH_TAKEN, lease=lease, phase=segment.phase, groups=len(groups), samples=len(samples),
        staleness=dict(Counter(map(str, staleness))),
    )  # fmt: skip
    return batch


def _joined(tx: Transaction, segment: LedgerPhaseSegment) -> int:
    """Steps whose optimizer `segment` keeps: all cloning before it; where pulses are tried, the RL just before it."""
    if segment.phase is messages.Phase.BC:
        return tx.steps_by_phase().get(messages.Phase.BC, 0) - tx.steps_in(segment.root)
    if not tx.settings.tries or segment.phase is not messages.Phase.RL:
        return 0
    stood = (earlier for earlier in tx.path()[1:] if not tx.trial_left(earlier))
    before = takewhile(lambda earlier: earlier.phase is messages.Phase.RL, stood)
    return sum(tx.steps_in(earlier.root) for earlier in before)


def trained(tx: Transaction, msg: messages.Trained) -> Done:
    """The lease became a step. A repeat changes nothing. Raises FencedOff when the lease is not outstanding."""
    row = tx.row("SELECT * FROM leases WHERE id = ?", msg.lease)
    if row is None:
        raise FencedOff(f"lease {msg.lease} was never handed out")
    if row["state"] == "trained" and row["made"] == str(msg.version):
        return Done()
    if row["state"] != "out":
        raise FencedOff(f"lease {msg.lease} is not outstanding: it was {row['state']}")
    if msg.version < tx.trained or msg.version.lineage != tx.trained.lineage:
        raise LedgerError(f"lease {msg.lease} made {msg.version}, which does not follow {tx.trained}")
    segment = tx.segment(row["stay"])
    batch = msgspec.msgpack.decode(row["reply"], type=messages.Batch)
    newest = tx.number("SELECT seq_bound FROM leases WHERE state = 'trained' ORDER BY id DESC LIMIT 1")
    last = max(newest, int(tx.meta(_UNDONE) or 0))
    now = tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'")
    played = _played_since(tx, last, now, batch)
    rl = segment.phase is messages.Phase.RL
    entropy = played.entropy if rl else msg.figures.get("entropy")
    tx.execute(
        "UPDATE leases SET state = 'trained', made = ?, success = ?, entropy = ?, figures = ?, seq_bound = ?,"
        " wall = ?, reply = NULL WHERE id = ?",
        str(msg.version), played.success, entropy, msgspec.json.encode(msg.figures).decode(), now,
        tx.wall, msg.lease,
    )  # fmt: skip
    tx.set_meta("trained", str(msg.version))
    for group in tx.rows("SELECT * FROM groups WHERE lease = ?", msg.lease):
        if group["state"] == GroupState.LEASED:
            tx.end_group(group, GroupEnding.TRAINED)
    for behind in batch.staleness:
        tx.count(f"staleness:{behind}")
    tx.execute("UPDATE counters SET value = 0 WHERE name = 'wasted'")
    success = played.success if rl else None
    tx.emit(events.STEP_TRAINED, lease=msg.lease, phase=segment.phase, version=str(msg.version), success=success)
    if rl:
        figures.step_made(tx, segment, batch, msg.version, played, since=(last, now))
    return Done()


def _played_since(tx: Transaction, last: int, now: int, batch: messages.Batch) -> task_choice.PolicyEstimate:
    """What the training episodes committed since the last step say; those of the batch when there are none.

    Groups of zero variance are in it: the batch alone would hide a policy that always or never succeeds.
    """
    estimate = task_choice.played(tx, last, now)
    if estimate is not None:
        return estimate
    outcomes = [trajectory.success for group in batch.groups for trajectory in group.trajectories]
    return task_choice.PolicyEstimate(sum(outcomes) / len(outcomes) if outcomes else 0.0, None)


def checkpointed(tx: Transaction, msg: messages.Checkpointed) -> Done:
    """Steps up to the checkpoint are final."""
    lineages = tx.lineages()
    if lineages.abandoned(max(tx.trained, msg.version), msg.version):
        raise LedgerError(f"a checkpoint of {msg.version} is of an abandoned lineage, the learner is at {tx.trained}")
    if tx.checkpointed is None or tx.checkpointed < msg.version:
        tx.set_meta("checkpointed", str(msg.version))
    tx.set_meta(f"{DIGEST}{msg.version}", msg.digest)
    _confirm_up_to(tx, lineages, msg.version)
    return Done()


def digests(tx: Transaction, msg: messages.GetCheckpointDigests) -> messages.CheckpointDigests:
    """What the files of checkpoints were when they were saved."""
    return messages.CheckpointDigests(digests=[tx.meta(f"{DIGEST}{version}") or "" for version in msg.versions])


def _confirm_up_to(tx: Transaction, lineages: Lineages, version: Version) -> None:
    for lease in tx.rows("SELECT * FROM leases WHERE state = 'trained' AND final = 0"):
        if not lineages.abandoned(version, Version.parse(lease["made"])):
            tx.execute("UPDATE leases SET final = 1 WHERE id = ?", lease["id"])
            for group in tx.rows("SELECT * FROM groups WHERE lease = ?", lease["id"]):
                if group["ending"] == GroupEnding.TRAINED and not group["final"]:
                    tx.confirm_group(group)


def resumed(tx: Transaction, msg: messages.LearnerResumed) -> Done:
    """The learner goes on from a checkpoint in a new lineage; a repeat changes nothing.

    Raises LedgerError when the lineage exists with another parent, `version` does not continue `parent`, or an earlier
    resume undid the steps that `parent` holds.
    """
    lineages = tx.lineages()
    known = tx.row("SELECT parent FROM lineages WHERE lineage = ?", msg.version.lineage)
    if known is not None:
        if known["parent"] is not None and not _same_weights(lineages, Version.parse(known["parent"]), msg.parent):
            raise LedgerError(f"lineage {msg.version.lineage} began at {known['parent']}, not at {msg.parent}")
        return Done()
    if msg.version.step != msg.parent.step or msg.version.lineage <= tx.trained.lineage:
        raise LedgerError(f"{msg.version} does not begin a new lineage at {msg.parent} after {tx.trained}")
    if lineages.abandoned(max(tx.trained, msg.parent), msg.parent):
        raise LedgerError(f"{msg.parent} was undone: the learner is at {tx.trained}, which does not descend from it")
    # A folder keeps the name that its weights had when they were saved. Where an earlier resume from it gave them
    # another, what was begun under that name since (a segment, a round) still refers to the same weights.
    names = [tx.checkpointed] + [one.start for one in tx.path()[1:2] if tx.segment().cause == messages.ROLLED_BACK]
    parent = next((name for name in names if name and _same_weights(lineages, name, msg.parent)), msg.parent)
    tx.execute("INSERT INTO lineages VALUES(?, ?)", msg.version.lineage, str(parent))
    tx.set_meta("trained", str(msg.version))
    lineages = tx.lineages()
    tx.set_meta("checkpointed", str(msg.version))  # another name of the weights that the checkpoint of `parent` holds
    _confirm_up_to(tx, lineages, parent)
    phases.rewind(tx)
    returned = give_back_all(tx, "the learner resumed")
    # Steps that stand follow each other: those undone are the last of them.
    standing = tx.execute("SELECT * FROM leases WHERE state = 'trained' ORDER BY id DESC")
    for lease in list(takewhile(lambda row: lineages.abandoned(msg.version, Version.parse(row["made"])), standing)):
        returned += _undo(tx, lease)
        tx.set_meta(_UNDONE, str(tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'")))
    orphaned = 0
    for row in tx.groups_in(GroupState.OPEN, GroupState.READY):
        if row["newest"] and lineages.abandoned(msg.version, Version.parse(row["newest"])):
            tx.end_group(row, GroupEnding.ORPHANED)
            orphaned += 1
    phases.abandon_rounds(tx)
    tx.emit(events.LINEAGE_STARTED, version=str(msg.version), parent=str(parent), returned=returned, orphaned=orphaned)
    return Done()


def _same_weights(lineages: Lineages, version: Version, folder: Version) -> bool:
    """Whether `version` is what the weights in the checkpoint of `folder` are called, after resumes from it alone."""
    return lineages.staleness(version, folder) == 0


def give_back_all(tx: Transaction, cause: str) -> int:
    """Return every outstanding lease; how many groups went back."""
    return sum(give_back(tx, row, cause) for row in tx.rows("SELECT * FROM leases WHERE state = 'out'"))


def give_back(tx: Transaction, lease: Row, cause: str) -> int:
    """Return an outstanding lease; how many groups went back."""
    tx.execute("UPDATE leases SET state = 'returned', reply = NULL WHERE id = ?", lease["id"])
    returned = 0
    for group in tx.rows("SELECT * FROM groups WHERE lease = ? AND state = 'leased'", lease["id"]):
        returned += _return_group(tx, group)
    if returned:
        tx.emit(events.GROUPS_RETURNED, groups=returned, cause=cause)
    return returned


def _undo(tx: Transaction, lease: Row) -> int:
    """A step whose weights are gone: its groups go back unless a checkpoint had made them final."""
    tx.execute("UPDATE leases SET state = 'returned' WHERE id = ?", lease["id"])
    for behind, count in figures.staleness(tx, lease["id"]).items():
        tx.count(f"staleness:{behind}", -count)
    returned = 0
    for group in tx.rows("SELECT * FROM groups WHERE lease = ?", lease["id"]):
        if group["ending"] == GroupEnding.TRAINED and not group["final"]:
            returned += _return_group(tx, tx.take_back_group(group))
    return returned


def _return_group(tx: Transaction, group: Row) -> int:
    """A leased group of a lease that is over: ready again if its phase and its weights still stand."""
    newest = Version.parse(group["newest"]) if group["newest"] else None
    if group["stay"] != tx.segment().idx:
        tx.end_group(group, GroupEnding.PHASE_CLOSED)
    elif newest is not None and tx.lineages().abandoned(max(tx.trained, newest), newest):
        tx.end_group(group, GroupEnding.ORPHANED)
    else:
        tx.move_group(group, GroupState.READY)
        return 1
    return 0


UNREADABLE_LEASE = "unreadable"  # of the lease


def unreadable(tx: Transaction, msg: messages.Unreadable) -> Done:
    """End what can't be read or is without signal, and give the rest of the lease back. A repeat changes nothing.

    Raises FencedOff when the lease is not outstanding.
    """
    lease = tx.row("SELECT * FROM leases WHERE id = ?", msg.lease)
    if lease is None or lease["state"] not in ("out", UNREADABLE_LEASE):
        raise FencedOff(f"lease {msg.lease} is not outstanding")
    if lease["state"] == UNREADABLE_LEASE:
        return Done()
    batch = msgspec.msgpack.decode(lease["reply"], type=messages.Batch)
    bad = set(msg.blobs)
    lost = 0
    unread = {
        group.group
        for group in batch.groups
        if any(bad.intersection(step.blob for step in one.steps) for one in group.trajectories)
    }
    for row in tx.rows("SELECT * FROM groups WHERE lease = ? AND state = 'leased'", msg.lease):
        if str(row["id"]) in unread:
            tx.end_group(row, GroupEnding.LOST)
            lost += 1
        elif str(row["id"]) in msg.without_signal:
            tx.end_group(row, GroupEnding.ZERO_VARIANCE)
    samples = _leave_out(tx, bad) if batch.samples else 0
    if bad:
        tx.emit(
            events.PAYLOADS_UNREADABLE, lease=msg.lease, phase=batch.phase.phase, groups=lost, samples=samples,
            segments=sorted({blob.segment for blob in bad}), cause=msg.cause,
        )  # fmt: skip
    give_back(tx, lease, msg.cause)
    tx.execute("UPDATE leases SET state = ? WHERE id = ?", UNREADABLE_LEASE, msg.lease)
    return Done()


def _leave_out(tx: Transaction, bad: set[BlobRef]) -> int:
    """Take steps out of every pool to come; how many. Their pulse may be over, and come again after a resume."""
    live = "SELECT s.token, s.n, s.ref FROM steps s JOIN episodes e ON e.token = s.token WHERE e.success AND e.live"
    bad_steps = [
        (UNREADABLE, row["token"], row["n"])
        for row in tx.rows(f"{live} AND s.well_formed = 1")
        if msgspec.msgpack.decode(row["ref"], type=messages.StepRef).blob in bad
    ]
    tx.many("UPDATE steps SET well_formed = ? WHERE token = ? AND n = ?", bad_steps)
    tx.pool = None
    return len(bad_steps)
