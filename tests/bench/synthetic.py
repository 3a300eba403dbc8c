"""A ledger as a long run leaves it, made in bulk.

Invariant: its counts add up as in a ledger that was played (`actors.replay.database.auditing` finds nothing wrong).
Only old episodes are thinner: each has one stored step, and none of their payloads is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.database.ledger_file import connect
from actors.replay.ledger.store import Ledger
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling, StepRef
from actors.settings import DemosConfig
from runtime.messaging.message import BlobRef, Version

TASKS = [f"family{n % 12}/train/{n}" for n in range(2400)]
STAY_STEPS = 500  # of RL between two pulses, which have one step each
ROUND = 500  # episodes of an evaluation round: one after every segment of RL
RULES = ReplayConfig(groups_per_step=4, group_size=8, reservoir_per_task=16)
PER_STEP = RULES.groups_per_step * RULES.group_size

_STEP = StepRef(
    blob=BlobRef(segment="desktop-0-000000.seg", offset=24, size=9000, digest="0" * 32),
    prompt_tokens=900,
    response_tokens=20,
    well_formed=True,
    oldest=Version(lineage=0, step=1),
    newest=Version(lineage=0, step=1),
    function="click",
    line="0" * 16,
    surprisal=4.0,
)
_REPLY = Reservation(
    token=1, lane=Lane.TRAIN, task=TASKS[0], group="1", slot=0, seed=1, max_turns=12, pin=None,
    sampling=Sampling(temperature=1.0, max_new_tokens=96), phase=PhaseRef(phase=Phase.RL, index=1),
)  # fmt: skip


def settings() -> LedgerSettings:
    """Settings of the ledger, to make it and to open it again."""
    return LedgerSettings(
        seed=1, train_tasks=TASKS, demo_tasks=[], max_turns=12, demos=DemosConfig(count=0), rules=RULES,
        incarnation="bench",
    )  # fmt: skip


class PlayingSeats:
    """The ledger of a run whose seats play without end: each event ends a seat's episode and begins its next."""

    def __init__(self, path: Path, seats: Sequence[str]) -> None:
        self._db, _ = connect(path)
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("INSERT INTO stays VALUES(0, 0, 'rl', NULL, '0.0', 0, 'begin', '{}', 0)")
        self._seats = seats
        self._token = 0
        self._held: dict[str, int] = {}

    def play(self, events: int) -> list[str]:
        """The next `events` events in one transaction; the seats that had one."""
        played = []
        self._db.execute("BEGIN")
        for _ in range(events):
            seat = self._seats[self._token % len(self._seats)]
            self._token += 1
            task = TASKS[self._token % len(TASKS)]
            if (before := self._held.get(seat)) is not None:
                self._db.execute("UPDATE reservations SET state = 'committed' WHERE token = ?", (before,))
                self._db.execute(
                    "INSERT INTO episodes(token, lane, task, stay, success, feasible, reason, wall_s, busy_s,"
                    " ended_step, live) VALUES(?, 'train', ?, 0, ?, 1, 'verified', 1, 1, 0, 0)",
                    (before, task, self._token % 2),
                )
            self._db.execute(
                "INSERT INTO reservations(token, request_id, seat, lane, task, stay, slot, state, expires, reply)"
                " VALUES(?, ?, ?, 'train', ?, 0, 0, 'out', 0, '')",
                (self._token, str(self._token), seat, task),
            )
            self._held[seat] = self._token
            played.append(seat)
        self._db.execute("COMMIT")
        return played

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def make(path: Path, episodes: int) -> None:
    """Write a ledger of about `episodes` episodes to `path`. Raises StoreError, sqlite3.Error."""
    Ledger(path, settings()).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("BEGIN")
        _fill(db, episodes)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class _Rows:
    """What is inserted, a table at a time, whenever much of it has come together."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._held: dict[str, list[tuple[object, ...]]] = {}

    def add(self, sql: str, row: tuple[object, ...]) -> None:
        held = self._held.setdefault(sql, [])
        held.append(row)
        if len(held) >= 20_000:
            self._db.executemany(sql, held)
            held.clear()

    def flush(self) -> None:
        for sql, held in self._held.items():
            self._db.executemany(sql, held)
            held.clear()


def _fill(db: sqlite3.Connection, episodes: int) -> None:
    rows, reply, ref = _Rows(db), msgspec.msgpack.encode(_REPLY), msgspec.msgpack.encode(_STEP)
    token = lease = group = round_id = 0
    segment, made = 0, 0
    reservation = (
        "INSERT INTO reservations(token, request_id, seat, lane, task, stay, group_id, round_id, slot, state, expires,"
        " reply) VALUES(?, ?, 'desktop/0', ?, ?, ?, ?, ?, ?, 'committed', 0, ?)"
    )
    episode = (
        "INSERT INTO episodes(seq, token, lane, task, stay, group_id, round_id, success, feasible, reason, wall_s,"
        " busy_s, ended_step, tokens, surprisal, live)"
        " VALUES(?, ?, ?, ?, ?, ?, ?, ?, 1, 'verified', 9, 5, ?, 80, 30, 0)"
    )

    def played(lane: Lane, task: str, slot: int, *, of: int) -> None:
        """Episode `slot` of the group or the round `of`; every second one succeeded."""
        nonlocal token
        token += 1
        group, round_id = (of, None) if lane is Lane.TRAIN else (None, of)
        rows.add(reservation, (token, f"r{token}", lane, task, segment, group, round_id, slot, reply))
        rows.add(episode, (token, token, lane, task, segment, group, round_id, slot % 2, made))
        rows.add("INSERT INTO steps VALUES(?, 0, 1, ?)", (token, ref))

    def step() -> None:
        nonlocal lease, made
        lease += 1
        made += 1
        rows.add(
            "INSERT INTO leases(id, request_id, learner, stay, state, made, final, success, entropy, figures,"
            " seq_bound, wall) VALUES(?, ?, 'learner', ?, 'trained', ?, 1, 0.5, 0.4, ?, ?, 0)",
            (lease, f"l{lease}", segment, f"0.{made}", '{"loss":0.5,"entropy":0.4}', token),
        )

    def enter(phase: Phase) -> None:
        nonlocal segment
        segment += 1
        rows.add(
            "INSERT INTO stays VALUES(?, ?, ?, NULL, ?, ?, 'counted', '{}', 0)",
            (segment, segment, phase, f"0.{made}", token),
        )

    while token < episodes:
        enter(Phase.RL)
        for _ in range(STAY_STEPS):
            if token >= episodes:
                break
            for _ in range(RULES.groups_per_step):
                group += 1
                task = TASKS[group % len(TASKS)]
                rows.add(
                    "INSERT INTO groups VALUES(?, ?, ?, 'ended', 'trained', 1, ?, ?, ?, ?)",
                    (group, task, segment, lease + 1, f"0.{made}", f"0.{made}", made + 1),
                )
                for slot in range(RULES.group_size):
                    played(Lane.TRAIN, task, slot, of=group)
                    rows.add("INSERT INTO slots VALUES(?, ?, 'done', 0)", (group, slot))
            step()
            rows.add(_EVIDENCE, (lease, made))
        round_id += 1
        for slot in range(ROUND):
            task = f"family{slot % 12}/held-out/{slot}"
            played(Lane.EVAL, task, slot, of=round_id)
            rows.add("INSERT INTO round_tasks VALUES(?, ?, ?, 'played', 0)", (round_id, slot, task))
        rows.add(
            "INSERT INTO rounds VALUES(?, ?, ?, 1, 96, 'set', ?, 1, 0, 0, ?)",
            (round_id, f"round{round_id}", f"0.{made}", ROUND, _said(round_id, made)),
        )
        enter(Phase.PULSE)
        step()
    enter(Phase.RL)
    rows.flush()
    for key, value in (("trained", f"0.{made}"), ("checkpointed", f"0.{made}")):
        db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))
    counters = {
        "opened": group,
        "ending:trained": group,
        "staleness:0": PER_STEP * (made - segment // 2),
        "episodes:train": token - round_id * ROUND,
        "episodes:eval": round_id * ROUND,
    }
    db.executemany("INSERT OR REPLACE INTO counters VALUES(?, ?)", list(counters.items()))
    db.executemany("INSERT OR IGNORE INTO solved VALUES(?)", [(task,) for task in TASKS])


_EVIDENCE = (
    "INSERT INTO evidence VALUES(?1, '{}', json_object('lease', ?1, 'version', json('{\"lineage\":0,\"step\":' "
    "|| ?2 || '}'), 'stay', 1, 'stay_step', 1, 'rl_step', ?2, 'success', 0.5, 'success_mean', 0.5, "
    "'success_batch', 0.5, 'action_entropy_nats', 1.0, 'call_entropy_nats', 1.0, "
    "'group_call_entropy_nats', 1.0, 'parsed', 99, 'refused', 1, "
    "'distinct_trajectories', 0.5, 'coverage', 1.0, 'tasks_solved', 2400, 'wasted', json('{}'), 'wasted_total', "
    "json('{}'), 'staleness', json('{\"0\":32}'), 'episodes_per_min', 60.0, 'steps_per_min', 300.0, 'elapsed_s', 32.0))"
)


def _said(number: int, made: int) -> str:
    return msgspec.json.encode(
        {
            "round": f"round{number}", "version": f"0.{made}", "temperature": 1.0, "tasks": ROUND, "played": ROUND,
            "successes": ROUND // 2, "feasible": ROUND, "faults": 0, "task_set": "set", "episodes": 1, "success": 0.5,
            "low": 0.4, "high": 0.6, "families": {}, "instances": {}, "pass_at": {},
        }
    ).decode()  # fmt: skip
