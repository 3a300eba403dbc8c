"""The memory of the learner is planned before a run starts, on this machine or for another one."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.cluster.config import deploy_files
from actors.cluster.runs import compose, refusals
from policy.memory import GIB
from runtime.errors import ConfigError

OTHERS = {
    "gpu-1": [[], ["model.shape=qwen3-1.7b"]],
    "gpu-8": [[], ["model.shape=qwen2.5-14b", "learner.parallel.tensor=4", "learner.parallel.pipeline=1"]],
}


def planned(name: str, *overrides: str, dry: bool = True) -> compose.Plan:
    deploy = deploy_files.load(name, overrides)[0]
    run = Path("nowhere")
    named = refusals.look_up(deploy, run_dir=run, trains=True, dry=dry)
    return compose.plan(named, run_dir=run, incarnation="i")


@pytest.mark.parametrize("name", OTHERS)
def test_files_for_gpus_are_planned_without_a_gpu_and_without_weights(name: str) -> None:
    for overrides in OTHERS[name]:
        told = dict(planned(name, *overrides).summary())["learner"]
        assert "GiB per rank (a device of 79.0 GiB" in told
        assert "optimizer" in told
    with pytest.raises(ConfigError, match=r"model\.path: there is no model folder .*models"):
        planned(name, dry=False)


def test_what_cant_fit_is_refused_with_its_parts_and_the_keys_that_help() -> None:
    alone = ["learner.parallel.tensor=1", "learner.parallel.sequence=false"]
    with pytest.raises(ConfigError, match=r"can't fit.*79\.0 GiB.*optimizer [\d.]+.*learner\.lora\.rank"):
        planned("gpu-8", *alone)
    with pytest.raises(ConfigError, match=r"model\.path: model\.shape nothing has no config.json; there are glm"):
        planned("gpu-8", "model.shape=nothing")


def test_a_reference_and_a_resume_have_to_fit_into_the_memory_of_the_machine_with_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = ["learner.device_gib=0", "learner.rl.kl_coef=0.001", "model.shape=glm-4-9b-0414"]
    monkeypatch.setattr(refusals, "device_bytes", lambda: 79 * GIB)
    room = SimpleNamespace(total=138 * GIB)  # four ranks with 8 GiB and 12 bytes of each parameter
    monkeypatch.setattr(refusals.psutil, "virtual_memory", lambda: room)
    told = dict(planned("gpu-8", *here).summary())["learner"]
    assert "; in the host's memory: reference 8.00, checkpoint 26.27" in told
    room.total = 137 * GIB
    with pytest.raises(ConfigError, match=r"4 ranks hold .* 137\.0 GiB.*reference 8\.00, checkpoint 26.*learner\.rl"):
        planned("gpu-8", *here)


def test_a_machine_s_own_devices_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '81559\\n40960\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert refusals.device_bytes() == 40 * GIB
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert refusals.device_bytes() is None
    told = dict(planned("smoke").summary())["learner"]
    assert "this machine's memory" in told
