from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.cluster.config.schema import RequireConfig
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound, compare, gain_line, gains, unmet
from actors.replay.messages import EvalFigures, Figures, Phase, PhaseRef
from actors.replay.statistics import RoundEpisode, summarise
from runtime.errors import ConfigError
from runtime.messaging.message import Version

ROUND = EvalFigures(
    round="0", version=Version(lineage=0, step=0), temperature=0.0, tasks=10, played=10, successes=4, feasible=10,
    faults=0, closed=True, task_set="t",
)  # fmt: skip


def figures(**changes: Any) -> Figures:
    base = Figures(
        revision=1,
        phase=PhaseRef(phase=Phase.RL, index=2),
        phase_steps=3,
        phase_limit=10,
        steps={"bc": 5, "rl": 3},
        stays={},
        trained=Version(lineage=0, step=8),
        checkpointed=None,
        served=None,
        demos=8,
        demo_attempts=9,
        groups_open=1,
        groups_ready=0,
        groups_leased=0,
        endings={"trained": 4, "zero_variance": 2},
        groups_opened=7,
        groups_wasted=2,
        successes_kept=3,
        episodes={"train": 40},
        faults={},
        train_success=[0.25, 0.75],
        entropy=[0.3],
        evals=[ROUND],
        seats_busy=2,
        staleness={"0": 2, "1": 2},
    )
    return msgspec.structs.replace(base, **changes)


def test_a_smoke_run_needs_both_kinds_of_steps() -> None:
    require = RequireConfig(bc_steps=1, rl_steps=1)
    assert unmet(require, figures()) == []
    assert unmet(require, figures(steps={"bc": 5})) == ["0 of 1 rl steps"]
    assert unmet(require, figures(steps={"rl": 1})) == ["0 of 1 bc steps"]
    assert unmet(require, figures(endings={"zero_variance": 9})) == ["no group with differing rewards was trained"]


def held_out(
    name: str, successes: int, *, temperature: float = 1.0, closed: bool = True, tasks: int = 40
) -> EvaluationRound:
    """A round of `tasks` of a trained family, the first `successes` solved, and as many of an untrained one, none."""
    episodes = [RoundEpisode(task=f"text_editor/held-out/{n}", success=n < successes) for n in range(tasks)]
    episodes += [RoundEpisode(task=f"calc_column/held-out/{n}") for n in range(tasks)]
    step = {"after_bc": 1, "rl20": 21, "final": 41}[name.removesuffix(".greedy")]
    return EvaluationRound(
        name=name, version=f"0.{step}", step=step, temperature=temperature, max_new_tokens=64, task_set=str(tasks),
        closed=closed, summary=summarise(episodes), episodes=episodes,
    )  # fmt: skip


def test_an_interval_above_a_value_is_of_the_trained_families_and_says_its_numbers() -> None:
    require = RequireConfig(gain_above=0.0)
    assert "no two evaluation rounds" in unmet(require, figures())[0]
    found = gains([held_out("after_bc", 10), held_out("rl20", 2), held_out("final", 25)])
    assert unmet(require, figures(), found) == []
    (line,) = [gain_line(one) for one in found]
    assert line.startswith("held-out success 0.250 -> 0.625 from after_bc to final: +0.375 (95 % +0.2")
    assert "trained families, 40 instances, T=1" in line
    weak = gains([held_out("after_bc", 10), held_out("final", 11)])
    (missing,) = unmet(require, figures(), weak)
    assert "begins at -" in missing


def test_only_closed_rounds_of_one_kind_are_compared() -> None:
    mixed = [held_out("after_bc", 9), held_out("after_bc.greedy", 12, temperature=0.0), held_out("rl20", 3, tasks=20)]
    assert gains([*mixed, held_out("final", 20, closed=False)]) == []
    found: list[Compared] = gains([*mixed, held_out("final", 20), held_out("final.greedy", 30, temperature=0.0)])
    assert [(one.before, one.after, one.decoding) for one in found] == [
        ("after_bc", "final", "T=1"), ("after_bc.greedy", "final.greedy", "greedy"),
    ]  # fmt: skip
    assert found[0].families.keys() == {"text_editor", "calc_column"}
    with pytest.raises(ConfigError, match="can't be compared"):
        compare(mixed[0], mixed[1])
