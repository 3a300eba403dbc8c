"""Everybody who talks to the ledger, in any order, with kills in between.

Every `Play` call checks that the counts add up. What else must always hold is checked against a small model that
shares no code with the product.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from ledger_tools import Play, step

from actors.replay import episodes
from actors.replay.messages import Batch, Phase, Reservation
from runtime.errors import FencedOff
from runtime.message import Version

SEATS = st.sampled_from(["desktop/0", "desktop/1", "desktop/2", "desktop/3", "desktop/4"])


class LedgerMachine(RuleBasedStateMachine):
    """Rules are what messages say; invariants are the ledger's promises."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger"))
        self.out: dict[str, Reservation] = {}  # seat -> what it plays
        self.lost: list[Reservation] = []  # what somebody still plays although the ledger took it back
        self.committed: dict[int, bool] = {}  # token -> success, of what was answered
        self.faulted: set[int] = set()
        self.batch: Batch | None = None
        self.versions = [Version(lineage=0, step=0)]  # ever made
        self.parents: dict[int, Version | None] = {0: None}
        self.saved = [Version(lineage=0, step=0)]
        self.final: dict[int, str] = {}  # group -> ending, once it was final
        self.lives = 0

    @initialize(staleness=st.integers(0, 2), per_step=st.integers(1, 2), slots=st.integers(2, 3))
    def begin(self, staleness: int, per_step: int, slots: int) -> None:
        self.max_staleness = staleness
        self.play = Play(
            self.folder,
            max_staleness=staleness,
            groups_per_step=per_step,
            group_size=slots,
            group_min=2,
            retries=1,
            reservation_s=100.0,
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

    # -- seats

    @rule(seat=SEATS)
    def reserve(self, seat: str) -> None:
        if seat in self.out:
            self.faulted.add(self.out[seat].token)
            self.lost.append(self.out.pop(seat))
        found = self.play.ask(seat)
        if isinstance(found, Reservation):
            self.out[seat] = found
            assert found.token not in self.committed

    @rule(seat=SEATS, success=st.booleans(), clean=st.booleans(), data=st.data())
    def commit(self, seat: str, success: bool, clean: bool, data: st.DataObject) -> None:
        assume(seat in self.out)
        work = self.out.pop(seat)
        steps = [step(str(data.draw(st.sampled_from(self.versions[-4:])))) for _ in range(2)]
        steps[0] = step(str(steps[0].oldest), well_formed=clean)
        self.play.commit(work, success, steps)
        self.committed[work.token] = success
        self.play.commit(work, not success, [])  # a repeat changes nothing, whatever it says

    @rule(seat=SEATS)
    def release(self, seat: str) -> None:
        assume(seat in self.out)
        work = self.out.pop(seat)
        self.play.release(work)
        self.faulted.add(work.token)
        self.lost.append(work)

    @precondition(lambda self: self.lost)
    @rule(success=st.booleans())
    def commit_too_late(self, success: bool) -> None:
        try:
            self.play.commit(self.lost.pop(), success)
        except FencedOff:
            return
        raise AssertionError("a token was accepted after it was taken back")

    @rule()
    def time_passes(self) -> None:
        self.play.wall += 60.0
        self.play.do(episodes.expire)
        busy = {
            row["token"] for row in self.play.ledger.book.rows("SELECT token FROM reservations WHERE state = 'out'")
        }
        for seat, work in list(self.out.items()):
            if work.token not in busy:
                self.faulted.add(work.token)
                self.lost.append(self.out.pop(seat))

    # -- the learner

    @rule()
    def take(self) -> None:
        found = self.play.take()
        self.batch = found if isinstance(found, Batch) else None
        if self.batch is not None and self.batch.groups:
            assert len(self.batch.groups) == self.play.settings.rules.groups_per_step
            self.check_batch(self.batch)

    def check_batch(self, batch: Batch) -> None:
        ages = []
        for group in batch.groups:
            rewards = set()
            for trajectory in group.trajectories:
                assert self.committed[trajectory.token] == trajectory.success
                found = [self.age(one.oldest) for one in trajectory.steps if one.oldest is not None]
                assert None not in found, "weights that no longer exist"
                assert max(found) <= self.max_staleness  # type: ignore[type-var]
                ages.append(max(found))
                rewards |= {trajectory.success and one.well_formed for one in trajectory.steps}
            assert rewards == {True, False}
        assert batch.staleness == ages

    @precondition(lambda self: self.batch is not None)
    @rule()
    def trained_step(self) -> None:
        assert self.batch is not None
        self.play.trained(self.batch)
        self.versions.append(Version(lineage=self.trained.lineage, step=self.trained.step + 1))
        self.batch = None

    @rule()
    def checkpoint(self) -> None:
        self.play.checkpointed(str(self.trained))
        self.saved.append(self.trained)

    @rule()
    def resume(self) -> None:
        parent = self.saved[-1]
        new = Version(lineage=max(self.parents) + 1, step=parent.step)
        self.parents[new.lineage] = parent
        self.versions.append(new)
        self.play.resumed(str(new), str(parent))
        self.play.resumed(str(new), str(parent))
        self.batch = None

    # -- samplers and the supervisor

    @rule()
    def serve(self) -> None:
        self.play.serving(str(self.trained))

    @rule(phase=st.sampled_from([Phase.RL, Phase.PULSE]))
    def change_phase(self, phase: Phase) -> None:
        assume(self.play.ledger.book.stay().phase is not phase)
        self.play.phase(phase)

    # -- kills

    @rule()
    def kill_the_run(self) -> None:
        self.lives += 1
        self.play.reopen(incarnation=f"life {self.lives}")
        self.lost.extend(self.out.values())
        self.faulted |= {work.token for work in self.out.values()}
        self.out.clear()
        self.batch = None
        self.play.serving(str(self.trained))

    @rule()
    def kill_the_actor(self) -> None:
        """It comes back in the same run: what others hold stays theirs."""
        self.lives += 1
        self.play.reopen(incarnation=self.play.settings.incarnation)
        if not self.play.settings.incarnation:
            self.lost.extend(self.out.values())
            self.faulted |= {work.token for work in self.out.values()}
            self.out.clear()
            self.batch = None
            self.play.serving(str(self.trained))

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
    def endings_are_for_ever(self) -> None:
        if hasattr(self, "play"):
            rows = self.play.ledger.book.rows("SELECT id, ending FROM groups WHERE state = 'ended' AND final = 1")
            found = {row["id"]: row["ending"] for row in rows}
            assert self.final.items() <= found.items()
            self.final = found

    @invariant()
    def what_was_committed_is_kept(self) -> None:
        if hasattr(self, "play"):
            rows = self.play.ledger.book.rows("SELECT token, success FROM episodes")
            assert {row["token"]: bool(row["success"]) for row in rows} == self.committed
            assert not self.faulted & self.committed.keys()
