"""The ledger's rules on a real database, one at a time."""

from __future__ import annotations

import pytest

from actors.errors import FencedOff, LedgerError
from actors.replay.messages import DEFERRED, Batch, Fault, Lane, NothingToTake, NoWork, Phase, Reservation
from tests.actors.replay.ledger_tools import Start, step


def test_a_group_is_trained(start: Start) -> None:
    play = start().rl()
    group = play.group([True, False])
    batch = play.batch()
    assert [found.group for found in batch.groups] == [group]
    assert (batch.fresh_optimizer, batch.new_reference, batch.staleness) == (True, True, [0, 0])
    play.trained(batch)
    seen = play.figures()
    assert (seen.endings["trained"], seen.phase_steps, seen.train_success) == (1, 1, [0.5])
    assert seen.entropy == [pytest.approx(step().surprisal / step().response_tokens)]
    play.serving("0.1")
    play.group([True, False], "0.1")
    assert not play.batch().fresh_optimizer


def test_admission_bounds_what_is_in_flight(start: Start) -> None:
    play = start(max_staleness=1, groups_per_step=2).rl()
    works = [play.reserve() for _ in range(8)]
    assert len({work.group for work in works}) == 4
    assert play.ask() is None
    for work in works[:4]:
        play.commit(work, work.slot == 0)
    assert play.ask() is None, "ready groups count as well"
    batch = play.batch()
    assert play.ask() is None, "so do leased ones"
    play.trained(batch)
    assert isinstance(play.ask(), Reservation)


def test_train_lane_waits_for_a_sampler_and_for_the_stay_s_weights(start: Start) -> None:
    play = start(demos=1)
    play.demonstrate(1)
    play.phase(Phase.BC, steps=1)
    play.trained(play.batch())
    play.phase(Phase.RL)
    assert play.ask() is None
    play.serving("0.0")
    assert play.ask() is None
    play.serving("0.1")
    play.serving("0.0", "sampler/1")
    assert play.ask() is None, "the slowest sampler decides"
    play.serving("0.1", "sampler/1")
    assert isinstance(play.ask(), Reservation)


def test_equal_rewards_end_a_group(start: Start) -> None:
    play = start().rl()
    play.group([True, True])
    play.group([False, False])
    assert play.figures().endings["zero_variance"] == 2
    assert play.take() is None
    work, other = play.reserve(), play.reserve()
    play.commit(work, True, [step(), step(well_formed=False)])
    play.commit(other, True)
    assert play.figures().groups_ready == 1, "a malformed step of a success has reward 0"


def test_faults_are_retried_within_the_budget(start: Start) -> None:
    play = start(retries=1, group_size=3).rl()
    first, second, third = play.reserve(), play.reserve(), play.reserve()
    play.release(first)
    again = play.reserve()
    assert (again.group, again.slot) == (first.group, first.slot)
    assert again.token != first.token
    play.release(again)  # beyond the budget: the slot is lost, G_min = 2 can still be reached
    play.commit(second, True)
    play.commit(third, False)
    assert len(play.batch().groups[0].trajectories) == 2
    assert play.figures().faults == {"connection_lost": 2}


def test_too_many_faults_lose_the_group(start: Start) -> None:
    play = start(retries=0).rl()
    first, second = play.reserve(), play.reserve()
    play.release(first)
    assert play.figures().endings["lost"] == 1
    play.commit(second, True)  # came too late for its group, is kept all the same
    assert play.figures().episodes[Lane.TRAIN] == 1
    assert play.figures().successes_kept == 1


def test_tokens_fence(start: Start) -> None:
    play = start().rl()
    work = play.reserve()
    play.release(work)
    play.release(work)  # a repeat gets the first answer
    with pytest.raises(FencedOff, match=f"token {work.token} "):
        play.commit(work, True)
    work = play.reserve()
    play.commit(work, True)
    play.commit(work, True)
    with pytest.raises(FencedOff, match=f"token {work.token} "):
        play.release(work)
    with pytest.raises(FencedOff, match="token 999 "):
        play.release(Reservation(**{name: getattr(work, name) for name in work.__struct_fields__} | {"token": 999}))
    assert play.figures().episodes[Lane.TRAIN] == 1


def test_a_repeated_wish_gets_the_first_answer(start: Start) -> None:
    play = start().rl()
    first = play.ask("desktop/0", "same")
    assert play.ask("desktop/0", "same") == first
    batch_wish = "take-once"
    assert isinstance(first, Reservation)
    play.commit(first, True)
    later = play.ask("desktop/0", "same")
    assert isinstance(later, Reservation)
    assert later.token != first.token, "what is over is not handed out again"
    play.commit(later, False)
    batch = play.take(request_id=batch_wish)
    assert isinstance(batch, Batch)
    assert play.take(request_id=batch_wish) == batch
    play.trained(batch)
    play.trained(batch, "0.1")  # repeat
    assert play.figures().phase_steps == 1
    with pytest.raises(FencedOff, match="lease"):
        play.take(request_id=batch_wish)
    with pytest.raises(FencedOff, match="lease"):
        play.trained(batch, "0.2")


