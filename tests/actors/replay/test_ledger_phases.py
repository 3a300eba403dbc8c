"""The ledger's phases: what a change of phase closes, and how many steps a stay and a phase may have."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.errors import LedgerError
from actors.replay.ledger import phases
from actors.replay.messages import Lane, NothingToTake, NoWork, Phase, Reservation, Serving
from actors.settings import DemosConfig
from tests.actors.replay.ledger_tools import Play, Start, settings, step


def test_phase_change_closes_groups_but_keeps_episodes(start: Start) -> None:
    play = start(max_staleness=3).rl()
    play.group([True, False])
    play.group([True, False])
    batch = play.batch()
    work = play.reserve()
    play.phase(Phase.PULSE)
    assert play.figures().endings["phase_closed"] == 2
    play.commit(work, True)
    play.trained(batch)
    seen = play.figures()
    assert (seen.endings["trained"], seen.steps, seen.phase_steps) == (1, {"rl": 1}, 0)


def test_phase_changes_name_what_they_leave(start: Start) -> None:
    from actors.replay.messages import PhaseRef, SetPhase

    play = start()
    rl = PhaseRef(phase=Phase.RL, index=1)
    change = SetPhase(expected=PhaseRef(phase=Phase.DEMO, index=0), next=rl, cause="x", evidence={})
    play.do(lambda tx: phases.set_phase(tx, change))
    play.do(lambda tx: phases.set_phase(tx, change))  # repeat
    assert play.figures().phase == rl
    wrong = SetPhase(expected=rl, next=PhaseRef(phase=Phase.DONE, index=3), cause="x", evidence={})
    with pytest.raises(LedgerError, match="comes segment 2"):
        play.do(lambda tx: phases.set_phase(tx, wrong))
    stale = SetPhase(
        expected=PhaseRef(phase=Phase.DEMO, index=0), next=PhaseRef(phase=Phase.BC, index=1), cause="x", evidence={}
    )
    with pytest.raises(LedgerError, match="the phase is rl/1"):
        play.do(lambda tx: phases.set_phase(tx, stale))


def test_step_limit_of_a_stay(start: Start) -> None:
    play = start(max_staleness=3)
    play.rl(steps=2)
    play.group([True, False])
    play.group([True, False])
    assert play.ask() is None, "no step is left for a third group"
    play.trained(play.batch())
    play.trained(play.batch())
    assert play.take() == NothingToTake(final=False, checkpoint=True)
    play.checkpointed("0.2")
    assert play.take() is None
    assert play.ask() is None


def test_a_total_over_all_stays_of_a_phase(start: Start) -> None:
    play = start(rl_steps_in_all=3).rl()
    play.group([True, False])
    under_way = play.batch()
    assert play.figures().phase_limit == 3
    play.rl()
    assert play.figures().phase_limit == 2, "the step under way is one of the three"
    play.trained(under_way)
    assert (play.figures().phase_steps, play.figures().phase_limit, play.figures().steps) == (0, 2, {"rl": 1})
    play.serving("0.1")
    for version in ("0.1", "0.2"):
        play.group([True, False], version)
        batch = play.batch()
        assert (batch.stay_step, batch.stay_limit) == (int(version[-1]) - 1, 2)
        play.trained(batch)
        play.serving(str(play.ledger.tx.trained))
    assert play.take() == NothingToTake(final=False, checkpoint=True)
    assert play.ask() is None
    play.rl(steps=5)
    assert play.figures().phase_limit == 0, "a stay's own limit is within the total"
    play.phase(Phase.PULSE, steps=2)
    assert play.figures().phase_limit == 2, "another phase has its own count"


def test_a_resume_that_says_another_total_has_it_from_there_on(start: Start) -> None:
    play = start(rl_steps_in_all=2).rl()
    for version in ("0.0", "0.1"):
        play.group([True, False], version)
        play.trained(play.batch())
        play.serving(str(play.ledger.tx.trained))
    assert (play.figures().phase_limit, play.ask()) == (2, None)
    play.reopen("later", rl_steps_in_all=3)
    play.serving("0.2")
    play.group([True, False], "0.2")
    assert (play.batch().stay_step, play.figures().phase_limit) == (2, 3)


def test_a_step_that_never_comes_about_leaves_the_total_as_it_was(start: Start) -> None:
    play = start(rl_steps_in_all=1).rl()
    play.group([True, False])
    play.batch()
    play.rl()
    assert (play.figures().phase_limit, play.figures().groups_leased) == (0, 1)
    assert play.take() is None, "its learner came back without it"
    assert (play.figures().phase_limit, play.figures().groups_leased) == (1, 0)
    play.learn()
    play.checkpointed("0.1")
    assert play.take() is None
    play.resumed("1.0", "0.0")
    assert (play.figures().phase_steps, play.figures().phase_limit) == (0, 1), "what a resume undid is made again"


def test_no_resume_from_steps_that_an_earlier_one_undid(start: Start) -> None:
    play = start(max_staleness=3).rl()
    for _ in range(2):
        play.group([True, False])
    play.checkpointed("0.0")
    play.trained(play.batch())
    play.trained(play.batch())
    play.resumed("1.0", "0.0")
    with pytest.raises(LedgerError, match=r"0\.2 was undone: the learner is at 1\.0"):
        play.resumed("2.2", "0.2")  # a save of before the resume that came to an end after it
    assert str(play.figures().trained) == "1.0"
    play.resumed("2.0", "0.0")


def test_no_round_opens_on_weights_that_a_resume_undid(start: Start) -> None:
    play = start(max_staleness=3).rl()
    play.group([True, False])
    play.checkpointed("0.0")
    play.open_eval("ahead", "0.1", ["a"])  # exported before the ledger heard of the step
    play.trained(play.batch())
    play.resumed("1.0", "0.0")
    with pytest.raises(LedgerError, match=r"late: a resume has abandoned weights 0\.1"):
        play.open_eval("late", "0.1", ["a"])
    play.open_eval("late", "1.0", ["a"])
    assert [(one.round, str(one.version)) for one in play.figures().evals] == [("late", "1.0")]
    play.serving("1.0")
    works = [play.ask(f"desktop/{number}") for number in range(30)]
    pins = [str(work.pin) for work in works if isinstance(work, Reservation) and work.lane == Lane.EVAL]
    assert pins == ["1.0"], "a round that was dropped hands out no task"


def test_a_step_made_again_is_counted_once(start: Start) -> None:
    play = start(demos=1)
    play.demonstrate(1)
    play.phase(Phase.BC, steps=1)
    play.trained(play.batch())
    play.checkpointed("0.1")
    play.rl()
    play.learn("0.1")
    assert play.figures().staleness == {"0": 2}
    assert [one["success"] for one in play.events("step_trained")] == [None, 0.5], "cloning plays nothing"
    play.resumed("1.1", "0.1")
    assert play.figures().staleness == {}, "an undone step is none"
    play.trained(play.batch())
    assert play.figures().staleness == {"0": 2}


def test_a_resume_back_into_an_earlier_stay_closes_what_the_later_one_had_open(start: Start) -> None:
    play = start(max_staleness=3)
    play.rl(steps=4)
    play.checkpointed("0.0")
    play.learn()
    play.rl(steps=7)
    play.group([True, False], "0.1")
    open_ = play.reserve()
    assert (play.figures().groups_ready, play.figures().groups_open) == (1, 1)
    play.resumed("1.0", "0.0")
    seen = play.figures()
    assert (str(seen.phase.phase), seen.phase.index, seen.phase_limit) == ("rl", 3, 4), "anew, with its own limit"
    assert seen.endings["phase_closed"] == 3, "one open and one ready, and the one whose step was undone"
    assert (seen.groups_open, seen.groups_ready, seen.groups_leased) == (0, 0, 0)
    play.commit(open_, True, [step("0.1")])
    assert play.figures().groups_open == 0
    assert play.ledger.tx.segment(3).root == 1


def test_what_was_wasted_is_counted_from_the_stay_s_begin(start: Start) -> None:
    play = start(groups_per_step=1).rl()
    play.group([True, True])
    assert play.ledger.tx.counter("wasted") == 1
    play.rl()
    assert play.ledger.tx.counter("wasted") == 0


def test_a_sampler_is_silent_from_its_limit_on_and_the_first_of_all_is_waited_for(start: Start) -> None:
    play = start(sampler_silent_s=100.0)
    play.serving("0.0", "sampler/0")
    play.wall += 40.0
    play.serving("0.0", "sampler/1")
    assert play.do(phases.forget_silent) == play.wall + 60.0
    play.wall += 59.9
    play.do(phases.forget_silent)
    assert len(play.ledger.tx.rows("SELECT * FROM samplers")) == 2
    play.wall = 1100.0
    assert play.do(phases.forget_silent) == 1140.0
    (said,) = play.events("sampler_silent")
    assert (said["sampler"], said["silent_s"]) == ("sampler/0", 100.0)
    play.wall = 2000.0
    assert play.do(phases.forget_silent) is None
    assert play.figures().served is None, "with nobody left nothing is admitted"


def test_a_sampler_that_is_gone_for_good_serves_nothing_and_the_others_do(start: Start) -> None:
    play = start(sampler_silent_s=100.0)
    play.serving("0.0", "sampler/0")
    play.serving("0.0", "sampler/1")
    play.do(lambda tx: phases.serving(tx, Serving(sampler="sampler/1", version=None)))
    assert [row["name"] for row in play.ledger.tx.rows("SELECT * FROM samplers")] == ["sampler/0"]
    assert not play.events("sampler_silent")


def test_a_run_that_is_closed_gives_nothing_out(start: Start) -> None:
    play = start().rl()
    play.group([True, False])
    play.do(phases.close_run)
    assert play.take() == NothingToTake(final=True)
    assert play.ask() == NoWork(final=True)


def test_a_stay_knows_what_was_played_before_it_and_its_limit(start: Start) -> None:
    play = start(max_staleness=3)
    play.rl(steps=3)
    for _ in range(2):
        play.group([True, False])
    play.reserve()
    play.phase(Phase.PULSE, steps=2)
    play.resumed("0.0", "0.0")  # the first lineage's own name: nothing to do
    rows = play.ledger.tx.rows("SELECT idx, root, phase, step_limit, seq_bound, start FROM stays ORDER BY idx")
    assert [tuple(row) for row in rows] == [
        (0, 0, "demo", None, 0, "0.0"), (1, 1, "rl", 3, 0, "0.0"), (2, 2, "pulse", 2, 4, "0.0"),
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["phase", "close"])
def test_what_demonstrations_came_to_is_said_once_when_they_end(tmp_path: Path, way: str) -> None:
    demos = DemosConfig(count=2, attempts_per_task=2, mixed_attempts=1)
    config = msgspec.structs.replace(settings(), demos=demos, demo_members={"d0": ["gui"]}, tokenizer="t")
    play = Play(tmp_path, config=config)
    if way == "phase":
        play.rl()
        assert len(play.events("demo_strata")) == 1
        play.phase(Phase.PULSE)
    for _ in range(2):
        play.do(phases.close_run)
        assert len(play.events("demo_strata")) == 1
