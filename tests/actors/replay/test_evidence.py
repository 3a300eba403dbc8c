"""What is kept of every RL step, and the formulas behind it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from actors.desktop.recorder import called
from actors.replay.ledger.figures import distinct_share, diversity, groups_shown
from actors.replay.messages import Batch, Phase, StepEvidence, StepPayload, StepRef
from apis.actions.gui import Click
from apis.functions.declaration import Action, Tool
from tests.actors.replay.ledger_tools import Play, payload, series, step


def did(line: str, function: str = "click", version: str = "0.0") -> StepRef:
    """A step of a known action; `function` "" refuses it."""
    return msgspec.structs.replace(step(version, well_formed=bool(function)), function=function, line=line)


# -- formulas


def test_diversity_by_hand() -> None:
    first = [[did("a"), did("b", "type")], [did("a"), did("b", "type")], [did("a"), did("c", "type")], [did("x", "")]]
    second = [[did("d")], [did("d")]]
    found = diversity([first, second])
    assert (found["parsed"], found["refused"]) == (8, 1)
    assert found["action_entropy_nats"] == pytest.approx(5 / 8 * math.log(8 / 5) + 3 / 8 * math.log(8 / 3))
    # Within the first group a 3, b 2, c 1 of 6, and nothing to choose in the second.
    assert found["group_call_entropy_nats"] == pytest.approx(6 / 8 * sum(n / 6 * math.log(6 / n) for n in (3, 2, 1)))
    assert found["distinct_trajectories"] == pytest.approx((3 / 4 + 1 / 2) / 2)


def test_groups_by_hand() -> None:
    """Four groups of eight with 0, 2, 8 and 8 successes, and one of four that can't say what one of eight would."""
    tallies = [("a/x", (0, 8)), ("a/y", (2, 8)), ("a/z", (8, 8)), ("b/x", (8, 8)), ("c/x", (0, 4))]
    assert groups_shown(tallies) == {
        "pass_at_1": 18 / 36,
        "pass_at_8": 3 / 4,
        "equal_groups": 4 / 5,
        "all_right": {"a": 1 / 3, "b": 1.0, "c": 0.0},
        "all_wrong": {"a": 1 / 3, "b": 0.0, "c": 1.0},
    }
    nothing = {"pass_at_1": None, "pass_at_8": None, "equal_groups": None, "all_right": {}, "all_wrong": {}}
    assert groups_shown([]) == nothing


def test_refused_answers_tell_trajectories_apart() -> None:
    assert distinct_share([[did("x", "")], [did("y", "")]]) == 1.0
    assert distinct_share([[did("x")], [did("x"), did("x")]]) == 1.0
    assert distinct_share([]) == 0.0
    assert not any(diversity([]).values())


def test_an_action_is_named_by_what_it_calls() -> None:
    def of(action: Action | None, response: str) -> StepPayload:
        return payload(response=response, action=None if action is None else msgspec.json.encode(action).decode())

    here, same, there = (called(of(Click(coordinates=at), "")) for at in ("e1", "e1", "e2"))
    assert here == same
    assert here[0] == there[0] == "click"
    assert here[1] != there[1]
    tool = Tool(owner="CalcTools", name="set_cell", arguments={"cell": "A1"})
    assert called(of(tool, "x"))[0] == "CalcTools.set_cell"
    assert called(of(None, "x"))[0] == called(of(None, "y"))[0] == ""
    assert called(of(None, "x"))[1] != called(of(None, "y"))[1]


# -- in the ledger


def play_group(play: Play, outcomes: list[bool], version: str = "0.0") -> None:
    for n, outcome in enumerate(outcomes):
        play.commit(play.reserve(), outcome, [did("a", version=version), did(f"b{n}", "type", version=version)])


def learn(play: Play) -> StepEvidence:
    """One optimizer step; its evidence."""
    batch = play.take()
    assert isinstance(batch, Batch)
    play.trained(batch)
    play.serving(str(play.ledger.tx.trained))
    found = play.figures().evidence
    assert found is not None
    return found


