"""Which kind of task a group is of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from actors.replay.config import LedgerSettings
from actors.replay.ledger import task_choice
from actors.replay.ledger.task_choice import LEAST, KindTally
from tests.actors.replay.ledger_tools import Play, settings, step

EASY, EVEN = [f"easy{n}" for n in range(12)], [f"even{n}" for n in range(4)]


SURE, UNSURE = 0.3, 2.1  # nats of an answer


def with_kinds(**rules: int) -> LedgerSettings:
    kinds = ["easy"] * len(EASY) + ["even"] * len(EVEN)
    return msgspec.structs.replace(settings(max_staleness=100, **rules), train_tasks=EASY + EVEN, train_kinds=kinds)


def play_group(play: Play) -> str:
    """One group: easy tasks are always solved, with sure answers, the others half the time. Its task."""
    works = [play.reserve(), play.reserve()]
    easy = works[0].task in EASY
    for work, won in zip(works, (True, easy), strict=True):
        play.commit(work, won, [msgspec.structs.replace(step(), surprisal=SURE if easy else UNSURE)])
    if works[0].task in EVEN:
        play.trained(play.batch())
    return works[0].task


def test_the_first_of_an_order_comes_in_proportion() -> None:
    """Of 4,000 draws, within five standard deviations; and every order names each kind once."""
    likely, draws = {"a": 1.0, "b": 2.0, "c": 5.0}, 4000
    orders = [task_choice.order(likely, seed) for seed in range(draws)]
    assert all(sorted(one) == ["a", "b", "c"] for one in orders)
    first = Counter(one[0] for one in orders)
    for kind, weight in likely.items():
        share = weight / 8
        assert abs(first[kind] - share * draws) < 5 * (share * (1 - share) * draws) ** 0.5


@pytest.mark.slow
def test_groups_go_where_success_is_mixed_and_mastered_tasks_are_seen_again(tmp_path: Path) -> None:
    play = Play(tmp_path, with_kinds()).rl()
    played = Counter(play_group(play)[:4] for _ in range(60))
    assert played["even"] > played["easy"] >= 5, "a quarter of the tasks gets most groups, the others some"
    shares = play.events("rl_evidence")[-1]["success_by_kind"]
    assert shares["easy"] > 0.9
    assert shares["even"] == pytest.approx(0.5, abs=0.02)


def test_without_kinds_tasks_come_in_epochs(tmp_path: Path) -> None:
    play = Play(tmp_path, msgspec.structs.replace(with_kinds(), train_kinds=[])).rl()
    epoch = [play_group(play) for _ in range(16)]
    assert sorted(epoch) == sorted(EASY + EVEN)


def test_a_restart_changes_no_choice(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = Play(tmp_path / "a", with_kinds()), Play(tmp_path / "b", with_kinds())
    one.rl()
    other.rl()
    for _ in range(12):
        other.reopen()
        other.serving(str(other.ledger.tx.trained))
        assert play_group(one) == play_group(other)


def test_an_episode_counts_by_how_little_its_kind_was_favoured() -> None:
    """Kinds of 12 and 4 tasks; after 40 wins in 40 the first is drawn at the least share, the other in full."""
    before = {"easy": KindTally(40, 40), "even": KindTally(20, 40)}
    assert LEAST == 0.15
    drawn = {"easy": KindTally(9, 9, 90, 9.0), "even": KindTally(10, 20, 200, 60.0)}  # 12 * 0.15 to 4 * 1, as 9 to 20
    found = task_choice.of_mixture(drawn, before)
    assert found is not None
    assert found.success == pytest.approx((12 * 1 + 4 * 0.5) / 16)
    assert found.entropy == pytest.approx((12 * 0.1 + 4 * 0.3) / 16)
    alone = task_choice.of_mixture({"even": KindTally(1, 4, 8, 4.0)}, before)
    assert alone == (0.25, 0.5)
    assert task_choice.of_mixture({}, before) is None


def test_entropy_is_of_all_episodes_and_not_of_the_trained_ones_alone(tmp_path: Path) -> None:
    """Two episodes of a group that teaches nothing, and two of one that is trained on: pulses begin by this curve."""
    play = Play(tmp_path).rl()
    for outcomes, surprisal in (((True, True), SURE), ((True, False), UNSURE)):
        for won in outcomes:
            play.commit(play.reserve(), won, [msgspec.structs.replace(step(), surprisal=surprisal)])
    play.trained(play.batch(), entropy=9.0)
    mean = (SURE + UNSURE) / 2 / step().response_tokens
    assert play.figures().entropy == [pytest.approx(mean)]
    assert play.events("rl_evidence")[-1]["sampled_entropy_nats"] == pytest.approx(mean)


def test_a_step_before_which_no_episode_ended_is_in_neither_curve(tmp_path: Path) -> None:
    """Two groups are ready at once: the second step's own episodes are no sample of all that were played."""
    play = Play(tmp_path, max_staleness=1).rl()
    for _ in range(2):
        for won in (True, False):
            play.commit(play.reserve(), won, [msgspec.structs.replace(step(), surprisal=SURE)])
    play.trained(play.batch(), entropy=9.0)
    play.trained(play.batch(), entropy=9.0)
    seen = play.figures()
    assert (seen.phase_steps, seen.train_success) == (2, [0.5])
    assert seen.entropy == [pytest.approx(SURE / step().response_tokens)]
    assert play.events("rl_evidence")[-1]["sampled_entropy_nats"] is None
