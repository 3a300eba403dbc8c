"""Which task is played next, by the curriculum and by quarantine, and what success at all tasks is.

Invariant: a choice is a function of the seed and of what the ledger stores. A kind of task that is solved half the time
has the largest share of the groups, and no kind's share falls below `LEAST` of that. A task that is quarantined loses
its open groups in the same transaction.

GRPO learns nothing from a group whose rewards are all equal. The chance of two unequal rewards is 2 p (1 - p) at
success p; p (1 - p) is known as a task's learnability (Tzannetos et al., "Proximal curriculum for reinforcement
learning agents", 2023; Rutherford et al., "No regrets", 2024). Both measure it per task. A run this long sees a task
once or twice, so it is measured here per kind of task, over the last `WINDOW` episodes a kind.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actors.replay import events
from actors.replay.database.transaction import Row, Transaction
from actors.replay.messages import Fault, Lane
from actors.replay.rules.groups import GroupEnding, GroupState, nth_of_epochs
from policy.advantage import AdvantageLevel
from runtime.settings import stable_seed
from runtime.supervision import Quarantine, QuarantinePolicy, QuarantineState

WINDOW = 40
LEAST = 0.15
_NO_LAST = (1 << 63) - 1
_EVERY = "train tasks"  # the one kind of a run without a curriculum; seeds are made of it


class KindTally(NamedTuple):
    """Episodes of a kind, how many of them succeeded, and their answers' tokens with minus their log-probabilities."""

    wins: int = 0
    tries: int = 0
    tokens: int = 0
    surprisal: float = 0.0  # nats

    @property
    def success(self) -> float:
        """Laplace's estimate, (wins + 1) / (tries + 2): a kind not yet seen counts as solved half the time."""
        return (self.wins + 1) / (self.tries + 2)


def weights(sizes: Mapping[str, int], seen: Mapping[str, KindTally]) -> dict[str, float]:
    """How likely each kind is to be next, up to a common factor: its number of tasks times its learnability."""
    return {kind: size * _favour(seen.get(kind, KindTally())) for kind, size in sizes.items()}


def _favour(tally: KindTally) -> float:
    """How much likelier a task of a kind is drawn than its share of all tasks, up to a common factor."""
    return max(LEAST, 4 * tally.success * (1 - tally.success))


