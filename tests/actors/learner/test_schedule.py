"""The learning rate, and that a resume in any phase goes on with it."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.learner.batches import learning_rate
from actors.learner.config import LearnerConfig, RlConfig, Schedule, SftConfig
from actors.replay.messages import Batch, Phase
from tests.actors.replay.ledger_tools import Play, settings


def of_rl(lr_floor: float = 0.1, **rl: Any) -> LearnerConfig:
    return LearnerConfig(rl=RlConfig(**rl), lr_floor=lr_floor)


def rates(config: LearnerConfig, limit: int | None, count: int, phase: Phase = Phase.RL) -> list[float]:
    return [learning_rate(config, phase, n, limit) for n in range(count)]


LINEAR, COSINE = Schedule.LINEAR, Schedule.COSINE
CYCLE = of_rl(0.2, lr=1.0, warmup_steps=1, lr_schedule=LINEAR, lr_cycle_steps=6)
FALL = of_rl(0.2, lr=1.0, warmup_steps=1, lr_schedule=LINEAR)  # to step 5, the last of 6: a fifth of the fall a step
SHORT = of_rl(0.2, lr=1.0, warmup_steps=0, lr_schedule=LINEAR)
SFT = SftConfig(lr=2.0, pulse_lr=2.0, warmup_steps=0, lr_schedule=COSINE)
CLONING = LearnerConfig(rl=RlConfig(lr=2.0, warmup_steps=1), sft=SFT, lr_floor=0.0)
HALF = [2.0, 1.5, 0.5, 0.0]  # cos(0), cos(60 deg), cos(120 deg), cos(180 deg) = 1, 1/2, -1/2, -1


@pytest.mark.parametrize(
    ("config", "limit", "phase", "expected"),
    [
        (of_rl(lr=1.0, warmup_steps=3), 8, Phase.RL, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        (FALL, 6, Phase.RL, [0.5, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        *((CYCLE, limit, Phase.RL, [0.5, 1.0, 0.8, 0.6, 0.4, 0.2] * 3) for limit in (None, 6, 12, 99)),
        (SHORT, 2, Phase.RL, [1.0, 0.2, 0.2]),
        (SHORT, 1, Phase.RL, [1.0, 1.0]),  # the only one has nowhere to fall
        (of_rl(0.0, lr=2.0, warmup_steps=0, lr_schedule=COSINE), 4, Phase.RL, HALF),
        (CLONING, 4, Phase.RL, [1.0, 2.0, 2.0, 2.0]),
        (CLONING, 4, Phase.BC, HALF),
        (CLONING, 4, Phase.PULSE, HALF),
    ],
)
def test_rates_by_hand(config: LearnerConfig, limit: int | None, phase: Phase, expected: list[float]) -> None:
    assert rates(config, limit, len(expected), phase) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", list(Schedule))
def test_each_phase_has_its_rate_and_no_limit_means_no_fall(schedule: Schedule) -> None:
    config = LearnerConfig(
        rl=RlConfig(lr=2.0, warmup_steps=0, lr_schedule=schedule),
        sft=SftConfig(lr=1.0, pulse_lr=3.0, warmup_steps=0, lr_schedule=schedule),
    )
    for phase, rate in ((Phase.BC, 1.0), (Phase.RL, 2.0), (Phase.PULSE, 3.0)):
        assert learning_rate(config, phase, 0, 10) == rate
        assert learning_rate(config, phase, 7, None) == rate


@given(
    st.sampled_from(Schedule), st.integers(0, 12), st.floats(0, 1), st.integers(1, 40), st.integers(0, 60)
)  # fmt: skip
def test_it_stays_between_nothing_and_the_rate(
    schedule: Schedule, warmup: int, floor: float, limit: int, step: int
) -> None:
    config = of_rl(floor, lr=0.5, warmup_steps=warmup, lr_schedule=schedule)
    here, after = (learning_rate(config, Phase.RL, n, limit) for n in (step, step + 1))
    assert 0.0 <= here <= 0.5
    assert math.isfinite(here)
    assert after >= here if step < warmup else after <= here
    if step >= warmup:
        assert here >= 0.5 * floor - 1e-12


def next_batch(play: Play) -> Batch | None:
    """The next batch, after playing a group where RL needs one; None when the stay's steps are done."""
    now = play.figures()
    play.serving(str(now.trained))
    if now.phase.phase is Phase.RL and not now.groups_ready and now.phase_steps < (now.phase_limit or 0):
        play.group([True, False], str(now.trained))
    found = play.take()
    return found if isinstance(found, Batch) else None


def test_a_resume_in_any_phase_goes_on_with_the_same_rates(tmp_path: Path) -> None:
    config = LearnerConfig(
        rl=RlConfig(lr=2.0, warmup_steps=2, lr_schedule=Schedule.COSINE),
        sft=SftConfig(lr=1.0, pulse_lr=3.0, warmup_steps=2, lr_schedule=Schedule.COSINE),
    )
    play = Play(tmp_path, settings(demos=1))
    play.demonstrate(1)
    for phase in (Phase.BC, Phase.RL, Phase.PULSE, Phase.RL):
        play.phase(phase, 6)
        seen: list[float] = []
        while (batch := next_batch(play)) is not None:
            seen.append(learning_rate(config, batch.phase.phase, batch.stay_step, batch.stay_limit))
            play.trained(batch)
            now = play.ledger.tx.trained
            if len(seen) == 3:
                play.checkpointed(str(now))
            if len(seen) in (4, 7):  # one step is lost, then the three to the stay's end
                saved = play.ledger.tx.checkpointed
                assert saved is not None
                play.resumed(f"{now.lineage + 1}.{saved.step}", str(saved))
        whole = [learning_rate(config, phase, n, 6) for n in range(6)]
        assert seen == [*whole[:4], *whole[3:], *whole[3:]]
        play.checkpointed(str(play.ledger.tx.trained))
