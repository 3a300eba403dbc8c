"""A round's greedy twin beside training: on the very weights of its round, or not at all."""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.entropulse.config import EntropulseConfig, EntropulseSettings, EvaluationConfig
from actors.entropulse.decide import OpenRound, Remain, decide
from actors.replay.messages import EvalFigures, Phase, PhaseRef
from actors.settings import DemosConfig, SamplingConfig
from runtime.messaging.message import Version
from tests.actors.replay.ledger_tools import Play

CONFIG = EntropulseSettings(
    entropulse=EntropulseConfig(bc_steps=2, total_rl_steps=6, pulses=0),
    evaluation=EvaluationConfig(greedy=True, interval=1),
    eval_tasks=["e0", "e1"],
    task_set="e",
    sampling=SamplingConfig(max_new_tokens=32),
    demos=DemosConfig(count=2),
    samplers=["sampler/0"],
)
RL1 = EvalFigures(
    round="rl1",
    version=Version(lineage=0, step=3),
    temperature=1.0,
    tasks=2,
    played=0,
    successes=0,
    feasible=2,
    faults=0,
)


def test_both_are_opened_at_once_or_the_twin_on_weights_that_must_be_the_same(tmp_path: Path) -> None:
    rl = msgspec.structs.replace(
        Play(tmp_path).figures(),
        phase=PhaseRef(phase=Phase.RL, index=2),
        phase_limit=6,
        phase_steps=1,
        steps={"bc": 2, "rl": 1},
        trained=RL1.version,
    )
    assert decide(rl, CONFIG) == OpenRound("rl1", 1.0, False, greedy=True, least=3), "not on older weights"
    killed = msgspec.structs.replace(rl, evals=[RL1])  # the supervisor, between the two
    assert decide(killed, CONFIG) == OpenRound("rl1.greedy", 0.0, True)
    later = msgspec.structs.replace(killed, trained=Version(lineage=0, step=4))
    assert isinstance(decide(later, CONFIG), Remain)
