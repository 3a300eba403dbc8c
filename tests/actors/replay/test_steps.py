"""Steps and checkpoints: what counts, what is final, and what a resume may go on from."""

from __future__ import annotations

import pytest

from actors.errors import FencedOff, LedgerError
from actors.replay.ledger import training
from actors.replay.messages import Batch, Checkpointed, GetCheckpointDigests, Phase, Take, Trained
from runtime.messaging.message import Version
from tests.actors.replay.ledger_tools import Play, Start


def two_steps(play: Play) -> None:
    """0.1 and 0.2, of a group each."""
    play.rl()
    for _ in range(2):
        play.learn()


def final(play: Play) -> list[tuple[int, int]]:
    """Of each lease, and of each group that was trained on, whether it is final."""
    tx = play.ledger.tx
    leases = [row["final"] for row in tx.rows("SELECT final FROM leases ORDER BY id")]
    groups = [row["final"] for row in tx.rows("SELECT final FROM groups WHERE ending = 'trained' ORDER BY id")]
    return list(zip(leases, groups, strict=True))


def test_a_checkpoint_makes_its_own_steps_final_and_no_later_ones(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    assert final(play) == [(0, 0), (0, 0)]
    play.checkpointed("0.1")
    assert final(play) == [(1, 1), (0, 0)]
    play.checkpointed("0.2")
    assert final(play) == [(1, 1), (1, 1)]
    play.checkpointed("0.1")  # told late
    assert str(play.ledger.tx.checkpointed) == "0.2"
    play.checkpointed("0.3")  # told before its step
    assert str(play.ledger.tx.checkpointed) == "0.3"


def test_a_checkpoint_s_digest_is_kept_by_its_version(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    for version, digest in (("0.1", "aa"), ("0.2", "bb")):
        told = Checkpointed(version=Version.parse(version), location="x", digest=digest)
        play.do(lambda tx, told=told: training.checkpointed(tx, told))  # type: ignore[misc]
    asked = GetCheckpointDigests(versions=[Version(lineage=0, step=step) for step in (2, 3, 1)])
    assert training.digests(play.ledger.tx, asked).digests == ["bb", "", "aa"]


def test_a_checkpoint_of_steps_that_were_undone_is_refused(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    play.checkpointed("0.1")
    play.resumed("1.1", "0.1")
    with pytest.raises(LedgerError, match=r"a checkpoint of 0\.2 is of an abandoned lineage"):
        play.checkpointed("0.2")
    play.checkpointed("0.1")
    assert str(play.ledger.tx.checkpointed) == "1.1", "the same weights' newer name"


def test_a_resume_keeps_what_is_final_and_undoes_the_rest(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    play.checkpointed("0.1")
    play.group([True, False], "0.2")
    play.resumed("1.1", "0.1")
    seen = play.figures()
    assert (str(seen.trained), seen.endings["trained"], seen.groups_ready) == ("1.1", 1, 1)
    assert seen.endings["orphaned"] == 1, "drawn from weights that are gone"
    (said,) = play.events("lineage_started")
    assert (said["returned"], said["orphaned"]) == (1, 1)
    play.resumed("1.1", "0.1")  # a repeat
    with pytest.raises(LedgerError, match=r"lineage 1 began at 0\.1, not at 0\.0"):
        play.resumed("1.0", "0.0")
    for version, parent in (("2.2", "1.1"), ("2.1", "0.2"), ("2.0", "1.1")):
        with pytest.raises(LedgerError):
            play.resumed(version, parent)
    play.resumed("2.1", "1.1")
    assert str(play.ledger.tx.trained) == "2.1"


def test_a_lease_that_was_never_given_makes_no_step(start: Start) -> None:
    play = start().rl()
    msg = Trained(lease=99, version=Version(lineage=0, step=1), figures={})
    with pytest.raises(FencedOff, match="lease 99 was never handed out"):
        play.do(lambda tx: training.trained(tx, msg))


def test_a_step_tells_of_the_episodes_since_the_last_one(start: Start) -> None:
    play = start(max_staleness=5).rl()
    play.release(play.reserve())  # it ends no episode
    play.learn()
    play.group([True, True])
    assert play.ledger.tx.counter("wasted") == 1
    play.learn()
    assert play.ledger.tx.counter("wasted") == 0
    for _ in range(2):
        play.group([True, False])
    play.group([False, False])
    play.trained(play.batch())
    play.trained(play.batch())  # nothing was played since: its own groups tell
    rows = play.ledger.tx.rows("SELECT success FROM leases WHERE state = 'trained' ORDER BY id")
    assert [row["success"] for row in rows] == pytest.approx([0.5, 0.75, 2 / 6, 0.5])


def test_cloning_plays_nothing_and_tells_its_own_entropy(start: Start) -> None:
    play = start(demos=1)
    play.demonstrate(1)
    play.phase(Phase.BC, steps=1)
    play.trained(play.batch(), entropy=0.25)
    (row,) = play.ledger.tx.rows("SELECT success, entropy, seq_bound FROM leases")
    assert tuple(row) == (0.0, 0.25, 1)


@pytest.mark.parametrize("pulse", ["full", "trials"])
def test_a_stay_of_rl_goes_on_with_the_optimizer_of_the_one_before_it_where_pulses_are_tried(
    start: Start, pulse: str
) -> None:
    play = start(max_staleness=9, pulse=pulse)
    seen = []
    for stay in range(3):
        play.rl()
        for _ in range(2 if stay else 1):
            play.group([True, False])
            batch = play.batch()
            seen.append((batch.fresh_optimizer, batch.new_reference, batch.steps_joined))
            play.trained(batch)
        if stay == 1:
            play.phase(Phase.PULSE, steps=2)
            for _ in range(2):
                batch = play.batch()
                seen.append((batch.fresh_optimizer, batch.new_reference, batch.steps_joined))
                play.trained(batch)
    anew, on = (True, True, 0), (False, False, 0)
    second = [(False, False, 1), (False, False, 1)] if pulse == "trials" else [anew, on]
    assert seen == [anew, *second, (True, False, 0), on, anew, on]


def test_cloning_after_resampling_joins_the_cloning_before_it_and_a_resume_joins_nothing(start: Start) -> None:
    play = start(demos=1)
    play.demonstrate(1)
    seen = []

    def clone(steps: int) -> None:
        for _ in range(steps):
            batch = play.batch()
            seen.append((batch.phase.index, batch.stay_step, batch.steps_joined))
            play.trained(batch)

    play.phase(Phase.BC, steps=3)
    clone(3)
    play.phase(Phase.DEMO)
    play.resumed("1.2", "0.2")  # from a checkpoint before it: cloning goes on with another index
    clone(1)
    play.phase(Phase.DEMO)
    play.phase(Phase.BC, steps=3)
    clone(2)
    assert seen == [(1, 0, 0), (1, 1, 0), (1, 2, 0), (3, 2, 0), (5, 0, 3), (5, 1, 3)]


def test_a_checkpoint_that_nobody_told_of_makes_its_steps_final_when_a_resume_goes_on_from_it(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    play.resumed("1.1", "0.1")
    assert [row["final"] for row in play.ledger.tx.rows("SELECT final FROM leases ORDER BY id")] == [1, 0]
    assert play.ledger.tx.row("SELECT final FROM groups WHERE ending = 'trained'")[0] == 1


def test_after_a_resume_a_step_tells_of_what_was_played_since_it(start: Start) -> None:
    play = start(max_staleness=5).rl()
    play.release(play.reserve())
    two_steps(play)
    play.group([True, True])
    play.checkpointed("0.0")
    play.resumed("1.0", "0.0")
    play.serving("1.0")
    play.learn("1.0")
    (row,) = play.ledger.tx.rows("SELECT success FROM leases WHERE state = 'trained'")
    assert row["success"] == 0.5


def test_groups_that_a_stay_left_leased_end_with_it_when_their_lease_is_given_back(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    play.checkpointed("0.2")
    for version in ("0.1", "0.2"):
        play.group([True, False], version)
    play.batch()
    play.resumed("1.2", "0.2")  # all of them stand on weights that are still there
    assert (play.figures().groups_ready, play.figures().groups_leased) == (2, 0)
    (said,) = play.events("groups_returned")
    assert said["groups"] == 1
    play.batch()
    play.phase(Phase.PULSE)
    play.resumed("2.2", "1.2")
    assert (play.figures().groups_ready, play.figures().groups_leased) == (0, 0)
    assert play.figures().endings["phase_closed"] == 2
    assert len(play.events("groups_returned")) == 1, "none went back this time"


def test_a_leased_group_from_weights_that_a_resume_lost_is_orphaned(start: Start) -> None:
    play = start(max_staleness=3)
    two_steps(play)
    play.checkpointed("0.1")
    play.group([True, False], "0.2")
    play.batch()
    play.resumed("1.1", "0.1")
    assert (play.figures().endings["orphaned"], play.figures().groups_leased) == (1, 0)


def test_a_group_drawn_ahead_of_what_the_learner_has_told_goes_back_as_it_was(start: Start) -> None:
    play = start(max_staleness=3).rl()
    play.group([True, False], "0.1")  # its sampler has heard of the weights before the ledger has
    first, again = play.batch(), play.batch()
    assert [group.group for group in first.groups] == [group.group for group in again.groups]
    assert again.staleness == [0, 0]


def test_a_learner_that_asks_again_gives_back_its_own_lease_alone(start: Start) -> None:
    play = start(max_staleness=3).rl()
    for _ in range(2):
        play.group([True, False])

    def taken(learner: str, wish: str) -> Batch:
        msg = Take(learner=learner, request_id=wish, trained=play.ledger.tx.trained)
        found = play.do(lambda tx: training.take(tx, msg))
        assert isinstance(found, Batch)
        return found

    first, other = taken("learner/0", "a"), taken("learner/1", "b")
    again = taken("learner/0", "c")
    with pytest.raises(FencedOff):
        play.trained(first)
    assert [group.group for group in again.groups] == [group.group for group in first.groups]
    assert [said["groups"] for said in play.events("groups_returned")] == [1]
    play.trained(other)
    assert play.figures().endings["trained"] == 1
    assert play.figures().groups_leased == 1
