"""What comes late, out of order, or from other weights than it says."""

from __future__ import annotations

import msgspec
import pytest

from actors.errors import FencedOff, LedgerError
from actors.replay.ledger import episodes
from actors.replay.messages import Lane, Phase
from actors.settings import DemosConfig
from tests.actors.replay.ledger_tools import Start, settings, step


@pytest.mark.parametrize(
    ("oldest", "newest"),
    [("0.0", ""), ("0.2", ""), ("0.0", "0.1"), ("0.1", "0.2"), ("1.1", "")],
)
def test_an_evaluation_drawn_from_other_weights_than_its_pin_is_refused(start: Start, oldest: str, newest: str) -> None:
    play = start(max_staleness=3).rl()
    for made in ("0.1", "0.2"):
        play.group([True, False])
        play.trained(play.batch(), made)
    play.open_eval("rl1", "0.1", ["e0"])
    work = next(found for found in iter(play.reserve, None) if found.lane is Lane.EVAL)
    with pytest.raises(LedgerError, match=r"pinned to 0\.1 was sampled from"):
        play.commit(work, True, [step("0.1"), step(oldest, newest=newest)])
    with pytest.raises(LedgerError, match="names the weights of every step"):
        play.commit(work, True, [step(None)])
    play.commit(work, True, [step("0.1")])  # what was refused ended nothing


def test_an_episode_that_ends_after_its_phase_is_kept_and_taught_from_no_more(start: Start) -> None:
    play = start(sft_batch_size=4).rl()
    play.group([True, False])
    late = play.reserve(), play.reserve()
    play.trained(play.batch())
    play.phase(Phase.PULSE, steps=1)
    before = play.figures()
    for work in late:
        play.commit(work, True, [step("0.0"), step("0.0")])
    after = play.figures()
    assert after.episodes["train"] == before.episodes["train"] + 2, "kept"
    assert (after.groups_open, after.groups_ready, after.endings) == (0, 0, before.endings), "its group ended before it"
    kept = play.ledger.tx.number("SELECT COUNT(*) FROM episodes WHERE place IS NOT NULL AND lane = 'train'")
    assert kept == 1, "a pulse may be drawing from what it left"
    assert len({sample.blob.digest for sample in play.batch().samples}) == 2


@pytest.mark.parametrize("made", ["0.0", "0.1", "1.3"])
def test_a_step_that_does_not_follow_the_newest_is_refused(start: Start, made: str) -> None:
    play = start(max_staleness=3).rl()
    for version in ("0.1", "0.2"):
        play.group([True, False])
        play.trained(play.batch(), version)
    play.group([True, False])
    batch = play.batch()
    with pytest.raises(LedgerError, match=rf"made {made}, which does not follow 0\.2"):
        play.trained(batch, made)
    assert str(play.ledger.tx.trained) == "0.2"
    play.trained(batch, "0.3")
    assert play.figures().endings["trained"] == 3


def test_what_a_seat_gives_up_or_says_nothing_of_is_a_try_and_what_a_killed_run_held_is_none(start: Start) -> None:
    play = start(retries=0, lease_s=30.0).rl()
    first = play.reserve("desktop/0")
    second = play.reserve("desktop/0")
    assert play.figures().endings["lost"] == 1, "given up"
    assert second.group != first.group
    with pytest.raises(FencedOff):
        play.commit(first, True)
    assert play.do(episodes.expire) == play.wall + 30.0
    play.wall += 30.0
    play.do(episodes.expire)
    assert play.figures().endings["lost"] == 2, "overdue from its very end on"
    third = play.reserve("desktop/0")
    play.reopen("another life")
    assert play.figures().endings["lost"] == 2
    assert play.figures().faults == {"abandoned": 1, "seat_silent": 1, "run_killed": 1}
    play.serving("0.0")
    again = play.reserve("desktop/0")
    assert (again.group, again.slot) == (third.group, third.slot)


def test_attempts_at_demonstrations_are_counted_while_they_are_out(start: Start) -> None:
    demos = DemosConfig(count=2, attempts_per_demo=1.0)
    play = start(config=msgspec.structs.replace(settings(), demos=demos))
    first, _ = play.reserve(), play.reserve()
    play.commit(first, False, [step(None)])
    assert play.ask() is None, "the second and last is out"


def test_a_learner_of_another_lineage_takes_nothing(start: Start) -> None:
    play = start().rl()
    play.group([True, False])
    with pytest.raises(LedgerError, match=r"the learner is at 1\.0, the ledger knows 0\.0: resume before taking"):
        play.take("1.0")
    assert play.figures().groups_ready == 1
