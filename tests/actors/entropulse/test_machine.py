"""Which phase comes next, and which rounds are opened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.entropulse.decide import MOST_PINNED, OpenRound, Remain, SwitchPhase, decide
from actors.errors import LedgerError
from actors.replay.messages import EvalFigures, Lane, Phase, PhaseRef, Reservation
from actors.settings import DemosConfig
from runtime.messaging.message import Version
from tests.actors.entropulse.world import Busy, World, settings
from tests.actors.replay.ledger_tools import Play, demo_tasks_begun, step

BY_PLATEAU: dict[str, Any] = {
    "pulses": 1, "total_rl_steps": 12, "min_phase_steps": 4, "plateau_window": 4, "plateau_patience": 2
}  # fmt: skip


def test_rounds_on_engines_of_one_version_take_nothing_from_rl(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        settings(interval=2, pulses=1, rl_steps_per_phase=2, total_rl_steps=4),
        single_version=True,
        max_staleness=0,
    )
    world.run()
    lanes = [(left > 0, lane) for phase, left, lane in world.lanes if phase is Phase.RL]
    assert set(lanes) == {(True, Lane.TRAIN), (False, Lane.EVAL)}
    assert world.rounds == [("after_bc", "0.2"), ("rl2", "0.4"), ("after_pulse1", "0.6"), ("final", "0.8")]
    assert all(found.closed and found.played == 2 for found in world.play.figures().evals)


def test_a_round_that_found_no_room_in_its_stay_is_left_out(tmp_path: Path) -> None:
    world = World(tmp_path, settings(interval=2, pulses=1, rl_steps_per_phase=2, total_rl_steps=4))
    pulsed = msgspec.structs.replace(
        world.play.figures(), phase=PhaseRef(phase=Phase.RL, index=4), phase_limit=2, phase_steps=1,
        steps={"bc": 2, "rl": 3, "pulse": 2}, stays={"bc": 1, "rl": 2, "pulse": 1},
    )  # fmt: skip
    assert isinstance(decide(pulsed, world.config), Remain), "the weights of rl2 are gone"


def test_open_rounds_are_bounded_by_what_engines_can_pin(tmp_path: Path) -> None:
    world = World(tmp_path, settings(interval=1, total_rl_steps=6))
    figures = world.play.figures()
    rl = msgspec.structs.replace(
        figures, phase=PhaseRef(phase=Phase.RL, index=2), phase_limit=6, phase_steps=5, steps={"bc": 2, "rl": 5}
    )
    names = ["after_bc", "rl1", "rl2", "rl3"]
    opened = [
        EvalFigures(
            round=name, version=Version(lineage=0, step=n), temperature=1.0, tasks=2, played=0, successes=0,
            feasible=2, faults=0,
        )
        for n, name in enumerate(names)
    ]  # fmt: skip
    for count in range(5):
        decision = decide(msgspec.structs.replace(rl, evals=opened[:count]), world.config)
        assert isinstance(decision, OpenRound) == (count < MOST_PINNED - 1), "beside training the last place stays free"
    end = msgspec.structs.replace(
        rl, phase_steps=6, steps={"bc": 2, "rl": 6}, trained=Version(lineage=0, step=8), evals=opened,
        checkpointed=Version(lineage=0, step=8),
    )  # fmt: skip
    assert decide(end, world.config) == Remain("an open evaluation round to close")
    last = [opened[0], msgspec.structs.replace(opened[1], closed=True), *opened[2:]]
    assert decide(msgspec.structs.replace(end, evals=last), world.config) == OpenRound("final", 1.0, True)
    pulsed = msgspec.structs.replace(
        end, phase=PhaseRef(phase=Phase.PULSE, index=3), phase_limit=2, phase_steps=2, stays={"pulse": 1},
        steps={"bc": 2, "rl": 3, "pulse": 2}, trained=Version(lineage=0, step=7),
        checkpointed=Version(lineage=0, step=7),
    )  # fmt: skip
    on = decide(pulsed, world.config)
    assert isinstance(on, SwitchPhase), "RL does not wait for a round to close"
    assert (on.change.next.phase, on.change.evidence["rounds_left_out"]) == (Phase.RL, 1.0)
    room = msgspec.structs.replace(pulsed, evals=last)
    assert decide(room, world.config) == OpenRound("after_pulse1", 1.0, True)


def test_a_step_under_way_at_a_plateau_is_one_of_those_planned(tmp_path: Path) -> None:
    world = Busy(tmp_path, settings(**BY_PLATEAU))
    world.run()
    assert [cause for _, cause in world.causes] == [
        "demos_complete", "bc_complete", "plateau", "pulse_complete", "counted",
    ]  # fmt: skip
    assert world.late == 1, "decided while the learner stepped"
    assert world.play.figures().steps == {"bc": 2, "rl": 12, "pulse": 2}
    assert world.rounds[-1] == ("final", "0.16"), "of the last step's weights"


def test_a_run_without_signal_ends_on_the_weights_of_the_step_under_way(tmp_path: Path) -> None:
    world = Busy(tmp_path, settings(total_rl_steps=5))
    world.run_until(lambda: world.step is not None and world.play.figures().phase.phase is Phase.RL)
    world.config = settings(total_rl_steps=5, max_unused_groups=1)
    waste = world.play.figures().groups_wasted
    while world.play.figures().groups_wasted == waste:
        work = world.play.reserve()
        world.play.commit(work, False, [step(str(world.play.ledger.tx.trained))])
    world.supervise()
    assert world.causes[-1] == ("rl", "no_signal")
    assert decide(world.play.figures(), world.config) == Remain("the step under way")
    world.run()
    assert world.rounds[-1] == ("final", "0.3")
    assert world.play.figures().steps["rl"] == 1


FITTED = {"rise", "rise_upper", "noise", "entropy_ratio", "entropy_ratio_upper"}


def test_a_counted_switch_says_what_the_curves_showed(tmp_path: Path) -> None:
    world = World(
        tmp_path, settings(pulses=1, rl_steps_per_phase=6, total_rl_steps=7, plateau_window=4, min_phase_steps=7)
    )
    world.run()
    (pulse,) = [line for line in world.play.events("phase_changed") if line["phase"] == "pulse"]
    assert pulse["cause"] == "counted"
    assert pulse["evidence"]["steps"] == pulse["evidence"]["limit"] == 6.0
    assert pulse["evidence"].keys() >= FITTED


def test_no_demonstration_succeeds(tmp_path: Path) -> None:
    world = World(tmp_path, settings(demos=1))
    figures = msgspec.structs.replace(world.play.figures(), demo_attempts=4)
    with pytest.raises(LedgerError, match="nothing to learn from"):
        decide(figures, world.config)
    some = msgspec.structs.replace(figures, demos=1)
    decision = decide(some, settings(demos=2))
    assert isinstance(decision, Remain)
    exhausted = decide(msgspec.structs.replace(some, demo_attempts=8), settings(demos=2))
    assert isinstance(exhausted, SwitchPhase)
    assert exhausted.change.cause == "demos_exhausted"


def test_a_counted_stay_waits_for_its_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path, settings())
    while world.play.figures().phase_steps < 2:
        world.supervise()
        world.act()
    assert isinstance(decide(world.play.figures(), world.config), Remain)
    world.play.checkpointed("0.2")
    assert isinstance(decide(world.play.figures(), world.config), OpenRound)


@pytest.mark.parametrize("pulses", [0, 1])
def test_the_supervisor_may_be_killed_between_any_two_decisions(tmp_path: Path, pulses: int) -> None:
    # The machine has no state, so deciding twice from the same figures is what a restart does.
    world = World(tmp_path, settings(pulses=pulses, rl_steps_per_phase=1, total_rl_steps=2))
    for _ in range(200):
        first = decide(world.play.figures(), world.config)
        world.play.reopen()
        assert decide(world.play.figures(), world.config) == first
        if world.supervise():
            break
        world.act()
    assert world.causes[-1] == ("done", "counted")


# -- resampling by the fine-tuned policy


class Resampled(World):
    """Every second first attempt at a task succeeds, all the policy's do."""

    def __init__(self, folder: Path, rounds: int, bc_steps: int = 0, *, always: bool = False) -> None:
        plain, strata = {"count": 4, "resample_rounds": rounds}, {"attempts_per_task": 2, "resample_attempts": 1}
        demos = DemosConfig(**plain, **strata, resample_bc_steps=bc_steps)  # type: ignore[arg-type]
        super().__init__(folder, msgspec.structs.replace(settings(demos=4, total_rl_steps=1), demos=demos))
        self.always = always
        self.made: Counter[str] = Counter()
        more = {"demos": demos, "demo_members": {"": ["one", "two"]}, "demo_tasks": [f"d{n}" for n in range(9)]}
        folder = folder / "stratified"
        folder.mkdir()
        self.play = Play(folder, config=msgspec.structs.replace(self.play.settings, **more))

    def solves(self, work: Reservation) -> bool:
        if work.lane is not Lane.DEMO:
            return super().solves(work)
        self.made[work.member] += 1
        self.made[work.task] += 1
        return self.always or work.member == "policy" or self.made[work.task] == 1


