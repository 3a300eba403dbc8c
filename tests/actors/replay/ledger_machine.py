"""Everybody who talks to the ledger, in any order, with kills in between.

Every `Play` call checks that the counts add up. What else must always hold is checked against a small model that
shares no code with the product.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import Phase as Stage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actors.errors import FencedOff, LedgerError
from actors.replay.database.transaction import Transaction
from actors.replay.ledger import episodes, retention
from actors.replay.messages import Batch, Phase, Reservation, Reserve
from runtime.errors import DiskRefuses
from runtime.messaging.message import BlobRef, Version
from tests.actors.replay.ledger_tools import BROKEN, Play, series, step

MEMORY = Path("/dev/shm")  # hundreds of databases are made and thrown away, none of them is to survive a power cut
Draw = Callable[[Any], Any]
SEATS = [f"desktop/{number}" for number in range(5)]
# One rule with weights instead of many rules: a run that trains needs most of them, in about this mixture.
WEIGHTS = {
    "cycle": 6,
    "reserve": 5,
    "commit": 8,
    "take": 4,
    "train": 4,
    "serve": 4,
    "to_rl": 2,
    "release": 1,
    "break_task": 1,
    "ask_again": 1,
    "commit_too_late": 1,
    "time_passes": 1,
    "disk_refuses": 1,
    "payloads_go": 2,
    "cannot_read": 1,
    "checkpoint": 2,
    "resume": 1,
    "to_pulse": 1,
    "reset": 1,
    "kill_the_run": 1,
    "kill_the_actor": 1,
}


# No shrinking: a failing history is short enough to read, and making it shorter takes minutes.
FEW_LONG_RUNS = settings(
    max_examples=15, stateful_step_count=60, deadline=None, phases=[Stage.explicit, Stage.reuse, Stage.generate]
)


class LedgerMachine(RuleBasedStateMachine):
    """Rules are what messages say; invariants are the ledger's promises."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger", dir=MEMORY if MEMORY.is_dir() else None))
        self.out: dict[str, Reservation] = {}  # seat -> what it plays
        self.lost: list[Reservation] = []  # what somebody still plays although the ledger took it back
        self.committed: dict[int, bool] = {}  # token -> success, of what was answered
        self.faulted: set[int] = set()
        self.batch: Batch | None = None
        self.versions = [Version(lineage=0, step=0)]  # ever made
        self.parents: dict[int, Version | None] = {0: None}
        self.folder_saved = Version(lineage=0, step=0)  # what the newest checkpoint's folder is called
        self.saved = Version(lineage=0, step=0)  # and its weights by now: a resume renames them, not the folder
        self.final: dict[int, str] = {}  # group -> ending, once it was final
        self.unreadable: set[BlobRef] = set()
        self.left_out: set[BlobRef] = set()  # of cloning and pulses
        self.lives = 0

    @initialize(
        staleness=st.integers(0, 2),
        per_step=st.integers(1, 2),
        slots=st.integers(2, 3),
        total=st.sampled_from([None, None, 4]),
    )
    def begin(self, staleness: int, per_step: int, slots: int, total: int | None) -> None:
        self.max_staleness = staleness
        self.total = total
        self.play = Play(
            self.folder,
            max_staleness=staleness,
            groups_per_step=per_step,
            group_size=slots,
            min_group_size=2,
            retries=1,
            lease_s=100.0,
            rl_steps_in_all=total,
        )
        self.play.rl()

    def teardown(self) -> None:
        if hasattr(self, "play"):
            self.play.check()
            self.play.ledger.close()
        shutil.rmtree(self.folder)

    # -- the model

    @property
    def trained(self) -> Version:
        return self.versions[-1]

    def age(self, version: Version) -> int | None:
        """Steps from `version` to the learner's weights, None when those do not descend from it."""
        at = self.trained
        while at.lineage != version.lineage:
            parent = self.parents[at.lineage]
            if parent is None:
                return None
            at = parent
        return self.trained.step - version.step if version.step <= at.step else None

    @rule(what=st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)]), data=st.data())
    def happens(self, what: str, data: st.DataObject) -> None:
        getattr(self, what)(data.draw)

    def cycle(self, draw: Draw) -> None:
        """What a healthy run does all the time."""
        for what in ("serve", "to_rl", "reserve", "commit", "reserve", "commit", "take", "train"):
            getattr(self, what)(draw)

    # -- seats

    def reserve(self, _draw: Draw) -> None:
        for seat in SEATS:
            if seat not in self.out:
                self.ask(seat)

    def ask_again(self, draw: Draw) -> None:
        """A seat that died and came back asks although it holds work."""
        seat = draw(st.sampled_from(SEATS))
        if seat in self.out:
            self.take_away(seat)
            self.ask(seat)

    def ask(self, seat: str) -> None:
        found = self.play.ask(seat)
        if isinstance(found, Reservation):
            self.out[seat] = found
            assert found.token not in self.committed

    def take_away(self, seat: str) -> None:
        self.faulted.add(self.out[seat].token)
        self.lost.append(self.out.pop(seat))

    def commit(self, draw: Draw) -> None:
        for seat in list(self.out)[: draw(st.integers(1, 4))]:
            work = self.out.pop(seat)
            success = (work.slot == 0) != draw(st.sampled_from([False, False, False, True]))  # mostly of varying reward
            clean = draw(st.sampled_from([True, True, True, False]))
            versions = st.sampled_from([*self.versions[-3:], self.trained, self.trained])
            oldest, newest = sorted([draw(versions), draw(versions)])  # weights changed under the second answer
            steps = [step(str(draw(versions))), step(str(oldest), newest=str(newest), well_formed=clean)]
            self.play.commit(work, success, steps)
            self.committed[work.token] = success
            self.play.commit(work, not success, [])  # a repeat changes nothing, whatever it says

    def release(self, draw: Draw) -> None:
        if self.out:
            seat = draw(st.sampled_from(sorted(self.out)))
            self.play.release(self.out[seat])
            self.take_away(seat)

    def break_task(self, draw: Draw) -> None:
        """Episodes of one task break by the task's own fault, and it may come to rest."""
        tasks = sorted({work.task for work in self.out.values()})
        if tasks:
            task = draw(st.sampled_from(tasks))
            for seat in [seat for seat, work in self.out.items() if work.task == task]:
                self.play.release(self.out[seat], BROKEN)
                self.take_away(seat)

    def commit_too_late(self, draw: Draw) -> None:
        if self.lost:
            try:
                self.play.commit(self.lost.pop(), draw(st.booleans()))
            except FencedOff:
                return
            raise AssertionError("a token was accepted after it was taken back")

    def time_passes(self, _draw: Draw) -> None:
        self.play.wall += 60.0
        self.play.do(episodes.expire)
        rows = self.play.ledger.tx.rows("SELECT token FROM reservations WHERE state = 'out'")
        busy = {row["token"] for row in rows}
        for seat, work in list(self.out.items()):
            if work.token not in busy:
                self.take_away(seat)

    def disk_refuses(self, draw: Draw) -> None:
        """For longer than a reservation lasts nothing can be written; nothing half-done stays, and no seat pays."""
        connection = self.play.ledger._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        most = connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0]
        assert most == pages
        seat = draw(st.sampled_from(SEATS))
        wish = Reserve(seat=f"{seat} too", request_id=f"refused {self.play.wall}")

        def ask(tx: Transaction) -> object:
            return episodes.reserve_many(tx, [wish])

        with suppress(DiskRefuses):
            self.play.ledger.run([ask, lambda tx: tx.set_meta("ballast", "x" * 1_000_000)])
            raise AssertionError("there was room")
        self.play.wall += 500.0
        connection.execute("PRAGMA max_page_count = 1000000000")
        self.play.do(episodes.expire)
        rows = self.play.ledger.tx.rows("SELECT token FROM reservations WHERE state = 'out'")
        assert {row["token"] for row in rows} == {work.token for work in self.out.values()}

    def payloads_go(self, _draw: Draw) -> None:
        self.play.do(retention.collect)
        self.play.do(lambda tx: retention.sweep(tx, self.folder))

    # -- the learner

    def take(self, _draw: Draw) -> None:
        try:
            found = self.play.take()
        except LedgerError as error:  # nothing is left that this pulse could learn: a run ends with that reason
            if not self.unreadable or "can be read" not in str(error):
                raise
            self.batch = None
            return
        self.batch = found if isinstance(found, Batch) else None
        if self.batch is not None:
            steps = [step for group in self.batch.groups for one in group.trajectories for step in one.steps]
            for one in [*steps, *self.batch.samples]:
                held = "SELECT refs FROM blobs WHERE segment = ? AND at = ? AND digest = ?"
                blob = one.blob
                assert self.play.ledger.tx.number(held, blob.segment, blob.offset, blob.digest) > 0, "given up"
            # A lost group's successes stay in the reservoir: a pulse that draws them finds out by itself.
            assert not self.unreadable & {step.blob for step in steps}
            assert not self.left_out & {step.blob for step in self.batch.samples}
        if self.batch is not None and self.batch.groups:
            assert len(self.batch.groups) == self.play.settings.rules.groups_per_step
            self.check_batch(self.batch)

    def check_batch(self, batch: Batch) -> None:
        ages = []
        for group in batch.groups:
            rewards = set()
            for trajectory in group.trajectories:
                assert self.committed[trajectory.token] == trajectory.success
                tokens = [version for one in trajectory.steps for version in (one.oldest, one.newest)]
                found = [self.age(version) for version in tokens if version is not None]
                assert None not in found, "weights that no longer exist"
                assert max(found) <= self.max_staleness  # type: ignore[type-var]
                ages.append(max(found))
                rewards |= {trajectory.success and one.well_formed for one in trajectory.steps}
            assert rewards == {True, False}
        assert batch.staleness == (ages or [])

    def train(self, _draw: Draw) -> None:
        if self.batch is not None:
            self.play.trained(self.batch)
            self.versions.append(Version(lineage=self.trained.lineage, step=self.trained.step + 1))
            self.batch = None

    def cannot_read(self, draw: Draw) -> None:
        """Payloads of the batch are gone: some of its groups end, the others go back, and none comes again."""
        if self.batch is None:
            return
        batch, self.batch = self.batch, None
        steps = [step for group in batch.groups for one in group.trajectories for step in one.steps]
        blobs = [step.blob for step in [*steps, *batch.samples]]
        lost = draw(st.lists(st.sampled_from(blobs), min_size=1, max_size=3, unique_by=str))
        self.unreadable |= set(lost)
        self.left_out |= {step.blob for step in batch.samples} & set(lost)
        for _ in range(2):
            self.play.unreadable(batch, lost)  # a repeat changes nothing
        try:
            self.play.trained(batch)
        except FencedOff:
            return
        raise AssertionError("a step was made of what can't be read")

    def checkpoint(self, _draw: Draw) -> None:
        self.play.checkpointed(str(self.trained))
        self.folder_saved = self.saved = self.trained

    def resume(self, _draw: Draw) -> None:
        new = Version(lineage=max(self.parents) + 1, step=self.saved.step)
        self.parents[new.lineage] = self.saved
        self.versions.append(new)
        self.saved = new
        self.play.resumed(str(new), str(self.folder_saved))
        self.play.resumed(str(new), str(self.folder_saved))
        self.batch = None

    # -- samplers and the supervisor

    def serve(self, _draw: Draw) -> None:
        self.play.serving(str(self.trained))

    def to_rl(self, _draw: Draw) -> None:
        if self.play.ledger.tx.segment().phase is not Phase.RL:
            self.play.phase(Phase.RL)

    def to_pulse(self, draw: Draw) -> None:
        if self.play.ledger.tx.segment().phase is not Phase.PULSE and draw(st.booleans()):
            self.play.phase(Phase.PULSE)

    def reset(self, _draw: Draw) -> None:
        """Another stay in RL, whatever the learner is at."""
        if self.play.ledger.tx.segment().phase is Phase.RL:
            self.play.phase(Phase.RL)

    # -- kills

    def kill_the_run(self, _draw: Draw) -> None:
        self.lives += 1
        self.play.reopen(incarnation=f"life {self.lives}")
        for seat in list(self.out):
            self.take_away(seat)
        self.batch = None

    def kill_the_actor(self, draw: Draw) -> None:
        """It comes back in the same run: what others hold stays theirs."""
        if self.lives == 0:
            self.kill_the_run(draw)
        self.play.reopen(incarnation=self.play.settings.incarnation)

    # -- promises

    @invariant()
    def admission_holds(self) -> None:
        if hasattr(self, "play"):
            seen = self.play.figures()
            alive = seen.groups_open + seen.groups_ready + seen.groups_leased
            # A resume may bring groups of several steps back to life at once; nothing opens until they are gone.
            if len(self.parents) == 1:
                assert alive <= (self.max_staleness + 1) * self.play.settings.rules.groups_per_step

    @invariant()
    def no_step_beyond_the_total(self) -> None:
        if hasattr(self, "play") and self.total is not None:
            assert self.play.figures().steps.get("rl", 0) <= self.total

    @invariant()
    def endings_are_for_ever(self) -> None:
        if hasattr(self, "play"):
            rows = self.play.ledger.tx.rows("SELECT id, ending FROM groups WHERE state = 'ended' AND final = 1")
            found = {row["id"]: row["ending"] for row in rows}
            assert self.final.items() <= found.items()
            self.final = found

    @invariant()
    def every_step_that_stands_has_its_evidence(self) -> None:
        if hasattr(self, "play"):
            steps = self.play.figures().steps.get("rl", 0)
            shown = series(self.play.ledger.tx)
            assert [one.rl_step for one in shown] == list(range(1, steps + 1))
            assert all(min(one.wasted.values()) >= 0 and 0 <= one.coverage <= 1 for one in shown)

    @invariant()
    def what_was_committed_is_kept(self) -> None:
        if hasattr(self, "play"):
            rows = self.play.ledger.tx.rows("SELECT token, success FROM episodes")
            assert {row["token"]: bool(row["success"]) for row in rows} == self.committed
            assert not self.faulted & self.committed.keys()
