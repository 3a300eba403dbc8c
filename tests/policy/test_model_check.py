"""`computerrl model check` on tiny folders of every architecture, in odd shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.cluster import cli
from tests.policy import tiny_models
from tests.policy.chat_models import write_tokenizer
from tests.policy.vision_model import tiny_vision_folder

# Heads that don't divide the hidden size, one key head, one layer, a vocabulary that is no multiple of anything.
ALL_ODD: dict[str, object] = {
    "hidden_size": 30, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 12, "layers": 1,
    "vocab_size": 131,
}  # fmt: skip
DIVIDES = {"hidden_size": 32}  # transformers refuses a Llama of another
ODD: dict[str, tuple[str, dict[str, object]]] = {  # model_type or llama3, and what else is odd
    "llama": ("llama", {"tied": False, **DIVIDES}),
    "llama3": ("llama3", {"tied": True, **DIVIDES}),
    "mistral": ("mistral", {"tied": False}),
    "qwen2, tied with biases": ("qwen2", {"tied": True}),
    "qwen3": ("qwen3", {"tied": True, "num_attention_heads": 9, "num_key_value_heads": 3, "layers": 2}),
    "qwen3, one key head": ("qwen3", {"tied": False}),
    "glm4, tied with biases": ("glm4", {"tied": True}),
    "glm4 without biases": ("glm4", {"tied": False, "attention_bias": False, "layers": 2}),
}


def folder_of(path: Path, name: str) -> Path:
    style, odd = ODD[name]
    folder = tiny_models.write(path / "model", style, **ALL_ODD | odd)  # type: ignore[arg-type]
    write_tokenizer(folder, style)
    return folder


def checked(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, object]]:
    status = cli.main(["model", "check", str(folder), "--json", *flags])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_shape_agrees_with_transformers(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = checked(folder_of(tmp_path, name), capsys)
    assert found.pop("max_logit_diff") < 1e-4  # type: ignore[operator]
    architecture = ODD[name][0].replace("a3", "a")
    assert found == {"architecture": architecture, "loads": True, "generates": True, "chat": [], "why": ""}
    assert status == 0


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "glm4v"])
def test_a_model_that_sees_agrees_with_and_without_pictures(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_vision_folder(tmp_path / "model", glm=kind == "glm4v")
    status, found = checked(folder, capsys)
    assert found.pop("max_logit_diff") < 1e-4  # type: ignore[operator]
    assert found == {"architecture": kind, "loads": True, "generates": True, "chat": [], "why": ""}
    assert status == 0
    assert checked(folder, capsys, "--dtype", "bfloat16")[0] == 0
    monkeypatch.setattr("policy.vision.tower._BASE", 100.0)
    status, found = checked(folder, capsys)
    assert status != 0
    assert "differs from transformers" in str(found["why"])


def test_bfloat16_has_a_margin_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, "glm4 without biases")
    file = folder / "model.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file)
    status, found = checked(folder, capsys, "--dtype", "bfloat16")
    assert (status, found["why"]) == (0, "")
    assert found["max_logit_diff"] > 1e-4  # type: ignore[operator]
    assert checked(folder, capsys)[0] == 0


def test_a_difference_and_a_key_that_is_not_covered_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, "qwen2, tied with biases")
    monkeypatch.setattr("policy.engine.model.inverse_frequencies", lambda arch: torch.zeros(arch.rotary_dim // 2))
    status, found = checked(folder, capsys)
    assert status == 1
    assert str(found["why"]).startswith("the engine differs from transformers by ")
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}))
    assert cli.main(["model", "check", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "rope_parameters" in said
    assert said.count("\n") == 1
    assert cli.main(["model", "check", str(tmp_path / "none")]) == 2