def order(likely: Mapping[str, float], seed: int) -> list[str]:
    """All kinds, drawn one after the other without replacement with probabilities in proportion to `likely`."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, nothing secret
    # The smallest of exponential variates at rates w is i with probability w_i / sum(w) (Efraimidis, Spirakis 2006).
    return sorted(likely, key=lambda kind: rng.expovariate(1.0) / likely[kind])


def next_task(tx: Transaction) -> str | None:
    """The task of the next group, or None while all of them are quarantined. Counts it as handed out."""
    if not tx.train_kinds:
        return _next_of(tx, _EVERY, tx.settings.train_tasks)
    sizes = {kind: len(tasks) for kind, tasks in tx.train_kinds.items()}
    seed = stable_seed(tx.settings.seed, "train kinds", tx.counter("opened"))
    for kind in order(weights(sizes, tallies(tx)), seed):
        if (task := _next_of(tx, kind, tx.train_kinds[kind])) is not None:
            return task
    return None


def _next_of(tx: Transaction, kind: str, tasks: Sequence[str]) -> str | None:
    number, seed = tx.counter(f"drawn:{kind}"), stable_seed(tx.settings.seed, kind)
    playable = next_playable(tx, tasks, number, seed)
    if playable is None:
        return None
    task, passed = playable
    tx.count(f"drawn:{kind}", passed + 1)
    return task


def tallies(tx: Transaction, upto: int | None = None) -> dict[str, KindTally]:
    """The last training episodes by kind, `WINDOW` times as many as there are kinds; none later than number `upto`."""
    rows = tx.rows(
        "SELECT task, success, tokens, surprisal FROM episodes WHERE lane = ? AND seq <= ? ORDER BY seq DESC LIMIT ?",
        Lane.TRAIN, _NO_LAST if upto is None else upto, WINDOW * len(tx.train_kinds),
    )  # fmt: skip
    return _tallied(tx, rows)


def success_by_kind(tx: Transaction) -> dict[str, float]:
    """Shares that the choice goes by; empty without a curriculum."""
    seen = tallies(tx) if tx.train_kinds else {}
    return {kind: round(seen.get(kind, KindTally()).success, 4) for kind in sorted(tx.train_kinds)}


def group_teaches(tx: Transaction, group: Row) -> bool:
    """Whether the learner finds signal in a complete group.

    True of every group whose steps get a reward of one's own: the learner ends those in which it is equal.
    """
    if tx.settings.own_reward:
        return True
    # A trajectory's reward is its verifier's verdict; a step's also needs the step to be well formed.
    reward = "e.success" if tx.settings.advantage is AdvantageLevel.TRAJECTORY else "e.success AND s.well_formed"
    row = tx.row(
        f"SELECT MIN({reward}) < MAX({reward}) FROM episodes e JOIN steps s ON s.token = e.token "  # noqa: S608
        "WHERE e.group_id = ?",
        group["id"],
    )
    return row is not None and bool(row[0])


class PolicyEstimate(NamedTuple):
    """What training episodes say of the policy that played them."""

    success: float  # share of the tasks' own mixture
    entropy: float | None  # nats per token; None where no token is known


def played(tx: Transaction, first: int, last: int) -> PolicyEstimate | None:
    """Of the training episodes with sequence numbers in (first, last]. None when there are none.

    Entropy is -sum log mu / tokens over all answers, for the policy mu that drew them at its temperature. It is an
    unbiased estimate of their mean token entropy. Groups of equal rewards are in it. Trained groups are of tasks that
    the policy is unsure of, so their entropy hardly falls while the entropy of all answers does.

    With a curriculum the episodes are not of the tasks' own mixture: `of_mixture` says how they count then.
    """
    rows = tx.rows(
        "SELECT task, success, tokens, surprisal FROM episodes WHERE lane = ? AND seq > ? AND seq <= ?",
        Lane.TRAIN, first, last,
    )  # fmt: skip
    if not rows:
        return None
    if tx.train_kinds:
        return of_mixture(_tallied(tx, rows), tallies(tx, first))
    tokens = sum(row["tokens"] for row in rows)
    share = sum(row["success"] for row in rows) / len(rows)
    return PolicyEstimate(share, sum(row["surprisal"] for row in rows) / tokens if tokens else None)


def of_mixture(now: Mapping[str, KindTally], before: Mapping[str, KindTally]) -> PolicyEstimate | None:
    """What `now`, drawn by what was known `before`, says of all tasks in their own mixture. None of no episode.

    Each episode counts by one over how much its kind was favoured (importance sampling with weights made to sum to one,
    Hesterberg 1995). Episodes before these count for nothing, so that neighbouring steps err independently and what a
    step says does not trail behind the policy.
    """
    worth = {kind: 1 / _favour(before.get(kind, KindTally())) for kind in now}
    tries = sum(worth[kind] * tally.tries for kind, tally in now.items())
    if not tries:
        return None
    tokens = sum(worth[kind] * tally.tokens for kind, tally in now.items())
    surprisal = sum(worth[kind] * tally.surprisal for kind, tally in now.items())
    wins = sum(worth[kind] * tally.wins for kind, tally in now.items())
    return PolicyEstimate(wins / tries, surprisal / tokens if tokens else None)


def _tallied(tx: Transaction, episodes: Sequence[Row]) -> dict[str, KindTally]:
    by_kind: dict[str, KindTally] = {}
    for row in episodes:
        if (kind := tx.kind_of.get(row["task"])) is not None:  # a resume may train on other tasks than before it
            wins, tries, tokens, surprisal = by_kind.get(kind, KindTally())
            by_kind[kind] = KindTally(
                wins + row["success"], tries + 1, tokens + row["tokens"], surprisal + row["surprisal"]
            )
    return by_kind


POLICY = QuarantinePolicy(faults_in_a_row=3, first_probe_s=60.0, longest_probe_s=3600.0)
CULPRIT = "task"


def quarantine(tx: Transaction, task: str) -> Quarantine:
    """The quarantine of a task."""
    row = tx.row("SELECT * FROM wards WHERE task = ?", task)
    return Quarantine() if row is None else _read(row)


def quarantined(tx: Transaction) -> dict[str, Quarantine]:
    """The tasks that are quarantined, those that are being probed too."""
    return {row["task"]: _read(row) for row in tx.rows("SELECT * FROM wards WHERE state != 'well' ORDER BY task")}


def unplayable(tx: Transaction) -> dict[str, Quarantine]:
    """The tasks that may not be handed out now."""
    return {task: status for task, status in quarantined(tx).items() if not status.usable(tx.now)}


def playable(tx: Transaction, task: str) -> bool:
    """Whether a task may be handed out now."""
    return quarantine(tx, task).usable(tx.now)


def next_playable(tx: Transaction, tasks: Sequence[str], number: int, seed: int) -> tuple[str, int] | None:
    """The first of endless epochs over `tasks` from `number` on that may be played, and how many were passed over.

    None when all are quarantined. From the middle of an epoch on it takes nearly two of them to come by every task.
    """
    for passed in range(2 * len(tasks) - 1):
        task = nth_of_epochs(tasks, number + passed, seed)
        if playable(tx, task):
            return task, passed
    return None


def handed_out(tx: Transaction, task: str, token: int) -> None:
    """An episode of the task was handed out."""
    before = quarantine(tx, task)
    _write(tx, task, before, before.began(token))


def ended(tx: Transaction, reservation: Row) -> None:
    """An episode came to an outcome."""
    task, token = reservation["task"], reservation["token"]
    before = quarantine(tx, task)
    after = before.ended(token, POLICY)
    _write(tx, task, before, after)
    if before.quarantined and not after.quarantined:
        tx.emit(events.TASK_LET_BACK, task=task, failed_probes=before.failed_probes)


def broken(tx: Transaction, reservation: Row, fault: Fault) -> None:
    """Infrastructure broke an episode; a task that is quarantined loses its open groups."""
    task, token = reservation["task"], reservation["token"]
    before = quarantine(tx, task)
    after = before.faulted(token, POLICY, tx.now, own=fault.culprit == CULPRIT)
    _write(tx, task, before, after)
    if after.state is not QuarantineState.QUARANTINED or after == before or after.probe_at <= tx.now:
        return
    tx.emit(
        events.TASK_QUARANTINED, task=task, cause=fault.cause, detail=fault.detail, faults=after.streak,
        failed_probes=after.failed_probes, probe_s=after.probe_at - tx.now,
    )  # fmt: skip
    for row in tx.groups_in(GroupState.OPEN):
        if row["task"] == task:
            tx.end_group(row, GroupEnding.LOST)


def _write(tx: Transaction, task: str, before: Quarantine, after: Quarantine) -> None:
    if after == before:
        return
    if after == Quarantine():
        tx.execute("DELETE FROM wards WHERE task = ?", task)
        return
    tx.execute(
        "INSERT OR REPLACE INTO wards VALUES(?, ?, ?, ?, ?, ?)",
        task, after.state, after.streak, after.failed_probes, after.probe_at, after.probe,
    )  # fmt: skip


def _read(row: Row) -> Quarantine:
    return Quarantine(
        state=QuarantineState(row["state"]),
        streak=row["streak"],
        failed_probes=row["failed_probes"],
        probe_at=row["probe_at"],
        probe=row["probe"],
    )