def test_evidence_of_a_step(tmp_path: Path) -> None:
    play = Play(tmp_path).rl()
    assert play.figures().evidence is None
    play_group(play, [False, False])
    play.wall += 60.0
    play_group(play, [True, False])
    found = learn(play)
    assert (found.stay, found.stay_step, found.rl_step) == (1, 1, 1)
    assert (found.success, found.pass_at_1, found.pass_at_8, found.equal_groups) == (0.25, 0.25, None, 0.5)
    failed, mixed = (row["task"] for row in play.ledger.tx.rows("SELECT task FROM groups ORDER BY id"))
    assert (found.all_right, found.all_wrong) == ({mixed: 0.0, failed: 0.0}, {mixed: 0.0, failed: 1.0})
    assert found.action_entropy_nats == pytest.approx(math.log(2))
    assert found.group_call_entropy_nats == pytest.approx(1.5 * math.log(2))
    assert (found.parsed, found.refused, found.distinct_trajectories) == (4, 0, 1.0)
    assert found.coverage == pytest.approx(1 / 3)
    assert found.wasted["zero_variance"] == 1
    assert sum(found.wasted.values()) == 1
    assert found.staleness == {"0": 2}
    assert (found.episodes_per_min, found.elapsed_s) == pytest.approx((4.0, 60.0))
    (logged,) = play.events("rl_evidence")
    assert logged == {name: getattr(found, name) for name in found.__struct_fields__} | {"version": "0.1"}


def test_a_pulse_is_in_no_rate_and_counting_goes_on_after_it(tmp_path: Path) -> None:
    play = Play(tmp_path).rl()
    play_group(play, [True, False])
    learn(play)
    play.phase(Phase.PULSE, steps=1)
    play.trained(play.batch())
    assert len(series(play.ledger.tx)) == 1, "cross-entropy steps have none"
    play.wall += 1000.0
    play.rl()
    play.wall += 10.0
    play_group(play, [True, False], "0.2")
    found = learn(play)
    assert (found.stay_step, found.rl_step, found.elapsed_s) == (1, 2, pytest.approx(10.0))


def test_a_resume_goes_on_counting(tmp_path: Path) -> None:
    play = Play(tmp_path, incarnation="one").rl()
    for n in range(2):
        play_group(play, [True, False], f"0.{n}")
        if n == 1:
            play_group(play, [True, True], "0.1")  # teaches nothing
        learn(play)
        if n == 0:
            play.checkpointed("0.1")
    assert [one.rl_step for one in series(play.ledger.tx)] == [1, 2]
    play.wall += 5000.0
    play.reopen("two")
    play.resumed("1.1", "0.1")
    standing = play.figures().evidence
    assert standing is not None
    assert standing.rl_step == 1, "the second step was undone with its weights"
    play.serving("1.1")
    play.wall += 20.0
    play_group(play, [True, False], "1.1")
    found = learn(play)
    assert (found.rl_step, found.stay_step) == (2, 2)
    assert sum(found.wasted.values()) > 0, "of the step that was undone, too"
    assert (found.elapsed_s, found.coverage) == (pytest.approx(20.0), 1.0)
    assert [str(one.version) for one in series(play.ledger.tx)] == ["0.1", "1.2"]


def test_only_groups_of_equal_rewards_are_a_want_of_signal(tmp_path: Path) -> None:
    play = Play(tmp_path, groups_per_step=1).rl()
    play_group(play, [True, False])
    learn(play)
    play_group(play, [True, False], "0.1")
    play_group(play, [True, True], "0.1")
    assert play.figures().groups_wasted == 1
    play.resumed("1.0", "0.0")
    assert play.figures().endings["orphaned"] > 0
    assert play.figures().groups_wasted == 1, "what a resume takes says nothing of the policy"


def test_coverage_counts_tasks_once_and_only_of_the_train_lane(tmp_path: Path) -> None:
    play = Play(tmp_path, max_staleness=50, demos=2)
    play.demonstrate(2)
    play.rl()
    for _ in range(9):
        play_group(play, [True, False])
    found = learn(play)
    assert found.coverage == 1.0