@pytest.mark.parametrize(("rounds", "bc_steps"), [(1, 0), (2, 1)])
def test_cloning_resampling_cloning(tmp_path: Path, rounds: int, bc_steps: int) -> None:
    world = Resampled(tmp_path, rounds, bc_steps)
    world.run()
    again = [("demo", "resample"), ("bc", "resampled")] * rounds
    assert world.causes == [("bc", "demos_complete"), *again, ("rl", "bc_complete"), ("done", "counted")]
    sometimes = world.play.figures().demo_tasks["/sometimes"]
    assert world.made["policy"] == rounds * sometimes
    rows = world.play.do(demo_tasks_begun)
    assert sum(row.policy.tries for row in rows) == rounds * sometimes, "each of them once a round"
    assert world.play.figures().steps["bc"] == 2 + rounds * (bc_steps or 2)
    assert [name for name, _ in world.rounds] == ["after_bc", "final"], "evaluated once, after the last cloning"


def test_nothing_is_resampled_where_nothing_was_sometimes_solved(tmp_path: Path) -> None:
    world = Resampled(tmp_path, 1, always=True)
    world.run()
    assert [cause for _, cause in world.causes] == ["demos_complete", "bc_complete", "counted"]


def test_a_round_beside_training_is_not_opened_on_older_weights(tmp_path: Path) -> None:
    rl = msgspec.structs.replace(
        Play(tmp_path).figures(), phase=PhaseRef(phase=Phase.RL, index=2), phase_limit=6, phase_steps=1,
        steps={"bc": 2, "rl": 1}, trained=Version(lineage=0, step=3),
    )  # fmt: skip
    assert decide(rl, settings(total_rl_steps=6, interval=1)) == OpenRound("rl1", 1.0, False, least=3)
