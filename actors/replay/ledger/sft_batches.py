"""The steps that cross-entropy phases learn from.

Invariant: behaviour cloning learns from well-formed steps of successful demonstrations. A pulse learns from well-formed
steps of successful training episodes and, where the deploy file says so, of some demonstrations. Episodes that were
committed after a phase segment began are not in it, so its epochs stay the same. An answer longer than a sampler would
draw is left out: the policy could begin it and never end it.

Why demonstrations again: RL plays few tasks of a kind that it hardly solves. So a pulse on successes alone has next to
none of that kind, and unlearns there what cloning had taught. The policy then answers as in the kinds that it has many
of.
"""

from __future__ import annotations

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Row, Transaction
from actors.replay.messages import Lane, Phase, StepRef
from actors.replay.rules.reservoir import choose, minibatch
from runtime.settings import stable_seed

ANY = 1 << 62  # above every sequence number
# In the column `well_formed` of a step that can't be read: it was well formed, and nothing is learned from it.
UNREADABLE = 2


def _since_pulse(segments: list[LedgerPhaseSegment]) -> list[int]:
    """The roots of `segments` (newest first) back to the last pulse: whose successes a pulse after them learns from."""
    phases = [segment.phase for segment in segments]
    return [segment.root for segment in segments[: phases.index(Phase.PULSE) if Phase.PULSE in phases else None]]


def _of_segment(tx: Transaction, root: int, bound: int) -> tuple[str, tuple[str | int, ...]]:
    """FROM clause and values: reservoir members of the stay `root`, committed up to `bound`.

    With `pulse_tasks: unmastered`, of tasks of which an episode failed in that stay: one that always succeeds has as
    little to teach a pulse as a group of equal rewards has to teach RL.
    """
    segment = (Lane.TRAIN, root, bound)
    kept = "FROM episodes WHERE place IS NOT NULL AND lane = ? AND stay = ? AND seq <= ?"
    if tx.rules.pulse_tasks == "all":
        return kept, segment
    failed = "SELECT task FROM reservoirs WHERE stay = ? AND failed <= ?"
    return f"{kept} AND task IN ({failed})", (*segment, root, bound)


def let_go(tx: Transaction) -> int:
    """Give up the reservoirs of segments that nothing will learn from any more; how many episodes were in them.

    A pulse has learned from what came before it once a checkpoint holds the segment that follows: no resume goes back
    before that one. Stays that a resume undid are on no path.
    """
    path = tx.path()
    lineages, saved = tx.lineages(), tx.checkpointed
    learned = len(path)
    for n in range(len(path) - 1, 0, -1):
        follows = path[n - 1].start
        if path[n].phase is Phase.PULSE and saved is not None and not lineages.abandoned(saved, follows):
            learned = n
    needed = {segment.root for segment in path[:learned]}
    found = [row["stay"] for row in tx.rows("SELECT DISTINCT stay FROM reservoirs") if row["stay"] not in needed]
    gone = 0
    for root in found:
        gone += tx.execute(
            "UPDATE episodes SET place = NULL WHERE place IS NOT NULL AND lane = ? AND stay = ?", Lane.TRAIN, root
        ).rowcount
        tx.execute("DELETE FROM reservoirs WHERE stay = ?", root)
    return gone


def count_successes(tx: Transaction) -> int:
    """How many trajectories a pulse that began now could choose from."""
    clauses = [_of_segment(tx, root, ANY) for root in _since_pulse(tx.path())]
    return sum(tx.number(f"SELECT COUNT(*) {clause}", *values) for clause, values in clauses)


def _kept_successes(tx: Transaction, segments: list[LedgerPhaseSegment], bound: int) -> list[Row]:
    """Reservoir members of the segments back to the last pulse, committed up to `bound`, by task and sequence."""
    clauses = [_of_segment(tx, root, bound) for root in _since_pulse(segments)]
    rows = [row for clause, values in clauses for row in tx.rows(f"SELECT seq, token, task {clause}", *values)]
    return sorted(rows, key=lambda row: (row["task"], row["seq"]))


def tokens(tx: Transaction, segment: LedgerPhaseSegment) -> list[int]:
    """The episodes that `segment`, the current one, learns from."""
    root, seed = tx.segment(segment.root), tx.settings.seed
    rows = tx.rows(
        "SELECT token FROM episodes WHERE lane = ? AND success = 1 AND seq <= ? ORDER BY seq", Lane.DEMO, root.seq_bound
    )
    demos = [row["token"] for row in rows]
    if segment.phase is Phase.BC:
        return demos
    by_task: dict[str, list[int]] = {}
    for row in _kept_successes(tx, tx.path()[1:], root.seq_bound):
        by_task.setdefault(row["task"], []).append(row["token"])
    own = [
        token
        for task, found in by_task.items()
        for token in choose(found, tx.rules.pulse_per_task, stable_seed(seed, "pulse", root.idx, task))
    ]
    return own + choose(demos, tx.rules.pulse_demos, stable_seed(seed, "pulse's demonstrations", root.idx))


def _places(tx: Transaction, segment: LedgerPhaseSegment) -> list[tuple[int, int]]:
    """Token and number of the pool's steps. Raises LedgerError where all are too long or can't be read."""
    if tx.pool is None or tx.pool[0] != segment.root:
        places: list[tuple[int, int]] = []
        longest, too_long, unreadable = 0, 0, 0
        for token in tokens(tx, segment):
            for row in tx.rows(
                "SELECT n, ref, well_formed FROM steps WHERE token = ? AND well_formed ORDER BY n", token
            ):
                if row["well_formed"] == UNREADABLE:
                    unreadable += 1
                    continue
                length = msgspec.msgpack.decode(row["ref"], type=StepRef).response_tokens
                if length <= tx.settings.sampling.max_new_tokens:
                    places.append((token, row["n"]))
                else:
                    longest, too_long = max(longest, length), too_long + 1
        if unreadable and not places:
            raise LedgerError(
                f"none of the {unreadable} steps to learn from can be read: files of the run's segments are missing or"
                " changed (event payloads_unreadable); put them back, or begin a new run"
            )
        if too_long:
            most = tx.settings.sampling.max_new_tokens
            if not places:
                raise LedgerError(f"no answer to learn fits sampling.max_new_tokens {most}: the longest has {longest}")
            tx.emit(events.ANSWERS_TOO_LONG, left_out=too_long, learned=len(places), longest=longest, most=most)
        tx.pool = (segment.root, places)
    return tx.pool[1]


def draw(tx: Transaction, segment: LedgerPhaseSegment, batch: int) -> list[StepRef]:
    """Minibatch number `batch` of a cross-entropy segment; empty when there is nothing to learn from."""
    places = _places(tx, segment)
    if not places:
        return []
    seed = stable_seed(tx.settings.seed, "minibatches", segment.root)
    refs = []
    for pick in minibatch(len(places), batch, tx.rules.sft_batch_size, seed):
        row = tx.row("SELECT ref FROM steps WHERE token = ? AND n = ?", *places[pick])
        assert row is not None
        refs.append(msgspec.msgpack.decode(row["ref"], type=StepRef))
    return refs