def test_stale_groups_end_at_take(start: Start) -> None:
    play = start(max_staleness=1, groups_per_step=1).rl()
    play.group([True, False], "0.0")
    play.learn("0.0")
    play.serving("0.1")
    play.group([True, False], "0.1")
    batch = play.batch()
    assert batch.staleness == [1, 1], "one step late is within S"
    play.trained(batch)
    play.serving("0.2")
    late = play.reserve(), play.reserve()
    play.trained(play.batch())
    for work, outcome in zip(late, (True, False), strict=True):
        play.commit(work, outcome, [step("0.1"), step("0.2")])
    assert play.take() is None
    assert play.figures().endings["stale"] == 1
    assert play.figures().staleness == {"0": 2, "1": 4}


def test_behaviour_cloning_and_pulse_samples(start: Start) -> None:
    play = start(demos=3)
    play.demonstrate(3)
    assert play.ask() is None, "enough demonstrations"
    play.phase(Phase.BC)
    first, again = play.batch(), play.batch()
    assert len(first.samples) == 4
    assert all(sample.well_formed for sample in first.samples)
    assert first.samples == again.samples, "what was given back is drawn again"
    assert not first.fresh_optimizer
    play.trained(again)
    assert len({sample.blob.digest for sample in again.samples[:3]}) == 3, "an epoch holds each step once"
    play.rl()
    play.group([True, False], "0.1")
    play.phase(Phase.PULSE, steps=1)
    pulse = play.batch()
    assert (len(pulse.samples), pulse.groups, pulse.fresh_optimizer, pulse.new_reference) == (4, [], True, False)
    assert len({sample.blob.digest for sample in pulse.samples}) == 2
    play.trained(pulse)
    play.rl()
    assert play.ask() is not None
    assert play.figures().stays == {"demo": 1, "bc": 1, "rl": 2, "pulse": 1}


def test_evaluation_takes_seats_that_training_leaves_and_delays_no_batch(start: Start) -> None:
    play = start(retries=1, max_staleness=0, groups_per_step=1, group_size=2, min_group_size=2).rl()
    play.open_eval("after_bc", "0.0", ["e0", "e1"])
    works = [play.reserve() for _ in range(3)]
    assert [work.lane for work in works] == [Lane.TRAIN, Lane.TRAIN, Lane.EVAL], "no group may open beside the first"
    for work, success in zip(works[:2], (True, False), strict=True):
        play.commit(work, success)
    batch = play.take()
    assert isinstance(batch, Batch), "the round is open and one of its episodes is out"
    assert play.reserve().lane == Lane.EVAL, "the learner is at work, and nothing may be played ahead"
    play.trained(batch)
    play.serving("0.1")
    play.commit(works[2], True)
    assert play.reserve().lane == Lane.TRAIN
    assert [group.task for group in batch.groups] == [works[0].task]


@pytest.mark.parametrize(("one_in", "turns"), [(0, []), (2, [1, 3, 5]), (8, [7, 15, 23])])
def test_a_round_takes_of_training_what_the_user_gives_it_and_else_nothing(
    start: Start, one_in: int, turns: list[int]
) -> None:
    play = start(max_staleness=3, groups_per_step=4, group_size=8, rollout_share=1 / one_in if one_in else 0.0).rl()
    play.open_eval("rl20", "0.0", ["e0", "e1", "e2"])
    lanes = [play.reserve().lane for _ in range(30)]
    assert [n for n, lane in enumerate(lanes) if lane == Lane.EVAL] == turns
    assert set(lanes[24:]) == {Lane.TRAIN}


def test_rounds_on_engines_of_one_version_are_played_while_rl_draws_nothing(start: Start) -> None:
    play = start(max_staleness=0, group_size=2, min_group_size=2, single_version=True, retries=0, rl_steps_in_all=1)
    play.open_eval("after_bc", "0.0", ["e0", "e1"])
    early = play.reserve()
    assert (early.lane, play.figures().rounds_wait) == (Lane.EVAL, False)
    play.rl(steps=1)
    assert play.figures().rounds_wait
    works = [play.reserve() for _ in range(2)]
    assert [work.lane for work in works] == [Lane.TRAIN, Lane.TRAIN]
    assert play.ask("desktop/idle") is None, "this seat stays idle: for the round engines would leave the policy"
    play.release(early, Fault(cause=DEFERRED, detail="RL goes on", culprit="sampler"))
    assert not play.figures().faults
    (said,) = play.events("episode_put_off")
    assert (said["task"], said["token"]) == ("e0", early.token)
    assert not play.events("episode_released")
    for work, success in zip(works, (True, False), strict=True):
        play.commit(work, success)
    batch = play.batch()
    assert play.ask("desktop/idle") is None, "the step is not made yet"
    play.trained(batch)
    play.serving("0.1")
    assert not play.figures().rounds_wait
    again = [play.reserve() for _ in range(2)]
    assert [(work.lane, work.task) for work in again] == [(Lane.EVAL, "e0"), (Lane.EVAL, "e1")], "nothing was lost"
    assert play.ask("desktop/idle") is None, "the stay has no step left to play for"
    play.open_eval("final", "0.1", ["e0"])
    play.commit(again[0], True)
    assert play.ask("desktop/idle") is None, "engines hold the older round's version until it is closed"
    play.commit(again[1], True)
    (seen, _) = play.figures().evals
    assert (seen.played, seen.faults, seen.closed) == (2, 0, True)
    last = play.reserve()
    assert (last.round, str(last.pin)) == ("final", "0.1")


