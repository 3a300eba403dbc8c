"""The life of an episode: which stages follow which, and what counts as success."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.episode import BUSY, EpisodeEnding, Stage, StageClock, ending_after, needs_verifier, outcome_of
from apis.tasks.verify.verify import TaskVerdict
from runtime.errors import ProtocolError


def test_only_a_verified_claim_is_a_success_on_a_feasible_task() -> None:
    for ending in EpisodeEnding:
        for verdict in (TaskVerdict(True, ""), TaskVerdict(False, "", 0.5), TaskVerdict(False, ""), None):
            outcome = outcome_of(ending, True, verdict)
            assert outcome.success == (ending is EpisodeEnding.CLAIMED and verdict is not None and verdict.success)
            assert outcome.score == (None if verdict is None else verdict.points)


def test_the_end_state_of_a_time_out_is_judged_where_it_is_scored() -> None:
    scored = {ending for ending in EpisodeEnding if needs_verifier(ending, True, scored=True)}
    assert scored == {EpisodeEnding.CLAIMED, EpisodeEnding.OUT_OF_STEPS}
    assert not any(needs_verifier(ending, False, scored=True) for ending in EpisodeEnding)
    assert not needs_verifier(EpisodeEnding.OUT_OF_STEPS, True)


def test_only_giving_up_is_a_success_on_an_infeasible_task() -> None:
    for ending in EpisodeEnding:
        outcome = outcome_of(ending, False, None)
        assert outcome.success == (ending is EpisodeEnding.GAVE_UP)
        assert not outcome.feasible
        assert not needs_verifier(ending, False)


@given(step=st.integers(0, 50), limit=st.integers(1, 50), claim=st.sampled_from([None, True, False]))
def test_an_episode_ends_by_exit_or_at_its_limit(step: int, limit: int, claim: bool | None) -> None:
    ending = ending_after(step, limit, claim)
    if claim is not None:
        assert ending is (EpisodeEnding.CLAIMED if claim else EpisodeEnding.GAVE_UP)
    else:
        assert (ending is EpisodeEnding.OUT_OF_STEPS) == (step + 1 >= limit)


@given(st.lists(st.tuples(st.sampled_from(list(Stage)), st.floats(0.0, 10.0)), max_size=60))
def test_stage_seconds_add_up_and_forbidden_moves_are_refused(moves: list[tuple[Stage, float]]) -> None:
    clock, now = StageClock(0.0), 0.0
    for stage, passed in moves:
        now += passed
        before = clock.stage
        try:
            clock.enter(stage, now)
        except ProtocolError:
            assert clock.stage is before
    total = sum(clock.seconds.values()) + (now - clock.since)
    assert total == pytest.approx(now)
    assert clock.busy_s(now) <= total + 1e-9


def test_a_frozen_desktop_never_acts_again() -> None:
    clock = StageClock(0.0)
    for stage in (Stage.LEASING, Stage.SETUP, Stage.OBSERVING, Stage.VERIFYING):
        clock.enter(stage, 1.0)
    with pytest.raises(ProtocolError, match="verifying to acting"):
        clock.enter(Stage.ACTING, 2.0)
    assert Stage.IDLE not in BUSY
