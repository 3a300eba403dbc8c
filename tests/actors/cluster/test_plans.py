"""What a deploy file comes to, in a few lines, and what it may not ask for: sums, shares, memory, memos."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import cli
from actors.cluster.config import deploy_files, models
from actors.cluster.config.keys import summary
from actors.cluster.config.lanes import lanes_of
from actors.cluster.config.schema import SeatsConfig
from actors.cluster.runs import compose, refusals
from actors.desktop import memo
from actors.desktop.config import MachineConfig, SshConfig
from actors.desktop.memo_file import read
from actors.sampler.config import SamplerSettings
from policy.memory import GIB
from runtime.errors import ConfigError
from runtime.messaging.message import Version


def said(name: str, *overrides: str) -> dict[str, str]:
    deploy = deploy_files.load(name, overrides)[0]
    return dict(summary(deploy, lanes_of(deploy.tasks)))


def test_a_summary_says_what_runs_and_in_singular_where_it_is_one() -> None:
    smoke = said("smoke")
    assert smoke["batches"].startswith("1 group of 4 episodes per RL step")
    assert smoke["phases"].endswith("20 steps of cloning, 1 step of RL in 1 phase")
    assert smoke["engine"] == "embedded on cpu"
    assert smoke["learning"].startswith("advantages by step, token_mean")
    chosen = said("smoke", "learner.rl.baseline=leave_one_out", "learner.rl.ratio=sequence", "learner.rl.kl_coef=0.05")
    assert chosen["learning"].endswith("baseline leave_one_out, ratio sequence, kl_coef 0.05")
    local = said("local")
    assert "74 steps of RL in 5 phases, 4 x 200 steps of pulse" in local["phases"]
    assert local["learning"].endswith("8 exercises rehearsed")
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
            ["entropulse.pulse=trials"],
            "up to 4 trials of a pulse, judged on up to 100 training tasks",
        ),
        (
            ["entropulse.total_rl_steps=56"],
            "56 steps of RL in 4 phases, 3 x 200 steps of pulse with 240 demonstrations each, no room for 1 more pulse",
        ),
        (
            ["entropulse.rl_steps_per_phase=0", "entropulse.total_rl_steps=30", "entropulse.pulses=1"],
            "30 steps of RL in up to 2 phases, up to 1 x 200 steps of pulse with 240 demonstrations each",
        ),
        (["replay.pulse_demos=9"], "4 x 200 steps of pulse with 9 demonstrations each"),
    ],
)
def test_phases_that_the_total_leaves_no_room_for_are_not_announced(overrides: list[str], expected: str) -> None:
    assert said("local", *overrides)["phases"].endswith(expected)


OTHERS = {
    "gpu-1": [[], ["model.shape=qwen3-1.7b"]],
    "gpu-8": [[], ["model.shape=qwen2.5-14b", "learner.parallel.tensor=4", "learner.parallel.pipeline=1"]],
}


def dry_plan(name: str, *overrides: str, dry: bool = True) -> compose.Plan:
    deploy = deploy_files.load(name, overrides)[0]
    run = Path("nowhere")
    named = refusals.look_up(deploy, run_dir=run, trains=True, dry=dry)
    return compose.plan(named, run_dir=run, incarnation="i")


@pytest.mark.parametrize("name", OTHERS)
def test_files_for_gpus_are_planned_without_a_gpu_and_without_weights(name: str) -> None:
    for overrides in OTHERS[name]:
        told = dict(dry_plan(name, *overrides).summary())["learner"]
        assert "GiB per rank (a device of 79.0 GiB" in told
        assert "optimizer" in told
    with pytest.raises(ConfigError, match=r"model\.path: there is no model folder .*models"):
        dry_plan(name, dry=False)


def test_what_cant_fit_is_refused_with_its_parts_and_the_keys_that_help() -> None:
    alone = ["learner.parallel.tensor=1", "learner.parallel.sequence=false"]
    with pytest.raises(ConfigError, match=r"can't fit.*79\.0 GiB.*optimizer [\d.]+.*learner\.lora\.rank"):
        dry_plan("gpu-8", *alone)
    with pytest.raises(ConfigError, match=r"model\.path: model\.shape nothing has no config.json; there are glm"):
        dry_plan("gpu-8", "model.shape=nothing")


TURNS = ("samplers.turns=true", "samplers.engine.options.mem-fraction-static=0.7")


@pytest.mark.parametrize(("name", "awake", "asleep"), [("gpu-1", "68.2", "35.8"), ("gpu-1-4b", "72.9", "25.9")])
def test_both_states_of_one_card_are_planned(name: str, awake: str, asleep: str) -> None:
    at_once = dict(dry_plan(name).summary())["learner"]
    assert "; at once; with samplers.turns engine awake" in at_once
    in_turns = dict(dry_plan(name, *TURNS).summary())["learner"]
    for line in (at_once, in_turns):
        assert f"engine asleep {asleep} of 79.0 GiB (learner in a step" in line
    assert f"engine awake {awake} of 79.0 GiB (engine 55.30, its graphs and workspaces 10.00, learner" in in_turns
    assert "of 75.0 GiB per rank" in in_turns, "the engine's share is free in a step"


@pytest.mark.parametrize(
    ("name", "override", "why"),
    [
        ("gpu-1", "samplers.engine.options.mem-fraction-static=0.9", r"can't hold this: engine awake 84\.0 of 79\.0"),
        ("gpu-1", "samplers.engine.options={}", "samplers.engine.options.mem-fraction-static does not say"),
        ("gpu-1", "learner.parallel.data=2", "learner.parallel asks for several ranks"),
        ("gpu-8", "samplers.count=4", "one card has one engine, and samplers.gpus asks for more"),
    ],
)
def test_turns_that_cant_be_had_are_refused_by_name(name: str, override: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"samplers.turns is true, and .*{why}"):
        dry_plan(name, *TURNS, override)


@pytest.mark.parametrize("share", ["abc", "", "1.5", "-1.0", "true"])
def test_a_share_of_a_card_that_is_none_is_refused_by_name(share: str) -> None:
    with pytest.raises(ConfigError, match=r"^samplers\.engine\.options\.mem-fraction-static is .*above 0 and below 1$"):
        dry_plan("gpu-1", f"samplers.engine.options.mem-fraction-static={share}")


def test_only_a_run_that_trains_takes_turns() -> None:
    deploy = deploy_files.load("gpu-1", TURNS)[0]
    named = refusals.look_up(deploy, run_dir=Path("nowhere"), trains=False, dry=True)
    plan = compose.evaluating(named, version=Version(lineage=0, step=0), run_dir=Path("nowhere"), incarnation="i")
    (engine,) = [spec.config for spec in plan._specs() if spec.name == "sampler/0"]
    assert isinstance(engine, SamplerSettings)
    assert not engine.samplers.turns


def test_a_reference_and_a_resume_have_to_fit_into_the_memory_of_the_machine_with_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = ["learner.device_gib=0", "learner.rl.kl_coef=0.001", "model.shape=glm-4-9b-0414"]
    monkeypatch.setattr(refusals, "device_bytes", lambda: 79 * GIB)
    room = SimpleNamespace(total=138 * GIB)  # four ranks with 8 GiB and 12 bytes of each parameter
    monkeypatch.setattr(refusals.psutil, "virtual_memory", lambda: room)
    told = dict(dry_plan("gpu-8", *here).summary())["learner"]
    assert "; in the host's memory: reference 8.00, checkpoint 26.27" in told
    room.total = 137 * GIB
    with pytest.raises(ConfigError, match=r"4 ranks hold .* 137\.0 GiB.*reference 8\.00, checkpoint 26.*learner\.rl"):
        dry_plan("gpu-8", *here)


def test_a_machine_s_own_devices_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '81559\\n40960\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert refusals.device_bytes() == 40 * GIB
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert refusals.device_bytes() is None
    told = dict(dry_plan("smoke").summary())["learner"]
    assert "this machine's memory" in told


def machine(seats: int, name: str = "m") -> MachineConfig:
    return MachineConfig(host=name, user="u", client_key="k", host_key="h", desktops=seats)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4))
def test_processes_share_machines_without_going_beyond_their_seats(seats: list[int], processes: int) -> None:
    machines = [machine(count, f"m{n}") for n, count in enumerate(seats)]
    whole = SshConfig(machines=machines)
    shares = [whole.share(index, processes) for index in range(processes)]
    taken = Counter({one.host: 0 for one in machines})
    for share in shares:
        taken.update({one.host: one.desktops for one in share.machines})
    assert taken == {one.host: one.desktops for one in machines}
    assert max(share.desktops for share in shares) - min(share.desktops for share in shares) <= len(machines)


def test_machines_with_too_few_seats_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"desktops\.provider: of its 4 desktops, process 0 has 4, and"):
        SeatsConfig(count=4, warm_pool=1, provider=SshConfig(machines=[machine(4)]))
    two = SeatsConfig(count=2, processes=2, warm_pool=1, provider=SshConfig(machines=[machine(4)]))
    assert [two.of_one_host(index=index).provider.desktops for index in range(2)] == [2, 2]  # type: ignore[union-attr]


def test_on_is_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: smoke\ndesktops: {memo: on}\n")
    assert cli.main(["run", str(file), "--print", "--runs", str(tmp_path)]) == 0
    assert "memo: 'on'" in capsys.readouterr().out.replace('"', "'")


def test_learn_clones_a_bundled_recording_and_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its recording is bundled, too
    assert cli.main(["run", "learn", "--dry-run", "--runs", str(tmp_path)]) == 0
    plan = capsys.readouterr().out
    assert "32 demonstrations, 120 steps of cloning, 20 steps of RL in 1 phase" in plan
    assert "after cloning and at the end: 200 instances" in plan
    assert "lines are of such desktops" in plan
    assert models.locate("cloned") != models.locate("base")
    assert models.fingerprint(models.locate("cloned")) == models.fingerprint(models.locate("base"))


def test_the_bundled_memo_is_whole_and_small() -> None:
    assert memo.BUNDLED.stat().st_size < 4 << 20
    assert all(line.scope.startswith("3/compact/") for line in read(memo.BUNDLED))