def test_between_two_stays_in_rl_rounds_of_engines_of_one_version_go_on_waiting(start: Start) -> None:
    play = start(max_staleness=0, group_size=2, min_group_size=2, single_version=True, rl_steps_in_all=2)
    play.open_eval("after_bc", "0.0", ["e0"])
    play.rl(steps=1)
    play.learn()
    play.serving("0.1")
    assert play.figures().rounds_wait, "another stay may follow at once"
    assert play.ask("desktop/idle") is None
    play.phase(Phase.PULSE)
    assert not play.figures().rounds_wait
    assert play.reserve().lane == Lane.EVAL
    play.rl(steps=0)
    assert not play.figures().rounds_wait, "a stay without steps: RL is over"


def test_evaluation_enters_no_group(start: Start) -> None:
    play = start(retries=1, max_staleness=0, groups_per_step=1)
    play.open_eval("after_bc", "0.0", ["e0", "e1", "e2"], temperature=0.0)
    play.open_eval("after_bc", "0.0", ["e0", "e1", "e2"], temperature=0.0)
    works = [play.reserve() for _ in range(3)]
    assert [(work.lane, work.task, work.group, work.round) for work in works] == [
        (Lane.EVAL, f"e{n}", "", "after_bc") for n in range(3)
    ]
    assert {str(work.pin) for work in works} == {"0.0"}
    play.rl()
    assert play.reserve().lane == Lane.TRAIN
    play.commit(works[0], True)
    play.release(works[1])
    while (again := play.reserve()).lane == Lane.TRAIN:
        pass
    assert (again.task, again.seed) == ("e1", works[1].seed)
    play.release(again)
    with pytest.raises(LedgerError, match=r"sampled from \['0.1'\]"):
        play.commit(works[2], True, [step("0.1")])
    play.commit(works[2], False, feasible=False)
    (seen,) = play.figures().evals
    assert (seen.tasks, seen.played, seen.successes, seen.faults, seen.feasible, seen.closed) == (3, 2, 1, 1, 2, True)
    assert len(play.events("eval_round_closed")) == 1
    with pytest.raises(LedgerError, match="after_bc exists"):
        play.open_eval("after_bc", "0.0", ["e0"])


def test_a_round_of_several_episodes_sees_all_tasks_first_and_logs_its_summary_once(start: Start) -> None:
    play = start(retries=0)
    play.open_eval("after_bc", "0.0", ["a/held-out/0", "b/held-out/0"], episodes=3)
    with pytest.raises(LedgerError, match="after_bc exists"):
        play.open_eval("after_bc", "0.0", ["a/held-out/0", "b/held-out/0"], episodes=2)
    works = [play.reserve() for _ in range(6)]
    assert [work.task for work in works] == ["a/held-out/0", "b/held-out/0"] * 3
    assert len({work.seed for work in works}) == 6
    for work, success in zip(works[:5], (True, False, False, False, True), strict=True):
        play.commit(work, success)
    assert not play.events("eval_round_closed")
    play.release(works[5])
    (closed,) = play.events("eval_round_closed")
    (seen,) = play.figures().evals
    assert (seen.tasks, seen.episodes, seen.planned, seen.played, seen.faults, seen.successes) == (2, 3, 6, 5, 1, 2)
    assert (closed["episodes"], closed["success"]) == (3, pytest.approx(2 / 6))
    assert closed["low"] < 2 / 6 < closed["high"]
    assert closed["families"] == {"a": pytest.approx(2 / 3), "b": 0.0}
    assert closed["pass_at"] == {"1": pytest.approx(1 / 3), "2": pytest.approx(1 / 2), "3": 1.0}


def test_the_end_answers_final(start: Start) -> None:
    play = start().rl()
    play.open_eval("final", "0.0", ["e0"])
    play.phase(Phase.DONE)
    work = play.reserve()
    assert play.ask() is None, "a round is still open"
    play.commit(work, True)
    assert play.ask() == NoWork(final=True)
    assert play.take() == NothingToTake(final=True)
