from __future__ import annotations

import pytest

from actors.cluster.config import deploy_files
from actors.cluster.config.keys import pulses, summary
from actors.cluster.config.lanes import lanes_of
from actors.entropulse.config import EntropulseConfig


def said(name: str, *overrides: str) -> dict[str, str]:
    deploy = deploy_files.load(name, overrides)[0]
    return dict(summary(deploy, lanes_of(deploy.tasks)))


def test_a_summary_says_what_runs_and_in_singular_where_it_is_one() -> None:
    smoke = said("smoke")
    assert smoke["batches"].startswith("1 group of 4 episodes per RL step")
    assert smoke["phases"].endswith("80 steps of cloning, 1 step of RL in 1 phase")
    assert smoke["engine"] == "embedded on cpu"
    assert "rehearsal" not in smoke
    assert smoke["learning"].startswith("advantages by step, token_mean")
    chosen = said("smoke", "learner.rl.baseline=leave_one_out", "learner.rl.ratio=sequence", "learner.rl.kl_coef=0.05")
    assert chosen["learning"].endswith("baseline leave_one_out, ratio sequence, kl_coef 0.05")
    options = ["learner.rl.prior_weight=4", "learner.rl.tis_cap=3", "replay.success_replay=true", "demos.relabel=true"]
    assert said("smoke", *options)["learning"].endswith(
        "prior_weight 4, tis_cap 3, success_replay, relabel: the oracle's answers in place of rewards"
    )
    assert said("local", "learner.rehearsal_every=2")["rehearsal"].endswith("where the version is a multiple of 2")
    local = said("local")
    assert "74 steps of RL in 5 phases, 4 x 200 steps of pulse" in local["phases"]
    assert local["rehearsal"].startswith("8 exercises")
    rounds = "after cloning, after each pulse and at the end: 200 instances at temperature 1; "
    assert local["evaluation"] == rounds + "on seats RL leaves idle"
    assert said("local-sglang")["evaluation"] == rounds + "while RL draws nothing"
    assert said("local", "evaluation.rollout_share=0.125")["evaluation"] == rounds + "12.5% of RL's episodes meanwhile"
    assert said("sglang-gpu")["engine"] == "sglang on cuda"
    assert said("sglang-gpu", "samplers.attach=[http://a:1]")["engine"] == "sglang, 1 attached server"
    alone = said("bc-alone")
    assert "batches" not in alone
    assert "RL" not in alone["phases"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["entropulse.total_rl_steps=8"], "8 steps of RL in 1 phase, no room for 4 pulses"),
        (
            ["entropulse.total_rl_steps=56"],
            "56 steps of RL in 4 phases, 3 x 200 steps of pulse with 240 demonstrations each, no room for 1 more pulse",
        ),
        (
            ["entropulse.rl_steps_per_phase=0", "entropulse.total_rl_steps=30", "entropulse.pulses=1"],
            "30 steps of RL in up to 2 phases, up to 1 x 200 steps of pulse with 240 demonstrations each",
        ),
        (
            ["entropulse.rl_steps_per_phase=0", "entropulse.total_rl_steps=20"],
            "20 steps of RL in 1 phase, no room for 4 pulses",
        ),
        (["replay.pulse_demos=9"], "4 x 200 steps of pulse with 9 demonstrations each"),
        (["entropulse.pulse=none"], "874 steps of RL in 1 phase"),
    ],
)
def test_phases_that_the_total_leaves_no_room_for_are_not_announced(overrides: list[str], expected: str) -> None:
    assert said("local", *overrides)["phases"].endswith(expected)


def test_an_end_for_want_of_signal_may_come_at_once() -> None:
    assert pulses(EntropulseConfig(total_rl_steps=9, pulses=3, max_unused_groups=5)) == (0, 3)
    assert pulses(EntropulseConfig(total_rl_steps=9, pulses=3)) == (0, 0)
