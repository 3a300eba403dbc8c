"""One transaction's view of the ledger: what every operation reads and writes through.

Invariant: a group's state changes only by the moves of `groups`, together with the counters that answer for it. So
opened = open + ready + leased + sum(endings) holds in every transaction.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.config import LedgerSettings
from actors.replay.messages import KEPT, ROLLED_BACK, TRIAL, Lane, Phase, PhaseRef, Sampling
from actors.replay.rules import groups
from actors.replay.rules.admission import Lineages
from actors.replay.rules.cold_start import strata
from actors.replay.rules.groups import GroupEnding, GroupState, GroupStatus, Slot, SlotState
from runtime.logs.events import Event
from runtime.messaging.message import Version

Row = sqlite3.Row


class LedgerPhaseSegment(msgspec.Struct, frozen=True):
    """A segment of a phase. `root` is the first segment, with which this one goes on after a resume, else its own."""

    idx: int
    root: int
    phase: Phase
    own_limit: int | None  # `Transaction.step_limit` has what counts
    start: Version  # weights at its beginning
    seq_bound: int  # episodes up to this sequence number were committed before it
    cause: str = ""

    @property
    def ref(self) -> PhaseRef:
        return PhaseRef(phase=self.phase, index=self.idx)


class Transaction:
    """Connection, rules, the time, and the events to log once the transaction is durable."""

    def __init__(self, connection: sqlite3.Connection, settings: LedgerSettings) -> None:
        self.connection = connection
        self.settings = settings
        self.rules = settings.rules
        self.demo_strata = strata(settings.demo_tasks, settings.demo_members or settings.demo_routes)
        self.demo_families = strata(settings.demo_tasks, {})
        self.kind_of = dict(zip(settings.train_tasks, settings.train_kinds, strict=bool(settings.train_kinds)))
        self.train_kinds: dict[str, list[str]] = {}  # kind -> its tasks; empty without a curriculum
        for task, kind in self.kind_of.items():
            self.train_kinds.setdefault(kind, []).append(task)
        self.now = 0.0  # monotonic seconds of this boot, set by the worker for each transaction
        self.refused_since: float | None = None  # since when the disk refused what is not made good yet
        self.made_good = False  # within this transaction
        self.wall = 0.0  # seconds since the epoch, for people
        self.events: list[tuple[Event, dict[str, Any]]] = []
        self.pool: tuple[int, list[tuple[int, int]]] | None = (
            None  # token and number of the steps that a root segment learns from: see `_places` in ledger/retention.py
        )

    # -- plain access

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self.connection.execute(sql, values)

    def many(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        self.connection.executemany(sql, rows)

    def row(self, sql: str, *values: Any) -> Row | None:
        first: Row | None = self.connection.execute(sql, values).fetchone()
        return first

    def rows(self, sql: str, *values: Any) -> list[Row]:
        return self.connection.execute(sql, values).fetchall()

    def train_sampling(self) -> Sampling:
        drawn = self.settings.sampling
        return Sampling(temperature=drawn.temperature, max_new_tokens=drawn.max_new_tokens)

    def number(self, sql: str, *values: Any) -> int:
        """The first column of the first row as a number; 0 when there is none."""
        row = self.row(sql, *values)
        return 0 if row is None or row[0] is None else int(row[0])

    def emit(self, event: Event, **fields: Any) -> None:
        self.events.append((event, fields))

    def meta(self, key: str) -> str | None:
        row = self.row("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self.execute("INSERT INTO meta VALUES(?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", key, value)

    def count(self, name: str, by: int = 1) -> None:
        self.execute(
            "INSERT INTO counters VALUES(?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value", name, by
        )

    def counter(self, name: str) -> int:
        return self.number("SELECT value FROM counters WHERE name = ?", name)

    # -- where the run is

    @property
    def closed(self) -> bool:
        return self.meta("closed") == "1"

    @property
    def trained(self) -> Version:
        return Version.parse(self.meta("trained") or "0.0")

    @property
    def checkpointed(self) -> Version | None:
        text = self.meta("checkpointed")
        return Version.parse(text) if text else None

    @property
    def served(self) -> Version | None:
        """The oldest version over the samplers that said what they serve."""
        return min((Version.parse(row[0]) for row in self.rows("SELECT version FROM samplers")), default=None)

    def segment(self, idx: int | None = None) -> LedgerPhaseSegment:
        """Phase segment `idx`, or the current one."""
        row = self.row("SELECT * FROM stays ORDER BY idx DESC LIMIT 1") if idx is None else self.row(
            "SELECT * FROM stays WHERE idx = ?", idx
        )  # fmt: skip
        if row is None:
            raise LedgerError(f"there is no phase segment {idx}")
        return LedgerPhaseSegment(
            idx=row["idx"],
            root=row["root"],
            phase=Phase(row["phase"]),
            own_limit=row["step_limit"],
            start=Version.parse(row["start"]),
            seq_bound=row["seq_bound"],
            cause=row["cause"],
        )

    def path(self) -> list[LedgerPhaseSegment]:
        """The segments that led to the learner's weights, newest first: what a resume undid is left out."""
        segments = [self.segment()]
        while segments[-1].root > 0:
            segments.append(self.segment(segments[-1].root - 1))
        return segments

    def lineages(self) -> Lineages:
        rows = self.rows("SELECT lineage, parent FROM lineages")
        return Lineages({row["lineage"]: Version.parse(row["parent"]) if row["parent"] else None for row in rows})

    def step_limit(self, segment: LedgerPhaseSegment) -> int | None:
        """Optimizer steps that `segment` has at most: its own limit, and in RL what other segments leave of the total.

        A step that is under way when its segment ends is counted there, whenever it is made; one given back is not. A
        trial that was rolled back has 0.
        """
        if self.trial_left(segment):
            return 0
        left = self._left(segment)
        return min((limit for limit in (left, segment.own_limit) if limit is not None), default=None)

    def trial_left(self, segment: LedgerPhaseSegment) -> bool:
        """Whether the learner has gone back to the beginning of `segment`, a trial, and another segment is due."""
        if not self.settings.tries or (root := self.segment(segment.root)).cause != TRIAL:
            return False
        sql = "SELECT cause FROM stays WHERE idx > ? AND cause IN (?, ?, ?) ORDER BY idx"
        later = [row[0] for row in self.rows(sql, root.idx, TRIAL, KEPT, ROLLED_BACK)]
        verdicts = later[: later.index(TRIAL)] if TRIAL in later else later
        return verdicts[-1:] == [ROLLED_BACK]

    def rate_limit(self, segment: LedgerPhaseSegment) -> int | None:
        """Steps over which the learning rate runs, from this segment's first on.

        All that are left of RL where the segments that follow go on with this one's optimizer, and so with its rate.
        """
        goes_on = self.settings.tries and segment.phase is Phase.RL and self.settings.rl_steps_in_all is not None
        return self._left(segment) if goes_on else self.step_limit(segment)

    def _left(self, segment: LedgerPhaseSegment) -> int | None:
        """Steps that other segments leave `segment` of the total; None where there is none."""
        total = self.settings.rl_steps_in_all
        if segment.phase is not Phase.RL or total is None:
            return None
        made = self.number(
            "SELECT SUM(trained) FROM stay_steps n JOIN stays s ON s.idx = n.stay WHERE s.phase = ? AND s.root != ?",
            segment.phase, segment.root,
        )  # fmt: skip
        under_way = self.number(
            "SELECT COUNT(*) FROM leases l JOIN stays s ON s.idx = l.stay WHERE l.state = 'out' AND s.phase = ? "
            "AND s.root != ?",
            segment.phase, segment.root,
        )  # fmt: skip
        return max(0, total - made - under_way)

    def steps_in(self, root: int) -> int:
        """Optimizer steps made in the segments that go on with `root`."""
        sql = "SELECT SUM(trained) FROM stay_steps n JOIN stays s ON s.idx = n.stay WHERE s.root = ?"
        return self.number(sql, root)

    def steps_by_phase(self) -> dict[str, int]:
        sql = "SELECT s.phase, SUM(n.trained) AS n FROM stay_steps n JOIN stays s ON s.idx = n.stay GROUP BY s.phase"
        return {row["phase"]: row["n"] for row in self.rows(sql) if row["n"]}

    # -- groups

    def open_group(self, task: str, segment: LedgerPhaseSegment) -> int:
        """A new group with all its slots free; its id."""
        group = self.execute(
            "INSERT INTO groups(task, stay, state) VALUES(?, ?, ?)", task, segment.idx, GroupState.OPEN
        ).lastrowid
        assert group is not None
        self.many(
            "INSERT INTO slots(group_id, slot, state) VALUES(?, ?, ?)",
            [(group, slot, SlotState.FREE) for slot in range(self.rules.group_size)],
        )
        self.count("opened")
        self.emit(events.GROUP_OPENED, group=str(group), task=task, phase=segment.phase)
        return group

    def slots(self, group: int) -> dict[int, Slot]:
        rows = self.rows("SELECT slot, state, faults FROM slots WHERE group_id = ?", group)
        return {row["slot"]: Slot(SlotState(row["state"]), row["faults"]) for row in rows}

    def write_slot(self, group: int, number: int, slot: Slot) -> None:
        self.execute(
            "UPDATE slots SET state = ?, faults = ? WHERE group_id = ? AND slot = ?",
            slot.state,
            slot.faults,
            group,
            number,
        )

    def move_group(self, row: Row, to: GroupState, lease: int | None = None) -> None:
        """To `ready` or `leased`. Raises LedgerError for a move that the group's life does not have."""
        self._write_group(row["id"], groups.move(_status(row), to), lease)

    def end_group(self, row: Row, ending: GroupEnding) -> None:
        """End a group, `trained` provisionally. Raises LedgerError unless it may end so."""
        status = groups.end(_status(row), ending)
        self._write_group(row["id"], status, row["lease"] if ending is GroupEnding.TRAINED else None)
        self.execute("DELETE FROM slots WHERE group_id = ? AND state = 'free'", row["id"])
        self.count(f"ending:{ending}")
        if ending is GroupEnding.ZERO_VARIANCE:
            self.count("wasted")
        if status.final:
            self._log_ending(row, ending)

    def confirm_group(self, row: Row) -> None:
        self._write_group(row["id"], groups.confirm(_status(row)), row["lease"])
        self._log_ending(row, GroupEnding.TRAINED)

    def take_back_group(self, row: Row) -> Row:
        """The group's step is lost: leased again. Returns the row as it now is."""
        self._write_group(row["id"], groups.take_back(_status(row)), row["lease"])
        self.count(f"ending:{GroupEnding.TRAINED}", -1)
        return self.group(row["id"])

    def group(self, group: int) -> Row:
        """A group's row. Raises LedgerError when there is none."""
        row = self.row("SELECT * FROM groups WHERE id = ?", group)
        if row is None:
            raise LedgerError(f"there is no group {group}")
        return row

    def groups_in(self, *states: GroupState) -> list[Row]:
        """Groups that have not ended, oldest first."""
        marks = ",".join("?" * len(states))
        return self.rows(f"SELECT * FROM groups WHERE state != 'ended' AND state IN ({marks}) ORDER BY id", *states)  # noqa: S608

    def _write_group(self, group: int, status: GroupStatus, lease: int | None) -> None:
        ended_step = self.trained.step if status.state is GroupState.ENDED else None
        self.execute(
            "UPDATE groups SET state = ?, ending = ?, final = ?, lease = ?, ended_step = ? WHERE id = ?",
            status.state, status.ending, status.final, lease, ended_step, group,
        )  # fmt: skip

    def _log_ending(self, row: Row, ending: GroupEnding) -> None:
        self.emit(events.GROUP_ENDED, group=str(row["id"]), task=row["task"], ending=ending)


def _status(row: Row) -> GroupStatus:
    return GroupStatus(
        state=GroupState(row["state"]),
        ending=GroupEnding(row["ending"]) if row["ending"] else None,
        final=bool(row["final"]),
    )


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a reservation is made of."""

    lane: Lane
    task: str
    slot: int
    seed: int
    sampling: Sampling
    group: int | None = None
    round_id: int | None = None
    round: str = ""
    route: str = ""
    member: str = ""
    pin: Version | None = None
