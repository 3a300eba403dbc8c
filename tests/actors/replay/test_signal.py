"""Which groups the ledger hands to a learner that rewards trajectories, not steps."""

from pathlib import Path

import msgspec
import pytest

from tests.actors.replay.ledger_tools import Play, settings, step


@pytest.mark.parametrize(("advantage", "ready"), [("step", 1), ("trajectory", 0)])
def test_malformed_steps_alone_are_a_signal_for_step_rewards_only(tmp_path: Path, advantage: str, ready: int) -> None:
    play = Play(tmp_path, msgspec.structs.replace(settings(), advantage=advantage))
    play.rl()
    first, second = play.reserve(), play.reserve()
    play.commit(first, True, [step(), step(well_formed=False)])
    play.commit(second, True)
    figures = play.figures()
    assert figures.groups_ready == ready
    assert figures.endings.get("zero_variance", 0) == 1 - ready


@pytest.mark.parametrize("advantage", ["step", "trajectory"])
def test_a_success_beside_a_failure_is_a_signal_for_both(tmp_path: Path, advantage: str) -> None:
    play = Play(tmp_path, msgspec.structs.replace(settings(), advantage=advantage))
    play.rl()
    play.group([True, False])
    batch = play.batch()
    assert [group.group for group in batch.groups]
    assert (batch.stay_step, batch.stay_limit) == (0, None)


@pytest.mark.parametrize("advantage", ["step", "trajectory"])
def test_an_action_that_broke_its_desktop_at_once_is_a_signal(tmp_path: Path, advantage: str) -> None:
    play = Play(tmp_path, msgspec.structs.replace(settings(group_size=8, min_group_size=4), advantage=advantage))
    play.rl()
    killer, *others = [play.reserve() for _ in range(8)]
    for work in others:
        play.commit(work, True)
    fatal = step()
    play.commit(killer, False, [fatal])  # the seat stores the step that ended the desktop
    (group,) = play.batch().groups
    assert [one.blob for one in group.trajectories[0].steps] == [fatal.blob]
    assert [one.success for one in group.trajectories] == [False, *[True] * 7]
